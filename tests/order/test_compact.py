"""Random access after a filter: against plain lists, one pass, kept in memory and on disk."""

import os
import pickle
import struct
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import MapDataset, RangeDataSource, ReadOptions
from bushel.core.per_process import ProcessLock
from bushel.dataset import map_node
from bushel.errors import FileError, PlanError
from bushel.experimental import FlatMapMapDataset
from bushel.run.compact import is_same_each_epoch
from tests.contract.events import events_of, is_error, run_events
from tests.contract.parts import Copies, is_not_third
from tests.contract.pipelines import Kit
from tests.patience import PATIENCE_SECONDS
from tests.property.profile import tried
from tests.streams.compare import assert_resumes
from tests.streams.test_parts import CountingSource
from tests.workers.streams import assert_same_events, with_workers

INLINE = ReadOptions(0, 0)


def is_odd(element: int) -> bool:
    return element % 2 == 1


def is_even(element: int) -> bool:
    return element % 2 == 0


def is_rare(element: int) -> bool:
    return element % 5 == 3


@tried
@given(st.lists(st.booleans(), max_size=30), st.integers(0, 90), st.integers(1, 4))
def test_elements_are_those_that_are_left(keeps: list[bool], position: int, size: int) -> None:
    ds = MapDataset.range(len(keeps)).filter(lambda x: keeps[x]).compact()
    expected = [x for x, keep in enumerate(keeps) if keep]
    assert len(ds) == len(expected)
    assert_resumes(ds.to_iter_dataset(INLINE), expected)
    if not expected:
        return
    assert ds[position] == expected[position % len(expected)]
    assert ds[-1] == expected[-1]
    batches = [batch.tolist() for batch in ds.batch(size)]
    assert batches == [expected[i : i + size] for i in range(0, len(expected), size)]
    assert sorted(ds.shuffle(seed=1)) == expected
    assert list(ds[1::2]) == expected[1::2]


def test_shuffled_before() -> None:
    ds = MapDataset.range(40).shuffle(seed=3)
    left = ds.filter(is_odd).compact()
    for epoch in (0, 1, 7, 2, 5, 3, 1, -1):
        expected = [x for i in range(40) if is_odd(x := ds[epoch * 40 + i])]  # type: ignore[arg-type]
        assert [left[epoch * 20 + i] for i in range(20)] == expected
    both = left.__getitems__([25, 3, 45, 24])  # type: ignore[attr-defined]
    assert both == [left[25], left[3], left[45], left[24]]


def test_one_pass() -> None:
    source = CountingSource(50)
    ds = MapDataset.source(source).filter(is_odd).compact()
    batched = ds.shuffle(seed=1).batch(4)
    repr(ds), repr(batched)
    assert source.read == []
    assert len(batched) == 7
    assert sorted(source.read) == list(range(50))
    source.read.clear()
    assert sorted(np.concatenate(list(batched.repeat(3)))) == sorted([*range(1, 50, 2)] * 3)
    assert sorted(source.read) == sorted([*range(1, 50, 2)] * 3)


def test_threads_that_ask_at_once_share_a_pass() -> None:
    seen: list[int] = []
    asked = threading.Event()

    def keep(element: int) -> bool:
        seen.append(element)
        assert asked.wait(PATIENCE_SECONDS)
        return is_odd(element)

    ds = MapDataset.range(10).filter(keep).compact()
    lengths: list[int] = []
    threads = [threading.Thread(target=lambda: lengths.append(len(ds))) for _ in range(2)]
    for thread in threads:
        thread.start()
    # Until one of them waits for the other, or both are at the first element.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(map(_waits_for_lock, threads)) and seen.count(0) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    asked.set()
    for thread in threads:
        thread.join()
    assert lengths == [5, 5]
    assert sorted(seen) == list(range(10))


def _waits_for_lock(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is ProcessLock.__enter__.__code__


def test_what_was_found_travels() -> None:
    source = CountingSource(50)
    ds = MapDataset.source(source).filter(is_odd).compact()
    assert len(ds) == 25
    travelled = cloudpickle.loads(cloudpickle.dumps(ds))
    node = map_node(travelled)
    while node.inputs:
        (node,) = node.inputs
    node.source.read.clear()  # type: ignore[attr-defined]
    assert (len(travelled), travelled[3]) == (25, 7)
    assert node.source.read == [7]  # type: ignore[attr-defined]
    # What was not found yet is found there.
    fresh = MapDataset.range(9).filter(is_odd).compact()
    assert list(pickle.loads(cloudpickle.dumps(fresh))) == [1, 3, 5, 7]


def test_the_same_with_workers() -> None:
    ds = MapDataset.range(60).filter(is_odd).compact()
    stream = ds.shuffle(seed=2).repeat(2).batch(4).to_iter_dataset(INLINE)
    assert_same_events(run_events(with_workers(stream, 2)), run_events(stream))


def test_of_whatever_leaves_elements_out() -> None:
    flat = FlatMapMapDataset(MapDataset.source([{"id": i} for i in range(6)]), Copies()).compact()
    assert [(x["id"], x["copy"]) for x in flat] == [
        (1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (5, 0),
    ]  # fmt: skip
    mapped = MapDataset.range(6).map(lambda x: None if x % 2 else x).compact()
    assert list(mapped) == [0, 2, 4]
    twice = MapDataset.range(30).filter(is_odd).compact().filter(is_rare).compact()
    assert (list(twice), twice[5]) == ([3, 13, 23], 23)
    assert list(MapDataset.range(5).compact()) == [0, 1, 2, 3, 4]


def test_what_fails_is_there_and_fails_where_it_is_read() -> None:
    ds = Kit(broken=(3, 4)).source(10).filter(is_not_third).compact()
    assert len(ds) == 7
    ids: list[Any] = []
    with iter(ds) as iterator:
        for what, _ in events_of(iterator):
            ids.append(what[2][0][1][3] if what[0] == "element" else what[2])
    assert ids == [1, 2, "record 3", "record 4", 5, 7, 8]


def test_epochs_of_different_length() -> None:
    ds = MapDataset.range(40).random_map(lambda x, rng: x * rng.integers(2), seed=1)
    left = ds.filter(lambda x: bool(x > 0)).compact()
    assert len(list(left)) == len(left)
    with pytest.raises(PlanError, match=r"in epoch 1, and \d+ in the first.*after `compact\(\)`"):
        left[len(left)]
    stream = left.repeat(2).to_iter_dataset(INLINE)
    expected = run_events(stream)
    assert [is_error(event) for event in expected] == [False] * len(left) + [True] * len(left)
    assert_same_events(run_events(with_workers(stream, 1)), expected)


def test_a_filter_that_changes_its_mind() -> None:
    kept = {1, 2, 3}
    ds = MapDataset.range(5).filter(lambda x: x in kept).compact()
    assert len(ds) == 3
    kept.remove(2)
    assert ds[0] == 1
    with pytest.raises(PlanError, match="but now there is none") as raised:
        ds[1]
    assert raised.value.__notes__ == ["bushel: raised in `compact()` at position 1."]
    with pytest.raises(PlanError, match="but now there is none"):
        ds.batch(3)[0]


@pytest.mark.parametrize(
    ("build", "same"),
    [
        (lambda ds: ds.map(str).filter(len), True),
        (lambda ds: ds[2:].repeat(2).batch(3), True),
        (lambda ds: MapDataset.concatenate([ds, ds.map(str)]), True),
        (lambda ds: ds.filter(len).compact().map(str), True),
        (lambda ds: ds.shuffle(seed=1), False),
        (lambda ds: ds.random_map(lambda x, rng: x, seed=1), False),
        (lambda ds: ds.map_with_index(lambda i, x: i), False),
        (lambda ds: ds.enumerate(), False),
        (lambda ds: MapDataset.mix([ds, ds[3:]], [1, 2]), False),
    ],
)
def test_which_pipelines_are_the_same_each_epoch(build: Any, same: bool) -> None:
    assert is_same_each_epoch(map_node(build(MapDataset.range(12)))) is same


def test_arguments() -> None:
    with pytest.raises(PlanError, match=r"is infinite. Call `compact\(\)` before `repeat\(\)`"):
        MapDataset.range(9).filter(is_odd).repeat().compact()
    with pytest.raises(PlanError, match="must be a file on this machine, not 'gs://a/b'"):
        MapDataset.range(9).compact(cache="gs://a/b")
    with pytest.raises(TypeError, match="int"):
        MapDataset.range(9).compact(cache=3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"`batch\(2\)` cannot follow `filter.*or `.compact\(\)`"):
        MapDataset.range(9).filter(is_odd).batch(2)
    assert repr(MapDataset.range(9).filter(is_odd).compact().batch(2)).endswith(
        "filter(is_odd) -> compact() -> batch(2))"
    )


def _reads(path: Path, size: int, function: Any) -> tuple[list[Any], int]:
    """The elements, and how many records were read to find which they are."""
    source = CountingSource(size)
    ds = MapDataset.source(source).filter(function).compact(cache=path)
    length = len(ds)
    read = len(source.read)
    return [ds[i] for i in range(length)], read


def test_cache(tmp_path: Path) -> None:
    path = tmp_path / "inner" / "kept"
    assert _reads(path, 20, is_odd) == ([*range(1, 20, 2)], 20)
    assert _reads(path, 20, is_odd) == ([*range(1, 20, 2)], 0)
    # Another function, another length.
    assert _reads(path, 20, is_even) == ([*range(0, 20, 2)], 20)
    assert _reads(path, 22, is_even) == ([*range(0, 22, 2)], 22)
    assert _reads(path, 22, lambda x: x > 3) == ([*range(4, 22)], 22)
    assert _reads(path, 22, lambda x: x > 4) == ([*range(5, 22)], 22)
    assert _reads(path, 22, lambda x: x > 4) == ([*range(5, 22)], 0)
    assert os.listdir(path.parent) == ["kept"]


def test_a_cache_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    expected = [*range(1, 20, 2)]
    assert _reads(path, 20, is_odd) == (expected, 20)
    whole = path.read_bytes()
    damages = [whole[:-8], whole[:-3], whole[:12], whole + bytes(8), whole[:8] + b"\xff" * 8]
    damages += [whole[:-8] + np.int64(18).tobytes(), whole[:-20] + b"\xff" * 8 + whole[-12:]]
    # Another position where there might be an element, and a footer that is none.
    damages += [whole[: 8 + 72] + np.int64(18).tobytes() + whole[8 + 80 :]]
    damages += [whole[:100] + b"?" + whole[101:], b"BUSHELKP" + whole[8:]]
    deep = b"[" * 200_000
    tail = struct.pack("<QL8s", len(deep), zlib.crc32(deep), b"BUSHELCE")
    damages += [whole[:8] + deep + tail]
    for damaged in damages:
        path.write_bytes(damaged)
        assert _reads(path, 20, is_odd) == (expected, 20)
        assert path.read_bytes() == whole


def test_a_cache_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary")
    with pytest.raises(FileError, match="is no file that `compact` made"):
        _reads(path, 20, is_odd)
    assert path.read_text() == "dear diary"
    with pytest.raises(FileError, match="cannot be"):
        _reads(path / "inner", 20, is_odd)


def test_a_cache_of_other_files_is_made_anew(tmp_path: Path) -> None:
    for start in (0, 1, 1, 0):
        source = RangeDataSource(start, start + 20, 1)
        ds = MapDataset.source(source).filter(is_rare).compact(cache=tmp_path / "kept")
        assert list(ds) == [x for x in range(start, start + 20) if is_rare(x)]


def test_a_cache_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    assert _reads(Path("/proc/bushel/kept"), 20, is_odd) == ([*range(1, 20, 2)], 20)
    assert "'/proc/bushel/kept' cannot be written" in caplog.text


def test_what_failed_is_not_cached(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    ds = Kit(broken=(3,)).source(10).filter(is_not_third).compact(cache=path)
    assert len(ds) == 7
    assert not path.exists()
