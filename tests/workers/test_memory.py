"""What workers read from is not copied for each of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset
from tests.nursery import one_nursery
from tests.workers import parts
from tests.workers.processes import linux, workers_of
from tests.workers.streams import make_loader, signed_events, with_workers

__all__ = ["one_nursery"]  # Who makes workers is not looked at here.

_MEGABYTE = 2**20


def _own_memory(pid: int) -> int:
    """Bytes that belong to a process alone, whatever it shares.

    Pages of shared memory that happen to be mapped by one process count as private in Linux,
    and as anonymous only if they are its own.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such line")


class Table:
    """A source of the user's own that holds an array."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: int) -> Any:
        return self._array[key] + 0

    def __repr__(self) -> str:
        return "Table()"


def _large() -> Any:
    array = np.empty((200, _MEGABYTE), np.uint8)
    array[:] = np.arange(200, dtype=np.uint8)[:, None]
    return array


SHAPES: dict[str, Any] = {
    "columns": lambda array: array,
    "a dict of columns": lambda array: {"x": array, "n": np.arange(len(array))},
    "within the user's own": Table,
}


@linux
@pytest.mark.parametrize("shape", SHAPES)
def test_a_large_source_is_there_once(shape: str) -> None:
    source = SHAPES[shape](_large())
    loader = make_loader(bushel.Batch(2), workers=2, source=source, count=200)
    sampler = bushel.IndexSampler(200, shuffle=True, num_epochs=1, seed=5)
    with iter(loader) as iterator:
        for step in range(0, 40, 2):
            batch = next(iterator)
            rows = batch["x"] if isinstance(batch, dict) else batch
            keys = [sampler[step].record_key, sampler[step + 1].record_key]
            assert rows[:, 0].tolist() == rows[:, -1].tolist() == keys
        pids = workers_of()
        assert len(pids) == 2
        for pid in pids:
            assert _own_memory(pid) < 100 * _MEGABYTE


@linux
def test_an_array_in_a_function_is_there_once() -> None:
    table = _large()
    ds = MapDataset.range(10**6).map(lambda number: int(table[number % 200, number % 1000]))
    with iter(with_workers(ds, 2)) as iterator:
        assert [next(iterator) for _ in range(400)] == [n % 200 for n in range(400)]
        pids = workers_of()
        assert len(pids) == 2
        for pid in pids:
            assert _own_memory(pid) < 100 * _MEGABYTE


@linux
@pytest.mark.parametrize("shape", SHAPES)
def test_a_memory_map_is_opened_by_name(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    with path.open("wb") as file:
        file.truncate(300 * _MEGABYTE)
    source: Any = np.memmap(path, np.uint8, "r+", shape=(300, _MEGABYTE))
    source[:, 0] = np.arange(300) % 251
    source.flush()
    loader = make_loader(bushel.Batch(2), workers=2, source=SHAPES[shape](source), count=300)
    with iter(loader) as iterator:
        for _ in range(20):
            batch = next(iterator)
            rows = batch["x"] if isinstance(batch, dict) else batch
            assert rows.shape == (2, _MEGABYTE)
            assert rows[:, 0].all() or rows[:, 0].tolist().count(0) == 1
        for pid in workers_of():
            assert str(path) in Path(f"/proc/{pid}/maps").read_text()
            assert _own_memory(pid) < 100 * _MEGABYTE


MAPS: dict[str, Any] = {
    "whole": lambda path: np.memmap(path, np.int32, "r", shape=(60, 50)),
    "from the middle": lambda path: np.memmap(path, np.int32, "r", offset=400, shape=(60, 40)),
    "a part": lambda path: np.memmap(path, np.int32, "r", shape=(100, 30))[7:67, 3:9],
    "every other": lambda path: np.memmap(path, np.int32, "r", shape=(200, 10))[100::-1][::1][:60],
    "transposed": lambda path: np.memmap(path, np.int32, "r", shape=(20, 60)).T,
    "another dtype": lambda path: np.memmap(path, np.int32, "r", shape=(60, 50)).view(np.uint16),
    "as an array": lambda path: np.asarray(np.memmap(path, np.int32, "r", shape=(60, 50))),
    "by np.load": lambda path: np.load(path.with_suffix(".npy"), mmap_mode="r"),
    "copy on write": lambda path: np.memmap(path, np.int32, "c", shape=(60, 50)),
}


@pytest.mark.parametrize("name", MAPS)
def test_memory_maps_of_every_kind(name: str, tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    values = np.random.default_rng(1).integers(2**31, size=3000, dtype=np.int32)
    values.tofile(path)
    np.save(path.with_suffix(".npy"), values.reshape(60, 50))
    source = MAPS[name](path)
    if name == "copy on write":
        source[3] = -1  # Changed here, and not in the file.
    for made in (source, Table(source)):
        streams = [
            signed_events(iter(make_loader(bushel.Batch(7), workers=count, source=made)))
            for count in (0, 1)
        ]
        assert streams[0] == streams[1]


def test_a_source_that_writes_to_its_own_arrays() -> None:
    """A cache, say. The workers' copies are their own, if only in this respect."""

    class Cached:
        def __init__(self) -> None:
            self.cache = np.full((60, 50_000), -1)

        def __len__(self) -> int:
            return 60

        def __getitem__(self, key: int) -> Any:
            if self.cache[key, 0] == -1:
                self.cache[key] = key
            self.cache[key] += 1
            return int(self.cache[key, 0]) >= key, key

        def __repr__(self) -> str:
            return "Cached()"

    for count in (0, 2):
        found = list(make_loader(workers=count, source=Cached()))
        assert sorted(found) == [(True, key) for key in range(60)]


def test_functions_that_write_to_arrays_of_their_own() -> None:
    scratch = np.zeros(500_000)

    def through_scratch(number: int) -> float:
        scratch[:] = number
        return float(scratch.sum())

    ds = MapDataset.range(40).map(through_scratch)
    assert list(with_workers(ds, 2)) == [500_000.0 * number for number in range(40)]
    assert not scratch.any()


def test_elements_that_are_parts_of_the_source_are_the_users() -> None:
    """Rows of a large array: whatever is done to them, the next epoch finds the source whole."""
    source = [np.full(30_000, key) for key in range(30)]
    ds = with_workers(MapDataset.source(source).map(parts.same), 1)
    for _ in range(3):
        for key, row in enumerate(ds):
            assert (row == key).all()
            row[:] = -1
