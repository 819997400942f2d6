"""What becomes of records that cannot be read or made: `on_error`."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from bushel import (
    BatchOperation,
    DataLoader,
    IndexSampler,
    IterDataset,
    MapDataset,
    MultiprocessingOptions,
    NoSharding,
    OnError,
    ReadOptions,
    SequentialSampler,
    transforms,
)
from bushel.errors import BadRecordsError, FileError, FilterError, PlanError, StateError
from bushel.experimental import DatasetOptions, FlatMapMapDataset, WithOptionsIterDataset
from tests.bad_parts import Parse, Records, parse, with_index

WORKERS = pytest.mark.parametrize("workers", [0, 2])


GOOD = [number * 10 for number in range(40) if number % 7 != 3]
BAD = [number for number in range(40) if number % 7 == 3]


def spread(ds: IterDataset[Any], workers: int) -> IterDataset[Any]:
    return ds.mp_prefetch(MultiprocessingOptions(workers)) if workers else ds


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(iterator: Any) -> list[Any]:
    """Everything that comes, errors included."""
    happened: list[Any] = []
    while True:
        try:
            happened.append(next(iterator))
        except StopIteration:
            return happened
        except Exception as error:
            happened.append((type(error), str(error)))


@WORKERS
def test_quarantine_is_the_same_for_any_engine(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    ds = MapDataset.range(40).map(parse).on_error("skip", quarantine=path)
    assert list(spread(ds.to_iter_dataset(), workers)) == GOOD
    assert [line["key"] for line in lines(path)] == BAD
    assert lines(path)[1] == {
        "position": 10,
        "source": "range(0, 40, 1)",
        "key": 10,
        "operation": "map(parse)",
        "error": "ValueError",
        "reason": "bad 10",
    }


@WORKERS
def test_quarantine_of_a_stream(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    ds = MapDataset.range(40).shuffle(seed=1).to_iter_dataset().map(parse)
    found = list(spread(ds.on_error("skip", quarantine=path), workers))
    assert sorted(found) == GOOD
    assert sorted(line["key"] for line in lines(path)) == BAD
    assert {line["source"] for line in lines(path)} == {"range(0, 40, 1)"}


def test_a_record_that_comes_again_is_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    iterator = iter(MapDataset.range(40).map(parse).on_error("skip", quarantine=path))
    start = iterator.get_state()
    assert list(iterator) == GOOD
    iterator.set_state(start)
    assert list(iterator) == GOOD
    assert [line["key"] for line in lines(path)] == BAD


@WORKERS
@pytest.mark.parametrize("budget", [0, 4])
def test_budget_ends_at_the_same_record(workers: int, budget: int) -> None:
    for ds in (
        MapDataset.range(40).map(parse).on_error("skip", budget=budget).to_iter_dataset(),
        MapDataset.range(40).to_iter_dataset().map(parse).on_error("skip", budget=budget),
    ):
        expected: list[Any] = []
        count = 0
        for number in range(40):
            if number % 7 != 3:
                expected.append(number * 10)
            else:
                count += 1
                if count > budget:
                    expected.append(count)
        with iter(spread(ds, workers)) as iterator:
            happened = events(iterator)
        for index, event in enumerate(happened):
            if isinstance(event, tuple):
                assert event[0] is BadRecordsError
                happened[index] = int(event[1].split()[0])
        assert happened == expected


@WORKERS
def test_the_budget_goes_on_after_a_restore(workers: int) -> None:
    ds = MapDataset.range(40).map(parse).on_error("replace", replacement=-1, budget=4).batch(3)
    inline = iter(ds.to_iter_dataset())
    states = [inline.get_state()]
    expected = []
    for _ in range(14):
        try:
            expected.append(next(inline).tolist())
        except BadRecordsError as error:
            expected.append(str(error))
        states.append(inline.get_state())
    assert sum(isinstance(event, str) for event in expected) == 2
    with iter(spread(ds.to_iter_dataset(), workers)) as iterator:
        for done, state in enumerate(states):
            iterator.set_state(state)
            for event in expected[done : done + 4]:
                if isinstance(event, str):
                    with pytest.raises(BadRecordsError, match=r"5 bad|6 bad") as raised:
                        next(iterator)
                    assert str(raised.value) == event
                else:
                    assert next(iterator).tolist() == event


def test_only_the_errors_that_are_named() -> None:
    def fail(number: int) -> int:
        if number == 3:
            raise KeyError("three")
        return parse(number)

    ds = MapDataset.range(12).map(fail).on_error("skip", errors=(ValueError, TypeError))
    happened = events(iter(ds))
    assert happened == [0, 10, 20, (KeyError, "'three'"), 40, 50, 60, 70, 80, 90, 110]


def test_a_function_makes_the_replacement() -> None:
    ds = MapDataset.range(5).map(parse).on_error("replace", replacement=lambda error: str(error))
    assert list(ds) == [0, 10, 20, "bad 3", 40]


def test_a_function_that_fails_too_is_raised() -> None:
    def fail(error: Exception) -> int:
        raise RuntimeError("no way")

    for ds in (
        MapDataset.range(5).map(parse).on_error("replace", replacement=fail).to_iter_dataset(),
        MapDataset.range(5).to_iter_dataset().map(parse).on_error("replace", replacement=fail),
    ):
        assert events(iter(ds)) == [0, 10, 20, (RuntimeError, "no way"), 40]


def test_replacements_are_not_shared() -> None:
    ds: Any = MapDataset.range(12).map(parse).on_error("replace", replacement=[0])
    first, second = ds[3], ds[10]
    assert first == second == [0] and first is not second


def test_by_position() -> None:
    ds = MapDataset.range(40).map(parse).on_error("skip", budget=0)
    assert [ds[index] for index in (2, 3, 4)] == [20, None, 40]


def test_nearly_all_are_bad() -> None:
    def fail(number: int) -> int:
        if number % 500:
            raise ValueError(number)
        return number

    ds = MapDataset.range(3000).map(fail).on_error("skip")
    assert list(ds) == [0, 500, 1000, 1500, 2000, 2500]


@WORKERS
def test_file_record_and_offset(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    ds = MapDataset.source(Records()).on_error("skip", quarantine=path).to_iter_dataset()
    assert len(list(spread(ds, workers))) == 18
    assert [(line["file"], line["record"], line["offset"]) for line in lines(path)] == [
        ("data.bin", 4, 400),
        ("data.bin", 13, 1300),
    ]


def test_a_map_that_fails_on_a_record_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"

    class Good(Records):
        def __getitem__(self, key: int) -> int:
            return key

    list(MapDataset.source(Good()).map(parse).on_error("skip", quarantine=path))
    assert [(line["record"], line["operation"]) for line in lines(path)] == [
        (3, "map(parse)"),
        (10, "map(parse)"),
        (17, "map(parse)"),
    ]


def test_errors_of_a_source_name_file_and_record() -> None:
    with pytest.raises(OSError, match="damaged") as raised:
        MapDataset.source(Records())[4]
    assert "bushel: it is record 4 of 'data.bin', at byte 400." in raised.value.__notes__


@WORKERS
@pytest.mark.parametrize("batch", [transforms.Batch(4), BatchOperation(4)])
def test_loader(workers: int, batch: Any, tmp_path: Path) -> None:
    def loader(on_error: OnError) -> list[Any]:
        made = DataLoader(
            data_source=range(40),
            sampler=SequentialSampler(40, NoSharding()),
            operations=[Parse(), batch],
            worker_count=workers,
            on_error=on_error,
        )
        return [number for part in made for number in part.tolist()]

    path = tmp_path / "bad.jsonl"
    assert loader(OnError("skip", quarantine=path)) == GOOD
    assert [line["position"] for line in lines(path)] == BAD
    replaced = loader(OnError("replace", replacement=-1))
    assert [number for number in replaced if number >= 0] == GOOD
    assert [index for index, number in enumerate(replaced) if number < 0] == BAD
    with pytest.raises(BadRecordsError, match="6 bad records are more than the budget of 5"):
        loader(OnError("skip", budget=5))


@WORKERS
def test_states_of_a_loader(workers: int) -> None:
    def loader(count: int, on_error: OnError) -> Any:
        return DataLoader(
            data_source=range(40),
            sampler=IndexSampler(40, NoSharding(), shuffle=True, seed=2, num_epochs=1),
            operations=[Parse(), transforms.Batch(4)],
            worker_count=count,
            on_error=on_error,
        )

    skip = OnError("skip", budget=10)
    iterator = iter(loader(0, skip))
    states, batches = [iterator.get_state()], []
    for batch in iterator:
        batches.append(batch.tolist())
        states.append(iterator.get_state())
    other = iter(loader(workers, skip))
    for done in (0, 3, 7, len(batches)):
        other.set_state(states[done])
        assert [batch.tolist() for batch in other] == batches[done:]
    with pytest.raises(StateError, match="on_error"):
        iter(loader(workers, OnError("raise"))).set_state(states[2])
    other.close()


def test_bad_records_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bushel"):
        list(MapDataset.range(100).map(parse).on_error("skip"))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 5
    assert told[0] == (
        "passed over a bad record: record 3 of range(0, 100, 1), in `map(parse)`: ValueError: bad 3"
    )


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "bad.jsonl"
    ds = MapDataset.range(5).map(parse).on_error("skip", quarantine=path)
    with pytest.raises(FileError, match=r"quarantine file .* cannot be written: No such file"):
        list(ds)


def test_batch_behind_skip_is_refused_by_position() -> None:
    ds = MapDataset.range(5).map(parse).on_error("skip")
    with pytest.raises(PlanError, match=r"`batch\(2\)` cannot follow `on_error\('skip'\)`"):
        ds.batch(2)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("ignore",), {}, "'raise', 'skip' or 'replace', and not 'ignore'"),
        (("replace",), {}, "needs a replacement"),
        (("skip",), {"replacement": 0}, "only for on_error"),
        (("skip",), {"budget": -1}, "from 0 on, and not -1"),
    ],
)
def test_refusals(arguments: Any, options: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        MapDataset.range(5).on_error(*arguments, **options)


def test_refuses_what_is_no_exception() -> None:
    with pytest.raises(TypeError, match="classes of exceptions, and 'ValueError' is none"):
        MapDataset.range(5).on_error("skip", errors="ValueError")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`on_error` must be `OnError"):
        DataLoader(
            data_source=range(4),
            sampler=SequentialSampler(4, NoSharding()),
            on_error="skip",  # type: ignore[arg-type]
        )


def test_raise_changes_nothing() -> None:
    ds = MapDataset.range(5).map(parse)
    assert ds.on_error("raise") is ds


def test_a_state_of_other_guards_is_refused() -> None:
    iterator = iter(MapDataset.range(5).map(parse).on_error("skip"))
    state = iterator.get_state()
    for bad in ([1, 2], [-1], "1", [True]):
        with pytest.raises(StateError, match="counts bad records as"):
            iterator.set_state({**state, "bad": bad})


@pytest.mark.parametrize("drops_nothing", [False, True])
@pytest.mark.parametrize(
    "build",
    [
        lambda ds: ds.batch(3).on_error("skip"),
        lambda ds: ds.batch(3).on_error("replace", replacement=-1),
        lambda ds: ds.map_with_index(with_index).on_error("skip"),
        lambda ds: ds.map_with_index(with_index).on_error("replace", replacement=(0, 0)).batch(2),
    ],
)
def test_what_fails_before_a_count_is_not_counted_by_workers(
    build: Any, drops_nothing: bool
) -> None:
    """A guard after a batch or a count sees less come than there are positions."""
    ds = MapDataset.range(100).to_iter_dataset(ReadOptions(0, 0), allow_nones=drops_nothing)
    expected = [repr(element) for element in build(ds.map(parse))]
    assert [repr(element) for element in spread(build(ds.map(parse)), 2)] == expected


class Thrice(transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: int) -> list[int]:
        return [element] * 3


@pytest.mark.parametrize("order", [lambda ds: ds, lambda ds: ds.shuffle(seed=3)])
def test_a_record_that_fills_several_places_is_counted_at_the_first(order: Any) -> None:
    guarded = MapDataset.range(20).map(parse).on_error("replace", replacement=-1)
    ds = order(FlatMapMapDataset(guarded, Thrice()))

    def counted(iterator: Any) -> list[Any]:
        return [(element, iterator.get_state()["bad"]) for element in iterator]

    inline = iter(ds.to_iter_dataset(ReadOptions(0, 0)))
    expected = counted(inline)
    assert expected[-1][1] == [3]
    for done in range(7, 60, 7):
        inline.set_state({**inline.get_state(), "next_index": done, "bad": expected[done - 1][1]})
        assert counted(inline) == expected[done:]
    with iter(ds.to_iter_dataset(ReadOptions(4, 8))) as threaded:
        threaded.start_prefetch()
        assert counted(threaded) == expected
    with iter(spread(ds.to_iter_dataset(), 1)) as spread_out:
        assert counted(spread_out) == expected


@WORKERS
def test_a_budget_that_is_used_up_is_no_bad_record(workers: int) -> None:
    """Nor is a filter that leaves nearly nothing: a guard after them passes over neither."""
    ds = MapDataset.range(40).map(parse).on_error("skip", budget=2).to_iter_dataset()
    with pytest.raises(BadRecordsError, match="3 bad records are more than the budget of 2"):
        list(spread(ds.on_error("skip"), workers))
    by_position = MapDataset.range(40).map(parse).on_error("skip", budget=2).on_error("skip")
    with pytest.raises(BadRecordsError, match="more than the budget of 2"):
        list(spread(by_position.to_iter_dataset(), workers))
    options = DatasetOptions(filter_raise_threshold_ratio=0.9)
    nothing = MapDataset.range(3000).to_iter_dataset().filter(lambda number: number < 3)
    with pytest.raises(FilterError):
        list(spread(WithOptionsIterDataset(nothing.on_error("skip"), options), workers))


@pytest.mark.parametrize(
    "behind",
    [
        lambda ds: ds,
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ds.batch(7),
        lambda ds: ds.shuffle(seed=1).batch(7).map(lambda batch: batch[::-1]),
        lambda ds: ds.shuffle(seed=2).on_error("replace", replacement=0),
    ],
)
def test_functions_are_not_called_again_to_find_out_who_failed(behind: Any) -> None:
    calls: list[int] = []

    def counting(number: int) -> int:
        calls.append(number)
        return parse(number)

    ds = behind(MapDataset.range(700).map(counting).on_error("replace", replacement=-1))
    iterator = iter(ds.to_iter_dataset(ReadOptions(0, 0)))
    list(iterator)
    assert sum(iterator.get_state()["bad"]) == 100
    assert sorted(calls) == list(range(700))


def test_one_guard_behind_another_does_not_count_twice() -> None:
    """What comes after an element that fails is made again, with its bad records."""

    def fail(number: int) -> int:
        if number == 20:
            raise ValueError("twenty")
        return number

    ds = MapDataset.range(8).map(parse).on_error("replace", replacement=-1)
    ds = ds.map(fail).on_error("replace", replacement=-2)
    for whole in (ds.batch(8), MapDataset.mix([ds, ds], [1, 1]).batch(16)):
        iterator = iter(whole.to_iter_dataset())
        list(iterator)
        assert set(iterator.get_state()["bad"]) == {1}


def test_lines_do_not_depend_on_where_a_stream_was_stopped(tmp_path: Path) -> None:
    def build(path: Path) -> IterDataset[int]:
        parts = [MapDataset.range(20), MapDataset.range(20, 40)]
        mixed = IterDataset.mix([part.to_iter_dataset() for part in parts], [1, 1])
        return mixed.map(parse).on_error("skip", quarantine=path)

    at_once, stopped = tmp_path / "at once.jsonl", tmp_path / "stopped.jsonl"
    assert sorted(build(at_once)) == GOOD
    iterator = iter(build(stopped))
    for _ in range(len(GOOD)):
        next(iterator)
        iterator.set_state(iterator.get_state())
    assert list(iterator) == []
    assert lines(stopped) == lines(at_once)


@pytest.mark.parametrize(
    "join",
    [
        lambda first, second: first.concat(second),
        lambda first, second: IterDataset.mix([first.filter(lambda n: n > 5), second], [1, 1]),
    ],
)
def test_no_record_is_named_where_streams_are_joined(join: Any, tmp_path: Path) -> None:
    """A position of theirs is not the position of a record."""
    path = tmp_path / "bad.jsonl"
    first, second = (MapDataset.range(n, n + 20).to_iter_dataset() for n in (0, 20))
    list(join(first, second).map(parse).on_error("skip", quarantine=path))
    assert lines(path)
    assert not any({"key", "source"} & line.keys() for line in lines(path))


def test_a_file_that_was_taken_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    ds = MapDataset.range(40).map(parse).on_error("skip", quarantine=path)
    for _ in range(2):
        list(ds)
        assert [line["key"] for line in lines(path)] == BAD
        path.unlink()


class _Interrupted:
    def __len__(self) -> int:
        return 5

    def __getitem__(self, key: int) -> int:
        if key == 2:
            raise self.error
        return key

    def __init__(self, error: BaseException) -> None:
        self.error = error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_program_is_no_bad_record(error: BaseException) -> None:
    source = MapDataset.source(_Interrupted(error))
    for ds in (
        source.on_error("skip").to_iter_dataset(ReadOptions(0, 0)),
        source.to_iter_dataset(ReadOptions(0, 0)).on_error("skip"),
    ):
        with pytest.raises(type(error)):
            list(ds)
