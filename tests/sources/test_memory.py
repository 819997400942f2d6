"""Sources in memory: rows, many rows at a time, and columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset
from bushel.core.block import Columns
from bushel.run.inline import compile_node
from bushel.sources import RangeDataSource
from bushel.sources.memory import ColumnsNode, RangeNode, source_node
from bushel.sources.read_records import SequenceNode


class Counting:
    """Counts how it is asked."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __len__(self) -> int:
        return 100

    def __getitem__(self, key: int) -> int:
        raise AssertionError("asked one by one")

    def __getitems__(self, keys: Sequence[int]) -> list[int]:
        assert all(type(key) is int for key in keys)
        self.calls.append(list(keys))
        return [10 * key for key in keys]


def test_many_records_are_read_in_one_call() -> None:
    source = Counting()
    evaluator = compile_node(source_node(source))
    block = evaluator.at(np.array([3, 1, 103]))
    assert block.rows() == [30, 10, 30]
    assert source.calls == [[3, 1, 3]]
    source.calls.clear()
    assert MapDataset.source(source).shuffle(seed=1).batch(50)[0].shape == (50,)
    assert [len(call) for call in source.calls] == [50]


def test_many_records_that_fail_are_read_one_by_one() -> None:
    class Half(list[int]):
        def __getitems__(self, keys: Sequence[int]) -> list[int]:
            if len(keys) > 1:
                raise OSError("busy")
            return [self[key] for key in keys]

    # The trouble has passed when they are asked for again: nothing to tell.
    assert list(MapDataset.source(Half(range(9)))) == list(range(9))


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ([1, 2], SequenceNode),
        (range(5), RangeNode),
        (b"bytes", SequenceNode),
        (np.zeros(3), ColumnsNode),
        (np.zeros((3, 2), np.uint8), ColumnsNode),
        ({"a": np.zeros(3), "b": {"c": np.zeros(3)}}, ColumnsNode),
        ((np.zeros(3), np.ones(3)), ColumnsNode),
        (np.array(["a", "bc"]), SequenceNode),
        (np.array([{}, 1], dtype=object), SequenceNode),
        (np.zeros(3, dtype=">i4"), SequenceNode),
        ([np.zeros(3), np.zeros(4)], SequenceNode),
        (RangeDataSource(0, 9, 2), SequenceNode),
    ],
)
def test_how_a_source_is_read(source: Any, kind: type) -> None:
    assert type(source_node(source)) is kind
    ds = MapDataset.source(source)
    assert list(map(str, ds)) == [str(ds[place]) for place in range(len(ds))]


def test_columns_stay_columns() -> None:
    ds = MapDataset.source({"a": np.arange(30), "b": np.arange(60).reshape(30, 2)})
    chain = ds.shuffle(seed=1)[::2].repeat(2)
    block = compile_node(chain._node).run(0, 20)  # type: ignore[attr-defined]
    assert isinstance(block.values, Columns)
    batch = chain.batch(4)[0]
    assert batch["b"].tolist() == [[2 * a, 2 * a + 1] for a in batch["a"].tolist()]


def test_memory_maps_are_read_as_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(20).reshape(10, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    ds = MapDataset.source(mapped).shuffle(seed=1)
    batch = ds.batch(4)[0]
    assert type(batch) is np.ndarray
    assert type(ds[0]) is np.ndarray
    assert sorted(row[0] for row in ds) == list(range(0, 20, 2))


@pytest.mark.parametrize(
    "column",
    [np.array(["a", "bcd", "ef", "g"]), np.array([1, 2, 3.5, 4], dtype=object)],
    ids=["strings", "objects"],
)
def test_strings_and_objects_do_not_depend_on_their_neighbours(column: Any) -> None:
    table = {"text": column, "n": np.arange(4)}
    other = {"text": np.array(["longer than all"] * 4), "n": np.arange(4)}
    both = MapDataset.concatenate([MapDataset.source(table), MapDataset.source(other)])
    batches = both.batch(2)
    alone = [batches[place] for place in range(4)]
    together = list(batches)
    for one, another in zip(alone, together, strict=True):
        assert one["text"].dtype == another["text"].dtype
        assert one["text"].tolist() == another["text"].tolist()


def test_elements_belong_to_the_user() -> None:
    images = np.arange(12).reshape(4, 3)
    ds = MapDataset.source({"image": images})
    for batch in ds.batch(2):
        batch["image"][:] = -1
    for element in ds:
        element["image"][:] = -1
    element = ds[0]
    assert element is not None
    element["image"][:] = -1
    assert images.tolist() == np.arange(12).reshape(4, 3).tolist()


def test_ranges() -> None:
    assert list(MapDataset.range(5)) == list(range(5))
    assert list(MapDataset.range(9, 2, -3)) == [9, 6, 3]
    assert all(type(number) is int for number in MapDataset.range(5))
    huge = MapDataset.range(2**70, 2**70 + 3)
    assert list(huge) == [2**70, 2**70 + 1, 2**70 + 2]


def test_an_empty_source_is_an_empty_stream() -> None:
    for ds in (MapDataset.source([]), MapDataset.range(0), MapDataset.source(np.zeros((0, 3)))):
        assert len(ds) == 0
        assert list(ds) == list(ds.shuffle(seed=1).batch(2)) == list(ds.repeat()) == []


@pytest.mark.parametrize(
    "scattered",
    [
        np.asfortranarray(np.arange(60.0).reshape(12, 5)),
        np.arange(120.0).reshape(12, 10)[:, ::2],
        np.frombuffer(bytearray(1 + 12 * 40), np.uint8)[1:].view(np.float64).reshape(12, 5),
    ],
    ids=["by columns", "every second", "unaligned"],
)
def test_columns_that_are_scattered_in_memory(scattered: Any) -> None:
    ds = MapDataset.source({"x": scattered}).shuffle(seed=1)
    plain = MapDataset.source({"x": np.ascontiguousarray(scattered)}).shuffle(seed=1)
    for batch, expected in zip(ds.batch(5), plain.batch(5), strict=True):
        assert type(batch["x"]) is np.ndarray and batch["x"].flags.c_contiguous
        np.testing.assert_array_equal(batch["x"], expected["x"])
    for row, expected in zip(ds, plain, strict=True):
        assert type(row["x"]) is np.ndarray
        np.testing.assert_array_equal(row["x"], expected["x"])
