"""Batches: stacked neighbours that own their memory."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, ReadOptions, transforms

Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize("size", [1, 3, 10, 11])
@pytest.mark.parametrize("drop", [False, True])
def test_sizes(size: int, drop: bool) -> None:
    expected = [list(range(start, min(start + size, 10))) for start in range(0, 10, size)]
    if drop:
        expected = [batch for batch in expected if len(batch) == size]
    ds = MapDataset.range(10)
    by_position = ds.batch(size, drop_remainder=drop)
    assert len(by_position) == len(expected)
    assert [batch.tolist() for batch in by_position] == expected
    streamed = ds.to_iter_dataset().batch(size, drop_remainder=drop)
    assert [batch.tolist() for batch in streamed] == expected
    applied = ds.apply(transforms.Batch(size, drop_remainder=drop))
    assert [batch.tolist() for batch in applied] == expected


def test_epochs_do_not_share_batches() -> None:
    batches = MapDataset.range(5).batch(2).repeat(2)
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4]] * 2
    across = MapDataset.range(5).repeat(2).batch(2)
    assert [batch.tolist() for batch in across] == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        (3, np.int64),
        (2.5, np.float64),
        (True, np.bool_),
        (np.float16(1), np.float16),
        (np.zeros((2, 2), np.uint8), np.uint8),
        (2**70, object),
        (b"ab", np.dtype("S2")),
    ],
)
def test_types(element: Any, dtype: Any) -> None:
    batch = MapDataset.source([element] * 4).batch(3)[0]
    assert batch.dtype == dtype
    assert batch.shape[0] == 3


def test_structures_stay() -> None:
    element = {"pair": Pair(1, [2.0, (3,)]), "none": None}
    batch = MapDataset.source([element] * 3).batch(2)[0]
    assert type(batch["pair"]) is Pair
    assert batch["none"] is None
    assert batch["pair"].right[1][0].tolist() == [3, 3]


def test_batch_fn_gets_a_list_of_elements() -> None:
    def check(elements: Any) -> Any:
        assert type(elements) is list
        return len(elements), type(elements[0])

    for source in ([0, 1, 2], np.arange(3)):
        kind = type(source[0])
        assert list(MapDataset.source(source).batch(2, batch_fn=check)) == [(2, kind), (1, kind)]
    assert list(MapDataset.range(3).batch(2, batch_fn=check)) == [(2, int), (1, int)]


@pytest.mark.parametrize("read", [ReadOptions(0, 0), ReadOptions(2, 8)], ids=["inline", "threads"])
def test_a_batch_shares_its_memory_with_nothing(read: ReadOptions) -> None:
    shared = np.ones(3)
    pipelines = [
        MapDataset.source({"x": np.arange(64.0)}).batch(4),
        MapDataset.source({"x": np.arange(64.0)}).map_batches(lambda columns: columns).batch(4),
        MapDataset.range(64).map(lambda number: {"x": shared}).batch(4),
        MapDataset.range(64).batch(4).map(lambda numbers: {"x": numbers}),
    ]
    for ds in pipelines:
        expected = [batch["x"].tolist() for batch in ds]
        with iter(ds.to_iter_dataset(read)) as iterator:
            iterator.start_prefetch()
            batches = list(iterator)
        for batch in batches:
            assert batch["x"].flags.writeable
            batch["x"][:] = -1
        assert all((batch["x"] == -1).all() for batch in batches)
        assert [batch["x"].tolist() for batch in ds] == expected
    assert shared.tolist() == [1, 1, 1]
