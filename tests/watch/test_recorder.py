"""The flight recorder: what it writes, what reads it, and that nobody notices it otherwise."""

import json
import logging
import os
import signal
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset, ReadOptions
from bushel.errors import FileError, PlanError, RecordError, StateError
from bushel.watch import recorder
from bushel.watch.recording import Recording, read_recording
from bushel.watch.replay import replayed, save_element
from tests.contract.test_resizing import engines_of
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import make_loader, with_workers

__all__ = ["no_endless_wait", "no_process_left_behind"]

INLINE = ReadOptions(0, 0)


def odd(number: int) -> bool:
    return number % 2 == 1


def bad_at_7(number: int) -> int:
    if number % 10 == 7:
        raise ValueError("a bad record")
    return number


def positional() -> Any:
    return MapDataset.range(400).shuffle(seed=3).map(np.sqrt).batch(4)


def filtered() -> Any:
    stream = MapDataset.range(800).shuffle(seed=1).to_iter_dataset(INLINE)
    return stream.filter(odd).map(np.sqrt).batch(4)


def loader() -> Any:
    return make_loader(bushel.BatchOperation(2), workers=0, count=200)


MAKERS = [positional, filtered, loader]


def run(dataset: Any, path: Path, **more: Any) -> tuple[list[Any], Recording]:
    with bushel.iterate(dataset, record=path, **more) as iterator:
        elements = list(iterator)
    return elements, read_recording(iterator.recording)


@pytest.mark.parametrize("stats", [True, False], ids=["stats", "no stats"])
@pytest.mark.parametrize("make", MAKERS)
def test_elements_and_states_are_the_same(make: Any, stats: bool, tmp_path: Path) -> None:
    with (
        iter(make()) as plain,
        bushel.iterate(make(), stats=stats, record=tmp_path / "a", every=7) as recorded,
    ):
        for wanted in plain:
            np.testing.assert_array_equal(next(recorded), wanted)
            assert recorded.state_dict() == plain.state_dict()
        assert next(recorded, None) is None
    assert recorded.state_dict() == plain.state_dict()
    recording = read_recording(tmp_path / "a")
    assert not recording.cut and not recording.damaged
    assert [entry["step"] for entry in recording.steps] == list(range(0, 100, 7))
    assert [one["event"] for one in recording.entries[-2:]] == ["end", "closed"]
    assert [one["step"] for one in recording.entries[-2:]] == [100, 100]


def test_without_it_nothing_is_different() -> None:
    iterator = bushel.iterate(positional(), stats=False)
    assert type(iterator) is type(iter(positional()))
    assert not hasattr(iterator, "recording")


def test_the_first_line_says_what_was_recorded(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(60))
    dataset = MapDataset.source(bushel.open(str(tmp_path / "rows.npy"))).map(np.sqrt).batch(4)
    _, recording = run(dataset, tmp_path / "run.bushel")
    header = recording.header
    with iter(dataset) as iterator:
        assert header["pipeline"] == iterator.get_state()["bushel"]["pipeline"]
        assert recording.whole_state({"next_index": 0}) == iterator.get_state()
    assert header["bushel"] == 1 and (header["host"], header["hosts"]) == (0, 1)
    assert header["versions"].keys() == {"python", "numpy", "bushel"}
    assert header["sources"][0].keys() == {"name", "files", "bytes"}
    assert stat.S_IMODE(os.stat(recording.path).st_mode) == 0o600


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.bushel"
    path.write_text("mine")
    names = [run(positional(), path)[1].path for _ in range(2)]
    assert names == [str(tmp_path / "run-2.bushel"), str(tmp_path / "run-3.bushel")]
    assert path.read_text() == "mine"


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="in a folder that is there"):
        bushel.iterate(positional(), record=tmp_path / "none" / "run.bushel")
    for every in (0, -1, 2.5, True):
        with pytest.raises(PlanError, match="`every` is a number of steps"):
            bushel.iterate(positional(), record=tmp_path / "a", every=every)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="cannot be -1"):
        bushel.iterate(positional(), record=tmp_path / "a", first_step=-1)
    with pytest.raises(TypeError, match="takes a MapDataset"):
        bushel.iterate([1, 2], record=tmp_path / "a", stats=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", MAKERS)
def test_steps_are_made_again(make: Any, tmp_path: Path) -> None:
    elements, recording = run(make(), tmp_path / "a", every=9)
    for step in (0, 1, 8, 9, 50, 99):
        made = replayed(recording, make(), step)
        np.testing.assert_array_equal(made.element, elements[step])
        assert made.start == step - step % 9
        equal = [check.equal for check in made.checks]
        assert equal == ([True] if made.start == step else [True, None])
        assert not made.differs
    with pytest.raises(PlanError, match="there is no step 100: the data ends after 100 steps"):
        replayed(recording, make(), 100)


def test_steps_that_the_run_did_not_make_are_told(tmp_path: Path) -> None:
    with bushel.iterate(positional(), record=tmp_path / "a", every=10) as iterator:
        for _ in range(35):
            next(iterator)
    recording = read_recording(tmp_path / "a")
    for step in (0, 30, 34):
        assert replayed(recording, positional(), step).beyond == ""
    told = replayed(recording, positional(), 35).beyond
    assert told == "the run ended before step 35: step 35 was not part of it"
    # A run that was killed tells no end.
    whole = (tmp_path / "a").read_text().splitlines(keepends=True)
    (tmp_path / "b").write_text("".join(line for line in whole if '"closed"' not in line))
    killed = read_recording(tmp_path / "b")
    last = max(entry["step"] for entry in killed.entries)
    told = replayed(killed, positional(), 60).beyond
    assert told == (
        f"the recording ends with step {last - 1:,}: it is not known whether the run made step 60"
    )


def test_steps_are_made_again_with_another_number_of_workers(tmp_path: Path) -> None:
    elements, recording = run(with_workers(positional(), 1), tmp_path / "a", every=10)
    _, alone = run(positional(), tmp_path / "b", every=10)
    assert [one["crc"] for one in recording.steps] == [one["crc"] for one in alone.steps]
    assert [one["state"] for one in recording.steps] == [one["state"] for one in alone.steps]
    for dataset, one in ((with_workers(positional(), 1), alone), (positional(), recording)):
        made = replayed(one, dataset, 61)
        np.testing.assert_array_equal(made.element, elements[61])
        assert [check.equal for check in made.checks] == [True, None]


def test_other_pipelines_are_refused(tmp_path: Path) -> None:
    _, recording = run(positional(), tmp_path / "a")
    other = MapDataset.range(400).shuffle(seed=4).map(np.sqrt).batch(4)
    with pytest.raises(StateError, match=r"another pipeline: step 2 was `shuffle\(seed=3\)`"):
        replayed(recording, other, 3)
    with pytest.raises(StateError, match="no state of a DataLoader"):
        replayed(recording, loader(), 3)
    _, of_loader = run(loader(), tmp_path / "b")
    with pytest.raises(StateError, match="saved by a DataLoader"):
        replayed(of_loader, positional(), 3)
    with pytest.raises(StateError, match="another pipeline"):
        replayed(of_loader, make_loader(bushel.BatchOperation(5), workers=0, count=200), 3)


def test_other_bytes_are_noticed(tmp_path: Path) -> None:
    _, recording = run(MapDataset.source(list(range(10))), tmp_path / "a", every=2)
    made = replayed(recording, MapDataset.source(list(range(1, 11))), 4)
    assert made.differs
    assert "differs" in str(made.checks[0])


@pytest.mark.parametrize("make", MAKERS)
def test_runs_that_were_resumed(make: Any, tmp_path: Path) -> None:
    elements, _ = run(make(), tmp_path / "a", every=9)
    with iter(make()) as first:
        for _ in range(40):
            next(first)
        state = first.state_dict()
    with bushel.iterate(make(), record=tmp_path / "b", every=9, first_step=40) as second:
        second.load_state_dict(state)
        assert [next(second).tolist() for _ in range(20)] == [
            one.tolist() for one in elements[40:60]
        ]
        second.load_state_dict(state)
        next(second)
    recording = read_recording(tmp_path / "b")
    event = recording.events("state set")[0]
    assert (event["step"], event["counted"]) == (40, True)
    assert [one["step"] for one in recording.steps[:4]] == [
        40,
        45,
        54,
        40 if make is not filtered else 60,
    ]
    np.testing.assert_array_equal(replayed(recording, make(), 47).element, elements[47])
    assert not replayed(recording, make(), 40).differs
    with pytest.raises(RecordError, match=r"the first state in .* is from before step 40"):
        replayed(recording, make(), 39)


def test_states_that_do_not_tell_the_step(tmp_path: Path) -> None:
    with iter(filtered()) as first:
        next(first)
        state = first.get_state()
    with bushel.iterate(filtered(), record=tmp_path / "a") as second:
        second.set_state(state)
        next(second)
    (event,) = read_recording(tmp_path / "a").events("state set")
    assert (event["step"], event["counted"]) == (0, False)


def test_cut_at_every_byte(tmp_path: Path) -> None:
    _, whole = run(MapDataset.range(60).batch(2), tmp_path / "a", every=9, stats=False)
    data = (tmp_path / "a").read_bytes()
    first = data.index(b"\n")
    cut = tmp_path / "cut"
    lengths = set()
    for size in range(len(data)):
        cut.write_bytes(data[:size])
        if size < first:
            with pytest.raises(RecordError, match="nothing was recorded"):
                read_recording(cut)
            continue
        recording = read_recording(cut)
        ends = data[:size].count(b"\n") - 1 + (data[size : size + 1] == b"\n")
        assert recording.entries == whole.entries[: max(0, ends)]
        assert not recording.damaged
        at_an_end = (
            size == first or data[size : size + 1] == b"\n" or data[size - 1 : size] == b"\n"
        )
        assert recording.cut is not at_an_end
        lengths.add(len(recording.entries))
        steps = [entry["step"] for entry in recording.steps]
        assert [start for start, _ in recording.step_ranges()] == steps[:1]
        assert bool(recording.beyond(0)) is not bool(steps)
    assert lengths == set(range(len(whole.entries) + 1))


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    _, whole = run(positional(), tmp_path / "a", every=10)
    lines = (tmp_path / "a").read_bytes().splitlines()
    damage = [
        b"\0\0\0", b"[1]", b'{"step":-1,"event":"x"}', b'{"step":true,"event":"x"}', b'{"step":1}',
        b'{"step":1,"state":[],"wait":0,"seconds":0,"crc":""}', b"[" * 100_000, b"", b"9" * 5000,
        b'{"step":1,"state":{},"wait":NaN,"seconds":0,"crc":""}', b'{"step":1,"event":5}',
        b'{"step":1,"state":{},"wait":0,"seconds":1e999,"crc":""}',
    ]  # fmt: skip
    (tmp_path / "b").write_bytes(b"\n".join([*lines[:3], *damage, *lines[3:]]) + b"\n")
    recording = read_recording(tmp_path / "b")
    assert recording.entries == whole.entries
    assert [number for number, _ in recording.damaged] == list(range(4, 4 + len(damage)))
    assert dict(recording.damaged)[6] == "its 'step' is -1"
    assert not recording.cut


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("hello", "is no recording"),
        ("[]\n", "is no recording"),
        ('{"step": 1}\n', "is no recording"),
        ('{"bushel": 2}\n', "of version 2"),
        ('{"bushel": 1, "pipeline": 5}\n', "does not name the pipeline"),
        ('{"bushel": 1, "pipeline": []}\n', "the digests of code and files"),
        (
            '{"bushel": 1, "pipeline": [], "made_with": {}, "loader": 5}\n',
            "does not describe the loader",
        ),
    ],
)
def test_what_is_no_recording(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(RecordError, match=words):
        read_recording(tmp_path / "a")


def test_a_million_steps_are_few_bytes(tmp_path: Path) -> None:
    dataset = MapDataset.range(10**9).shuffle(seed=1).map(abs).batch(4)
    with bushel.iterate(dataset, record=tmp_path / "a", every=1) as iterator:
        iterator.set_state({"next_index": 10**8})
        for _ in range(80):
            next(iterator)
        lines = (tmp_path / "a").read_bytes().splitlines()
    steps = [len(line) + 1 for line in lines if b'"crc"' in line]
    stats = max(len(line) + 1 for line in lines if b'"stats"' in line)
    assert len(steps) == 80
    assert max(steps) * 10_000 + stats * (10_000 // 64 + 3) < 2_000_000


def test_bad_records_and_failures_are_events(tmp_path: Path) -> None:
    dataset = MapDataset.range(100).map(bad_at_7)
    _, recording = run(dataset.on_error("skip"), tmp_path / "a", every=20)
    events = recording.events("bad records")
    assert sum(event["more"] for event in events) == events[-1]["in_all"] == 10
    elements = []
    with bushel.iterate(dataset, record=tmp_path / "b", every=10) as iterator:
        while True:
            try:
                elements.append(next(iterator))
            except StopIteration:
                break
            except ValueError:
                elements.append(None)
    assert len(elements) == 100 and elements[17] is None
    recording = read_recording(tmp_path / "b")
    errors = recording.events("error")
    assert [one["step"] for one in errors] == list(range(7, 100, 10))
    assert {one["what"] for one in errors} == {"ValueError"}
    assert recording.entries[-1]["step"] == 100
    assert replayed(recording, dataset, 19).element == 19
    with pytest.raises(ValueError, match="a bad record"):
        replayed(recording, dataset, 17)


def test_workers_that_died_are_events(tmp_path: Path) -> None:
    stream = with_workers(MapDataset.range(10**6).map(lambda _: os.getpid()), 1)
    with bushel.iterate(stream, record=tmp_path / "a", every=10) as iterator:
        pid = next(iterator)
        os.kill(pid, signal.SIGKILL)
        while next(iterator) == pid:
            pass
        for _ in range(20):
            next(iterator)
    (event,) = read_recording(tmp_path / "a").events("workers died")
    assert event["deaths"] == 1 and event["step"] % 10 == 0


def test_changes_about_threads_are_events(tmp_path: Path) -> None:
    with bushel.iterate(positional(), record=tmp_path / "a", every=1) as iterator:
        next(iterator)
        iterator._times.threads[:] = [lambda: "3 threads (on trial)"]
        next(iterator)
        iterator._times.threads[:] = [lambda: "3 threads"]
        next(iterator)
    (event,) = read_recording(tmp_path / "a").events("threads")
    assert (event["step"], event["now"]) == (2, ["3 threads"])


def test_each_change_of_workers_and_buffers_is_an_event(tmp_path: Path) -> None:
    stream = with_workers(MapDataset.range(10**6), 1)
    with bushel.iterate(stream, record=tmp_path / "a", every=1) as iterator:
        next(iterator)
        (engine,) = engines_of(iterator)
        engine._tells_ahead = True
        engine.resize(2, "it was too slow")
        engine.note_ahead(30, 40)
        next(iterator)
        engine.resize(1, "it was fast enough")
        engine.note_ahead(40, 60)
        next(iterator)
        next(iterator)
    recording = read_recording(tmp_path / "a")
    assert [
        (event["step"], event["was"], event["now"], event["why"])
        for event in recording.events("workers")
    ] == [(1, 1, 2, "it was too slow"), (2, 2, 1, "it was fast enough")]
    ahead = [(event["was"], event["now"]) for event in recording.events("tasks ahead")]
    assert [pair for pair in ahead if pair[0] >= 30] == [(30, 40), (40, 60)]


def test_checksums_can_be_left_out(tmp_path: Path) -> None:
    _, recording = run(positional(), tmp_path / "a", every=10, checksums=False)
    assert {entry["crc"] for entry in recording.steps} == {None}
    checks = replayed(recording, positional(), 20).checks
    assert checks and all(check.equal is None for check in checks)
    assert "no checksum of step 20 was recorded" in str(checks[-1])


class OwnIterator(bushel.DatasetIterator[int]):
    """An iterator of a user's whose state is no JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0

    def __next__(self) -> int:
        self._at += 1
        if self._at > 20:
            raise StopIteration
        return self._at

    def get_state(self) -> dict[str, Any]:
        return {"at": {self._at}}

    def set_state(self, state: dict[str, Any]) -> None:
        (self._at,) = state["at"]


class Own(bushel.IterDataset[int]):
    def __iter__(self) -> OwnIterator:
        return OwnIterator()


def test_states_that_are_no_json(tmp_path: Path) -> None:
    elements, recording = run(Own(), tmp_path / "a", every=5)
    assert elements == list(range(1, 21))
    assert [one["state"] for one in recording.steps] == [None] * 4
    assert [one["step"] for one in recording.steps] == [0, 5, 10, 15]
    with pytest.raises(RecordError, match="has no state"):
        replayed(recording, Own(), 3)


def test_with_the_pipeline_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bushel.config.update("py_dataset_visualization_output_dir", "")
    try:
        with caplog.at_level(logging.INFO, "bushel"):
            elements, recording = run(positional(), tmp_path / "a", every=10)
    finally:
        bushel.config.update("py_dataset_visualization_output_dir", None)
    assert len(elements) == 100 and len(recording.steps) == 10
    stats = recording.stats()
    assert stats is not None and stats.steps
    assert sum("after its first element" in one.getMessage() for one in caplog.records) == 1


def test_statistics_come_back_as_they_were(tmp_path: Path) -> None:
    with bushel.iterate(with_workers(positional(), 1), record=tmp_path / "a") as iterator:
        for _ in iterator:
            pass
    stats = read_recording(tmp_path / "a").stats()
    told = read_recording(tmp_path / "a").events("stats")[-1]["stats"]
    assert stats is not None
    assert {**stats.to_dict(), "why_slow": None} == {**told, "why_slow": None}
    for damage in ({}, {**told, "steps": [5]}, {**told, "elements": "x"}, [], None):
        lines = (tmp_path / "a").read_text().splitlines()
        event = json.dumps({"step": 1, "event": "stats", "stats": damage})
        (tmp_path / "b").write_text("\n".join([*lines, event]) + "\n")
        with pytest.raises(RecordError, match="statistics of a recording are damaged"):
            read_recording(tmp_path / "b").stats()


def test_elements_are_saved_without_pickles(tmp_path: Path) -> None:
    element = {"file": np.arange(3), "allow_pickle": "x", "a": [b"\0\1\0", 2.5, None]}
    names = save_element(tmp_path / "a.npz", element)
    assert names == ["file", "allow_pickle", "a.0", "a.1"]
    with np.load(tmp_path / "a.npz") as saved:
        assert saved["file"].tolist() == [0, 1, 2] and saved["allow_pickle"].item() == "x"
        assert saved["a.0"].tobytes() == b"\0\1\0"
    with pytest.raises(FileError, match="is there already"):
        save_element(tmp_path / "a.npz", element)
    with pytest.raises(FileError, match="cannot be saved as an array"):
        save_element(tmp_path / "b.npz", {"x": object()})
    assert not (tmp_path / "b.npz").exists()


def test_fewer_lines_where_they_would_take_much_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock by which each look takes a millisecond, whatever is done meanwhile.
    now = iter(range(1_000_000_000))
    monkeypatch.setattr(recorder.time, "perf_counter", lambda: next(now) / 1000)
    with bushel.iterate(MapDataset.range(5_000), stats=False, record=tmp_path / "a") as iterator:
        assert sum(1 for _ in iterator) == 5_000
    steps = [one["step"] for one in read_recording(tmp_path / "a").steps]
    assert steps[0] == 0
    assert all(step % 100 == 0 for step in steps)
    assert 3 < len(steps) < 20
    with bushel.iterate(
        MapDataset.range(5_000), stats=False, record=tmp_path / "b", every=100
    ) as iterator:
        assert sum(1 for _ in iterator) == 5_000
    assert len(read_recording(tmp_path / "b").steps) == 50  # As it was asked for.
