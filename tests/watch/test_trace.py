"""Traces: whole JSON whose spans follow each other and are nested, wherever the steps run."""

import gc
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset, MultiprocessingOptions, ReadOptions
from bushel.errors import ClosedError, FileError, PlanError
from bushel.watch.trace import LOOP, WAIT

Event = dict[str, Any]
HOURS = 10_000.0


def slow(number: int) -> int:
    time.sleep(0.001)  # So that threads are worth it.
    return number


def pipeline(where: str, elements: int = 400) -> Any:
    dataset = MapDataset.range(elements).shuffle(seed=1).map(slow).batch(4)
    if where == "here":
        return dataset.to_iter_dataset(ReadOptions(0, 0))
    if where == "threads":
        return dataset.to_iter_dataset(ReadOptions(4, 64))
    stream = dataset.to_iter_dataset()
    return stream.mp_prefetch(MultiprocessingOptions(num_workers=2))


# The trace event format: for each phase, the keys that an event must have, and those that it may.
# (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU)
KEYS: dict[str, tuple[set[str], set[str]]] = {
    "X": ({"name", "ph", "ts", "dur", "pid", "tid"}, {"cat", "tdur", "tts", "args"}),
    "C": ({"name", "ph", "ts", "pid", "args"}, {"cat", "tid", "id"}),
    "M": ({"name", "ph", "pid", "args"}, {"tid", "cat", "ts"}),
}
NAMES = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}


def check_format(values: Any) -> None:
    """Holds a trace to the format as it is written down, which is stricter than its readers."""
    assert values.keys() <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert values["displayTimeUnit"] in ("ms", "ns")
    for event in values["traceEvents"]:
        must, may = KEYS[event["ph"]]
        assert must <= event.keys() <= must | may, event
        for key in ("pid", "tid"):
            assert 0 <= event.get(key, 0) < 1 << 31 and isinstance(event.get(key, 0), int)
        for key in ("ts", "dur"):
            assert 0 <= event.get(key, 0) < 1e15 and not isinstance(event.get(key, 0), bool)
        assert isinstance(event["name"], str) and event["name"]
        args = event.get("args", {})
        assert isinstance(args, dict)
        if event["ph"] == "C":
            assert args and all(isinstance(value, (int, float)) for value in args.values())
        if event["ph"] == "M":
            assert event["name"] in NAMES and isinstance(args["name"], str)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def read(path: Path) -> list[Event]:
    """The events of a file, checked: in order, and on each thread one in the other or after it."""
    values = json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse)
    check_format(values)
    events: list[Event] = values["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    assert times[0] >= 0
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for span in spans:
        tracks[span["pid"], span["tid"]].append(span)
    for track in tracks.values():
        open_until: list[float] = []
        for span in track:
            # (Microseconds with a fraction are rounded.)
            while open_until and open_until[-1] <= span["ts"] + 0.002:
                open_until.pop()
            ends = span["ts"] + span["dur"]
            assert span["dur"] >= 0
            assert not open_until or ends <= open_until[-1] + 0.002, span
            open_until.append(ends)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert named == set(tracks)
    return events


def names(events: list[Event], ours: bool = True) -> set[str]:
    return {
        event["name"]
        for event in events
        if event["ph"] == "X" and (event["pid"] == os.getpid()) == ours
    }


def test_steps_in_this_thread_lie_in_the_waits(tmp_path: Path) -> None:
    with bushel.iterate(pipeline("here")) as iterator:
        iterator.trace(HOURS, tmp_path / "trace.json")
        assert len(list(iterator)) == 100
        # All elements are there, so it need not be closed.
        events = read(tmp_path / "trace.json")
    assert names(events) >= {WAIT, LOOP, "batch(4)", "map(slow)", "range(0, 400, 1)"}
    maps = [event for event in events if event["name"] == "map(slow)"]
    assert sum(event["args"]["records"] for event in maps) == 400
    assert len({(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}) == 1
    assert any(event["ph"] == "C" for event in events)


def test_threads_have_tracks_of_their_own(tmp_path: Path) -> None:
    with bushel.iterate(pipeline("threads", 2_000)) as iterator:
        for _ in range(100):
            next(iterator)  # Threads are tried meanwhile.
        iterator.trace(HOURS, tmp_path / "trace.json")
        for _ in range(300):
            next(iterator)
    events = read(tmp_path / "trace.json")
    threads = {event["tid"] for event in events if event["name"] == "map(slow)"}
    assert threads
    assert len({event["pid"] for event in events}) == 1


def test_workers_have_tracks_of_their_own(tmp_path: Path) -> None:
    with bushel.iterate(pipeline("workers")) as iterator:
        next(iterator)
        iterator.trace(HOURS, tmp_path / "trace.json")
        assert len(list(iterator)) == 99
    events = read(tmp_path / "trace.json")
    assert names(events) >= {WAIT, "(waiting for workers)"}
    assert names(events, ours=False) >= {"task", "map(slow)", "batch(4)"}
    told = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert told <= {"training", "worker 0", "worker 1"}


def test_it_ends_with_its_time_and_the_next_may_begin(tmp_path: Path) -> None:
    with bushel.iterate(pipeline("here")) as iterator:
        kind = type(iterator)
        iterator.trace(1e-9, tmp_path / "first.json")
        next(iterator)
        assert (tmp_path / "first.json").exists()
        assert type(iterator) is kind
        iterator.trace(HOURS, tmp_path / "second.json")
        with pytest.raises(PlanError, match="one trace at a time"):
            iterator.trace(HOURS, tmp_path / "third.json")
    assert json.loads((tmp_path / "second.json").read_text())["traceEvents"]


def test_an_iterator_that_goes_away_leaves_its_trace(tmp_path: Path) -> None:
    iterator = bushel.iterate(pipeline("here"))
    iterator.trace(HOURS, tmp_path / "gone.json")
    next(iterator)
    del iterator
    gc.collect()
    assert WAIT in names(read(tmp_path / "gone.json"))


PROGRAM = """
import sys, bushel
iterator = bushel.iterate(bushel.MapDataset.range(100).batch(2))
iterator.trace(1000, sys.argv[1])
next(iterator)
sys.exit(3)
"""


def test_a_program_that_exits_leaves_its_trace(tmp_path: Path) -> None:
    path = tmp_path / "exit.json"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=False)
    assert done.returncode == 3
    assert names(read(path), ours=False) >= {WAIT}


def test_elements_and_states_are_the_same(tmp_path: Path) -> None:
    dataset = MapDataset.range(500).shuffle(seed=3).batch(5)
    plain = iter(dataset.to_iter_dataset())
    with bushel.iterate(dataset, record=tmp_path / "run.bushel") as iterator:
        for number, expected in enumerate(plain):
            if number == 30:
                iterator.trace(HOURS, tmp_path / "trace.json")
            assert next(iterator).tolist() == expected.tolist()
            assert iterator.get_state() == plain.get_state()
    events = read(tmp_path / "trace.json")
    assert WAIT in names(events)


def test_mistakes(tmp_path: Path) -> None:
    with bushel.iterate(pipeline("here")) as iterator:
        for seconds in (0, -1.0, float("nan"), True, "10"):
            with pytest.raises(PlanError, match="how long to trace"):
                iterator.trace(seconds, tmp_path / "a.json")
        with pytest.raises(FileError, match="no folder"):
            iterator.trace(1, tmp_path / "nowhere" / "a.json")
        for nowhere in ("/proc/x", f"{tmp_path}/{'x' * 300}"):
            with pytest.raises(FileError, match="cannot be written to"):
                iterator.trace(1, nowhere)
        with pytest.raises(FileError, match="is a folder"):
            iterator.trace(1, tmp_path)
    with pytest.raises(ClosedError):
        iterator.trace(1, tmp_path / "a.json")
    with iter(pipeline("here")) as plain, pytest.raises(PlanError, match=r"bushel\.iterate"):
        plain.trace(1, tmp_path / "a.json")


def test_loaders_are_traced_too(tmp_path: Path) -> None:
    source = bushel.RangeDataSource(0, 8, 1)
    sampler = bushel.SequentialSampler(8, bushel.NoSharding())
    with bushel.iterate(bushel.DataLoader(data_source=source, sampler=sampler)) as iterator:
        iterator.trace(HOURS, tmp_path / "trace.json")
        assert len(list(iterator)) == 8
    assert WAIT in names(read(tmp_path / "trace.json"))
