"""Parts of random-access datasets: against plain Python, by position and through epochs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import MapDataset
from bushel.errors import BatchError, PlanError
from tests.property.profile import tried
from tests.streams.compare import assert_resumes
from tests.streams.test_parts import windows_of

lengths = st.integers(1, 25)
sizes = st.integers(1, 7)


@tried
@given(lengths, sizes, sizes, st.booleans(), st.integers(0, 80))
def test_windows(length: int, size: int, stride: int, drop: bool, position: int) -> None:
    ds = MapDataset.range(length)
    expected = windows_of(range(length), size, stride, drop)
    if not expected:
        with pytest.raises(PlanError, match=f"of a dataset of {length} elements"):
            ds.windows(size, stride, drop_remainder=drop)
        return
    made = ds.windows(size, stride, drop_remainder=drop)
    assert len(made) == len(expected)
    assert [window.tolist() for window in made] == [window.tolist() for window in expected]
    assert made[position].tolist() == expected[position % len(expected)].tolist()
    assert made[-1].tolist() == expected[-1].tolist()


def test_windows_of_epochs() -> None:
    ds: Any = MapDataset.range(7).shuffle(seed=3)
    first, second = ([ds[epoch * 7 + i] for i in range(7)] for epoch in range(2))
    made = [window.tolist() for window in ds.windows(3, 2).repeat(2)]
    assert made == [row.tolist() for row in windows_of(first, 3, 2, True)] + [
        row.tolist() for row in windows_of(second, 3, 2, True)
    ]


def test_windows_of_an_infinite_dataset() -> None:
    ds = MapDataset.range(5).repeat().windows(4, 3)
    assert ds[10**9].tolist() == [(3 * 10**9 + i) % 5 for i in range(4)]


def test_windows_of_columns_are_columns() -> None:
    tree = {"x": np.arange(10), "y": np.arange(20).reshape(10, 2)}
    window = MapDataset.source(tree).windows(4, 2)[1]
    assert window["x"].tolist() == [2, 3, 4, 5]
    assert window["y"].tolist() == [[4, 5], [6, 7], [8, 9], [10, 11]]


def test_windows_need_elements_that_are_there() -> None:
    ds = MapDataset.range(9).filter(lambda x: x % 2 > 0)
    with pytest.raises(PlanError, match=r"`windows\(3\)` cannot follow `filter.*`.compact\(\)`"):
        ds.windows(3)
    assert [window.tolist() for window in ds.compact().windows(3)] == [[1, 3, 5], [3, 5, 7]]


@tried
@given(st.integers(0, 12), st.integers(0, 15), st.integers(0, 40))
def test_take_and_skip(length: int, count: int, position: int) -> None:
    ds = MapDataset.range(length)
    elements = list(range(length))
    assert list(ds.take(count)) == elements[:count]
    assert list(ds.skip(count)) == elements[count:]
    for made, expected in ((ds.take(count), elements[:count]), (ds.skip(count), elements[count:])):
        assert len(made) == len(expected)
        if expected:
            assert made[position] == expected[position % len(expected)]


def test_take_and_skip_go_on_through_epochs() -> None:
    ds = MapDataset.range(8).shuffle(seed=1)
    assert [ds.take(3)[3 + i] for i in range(3)] == [ds[8 + i] for i in range(3)]
    assert [ds.skip(5)[3 + i] for i in range(3)] == [ds[8 + 5 + i] for i in range(3)]
    assert list(MapDataset.range(3).repeat().take(7)) == [0, 1, 2, 0, 1, 2, 0]
    assert MapDataset.range(3).repeat().skip(4)[0] == 1


def test_enumerate() -> None:
    ds = MapDataset.range(10, 14)
    assert list(ds.enumerate(2)) == [(2, 10), (3, 11), (4, 12), (5, 13)]
    assert ds.enumerate()[5] == (5, 11)
    dropped = ds.filter(lambda x: x % 2 > 0).enumerate()
    assert dropped[0] is None
    assert list(dropped) == [(1, 11), (3, 13)]
    assert list(ds.to_iter_dataset().enumerate()) == list(ds.enumerate())


@tried
@given(st.integers(1, 20), sizes, st.booleans(), st.integers(0, 60))
def test_unbatch(length: int, size: int, drop: bool, position: int) -> None:
    expected = list(range(length))[: length // size * size if drop else None]
    made = MapDataset.range(length).batch(size, drop_remainder=drop).map(lambda x: x + 1).unbatch()
    assert len(made) == len(expected)
    assert [int(x) - 1 for x in made] == expected
    if expected:
        assert int(made[position]) - 1 == expected[position % len(expected)]
    again = [batch.tolist() for batch in made.batch(3)]
    assert again == [[x + 1 for x in expected[i : i + 3]] for i in range(0, len(expected), 3)]
    assert_resumes(made.to_iter_dataset(), [np.int64(x + 1) for x in expected])


def test_unbatch_of_shuffled_batches() -> None:
    batches = MapDataset.range(12).batch(4).shuffle(seed=1)
    made = batches.unbatch()
    assert [int(x) for x in made] == [int(x) for batch in batches for x in batch]
    assert sorted(int(made[12 + i]) for i in range(12)) == list(range(12))


def test_unbatch_makes_each_batch_once() -> None:
    made: list[int] = []

    def count(batch: Any) -> Any:
        made.append(int(batch[0]))
        return batch

    ds = MapDataset.range(3000).batch(1000).map(count).unbatch()
    assert [int(x) for x in ds] == list(range(3000))
    assert sorted(set(made)) == [0, 1000, 2000]
    assert len(made) <= 12  # Threads may share a batch between them.


def test_unbatch_needs_a_known_size() -> None:
    ds = MapDataset.source([np.arange(3), np.arange(3), np.arange(2)])
    with pytest.raises(PlanError, match=r"needs batches of one known size.*`source\(list\)`"):
        ds.unbatch()
    with pytest.raises(PlanError, match="the last one is shorter and may be anywhere"):
        MapDataset.range(7).batch(2).shuffle(seed=1).unbatch()
    with pytest.raises(PlanError, match="batch_size must be positive, and is 0"):
        ds.unbatch(0)
    assert [int(x) for x in ds[:2].unbatch(3)] == [0, 1, 2, 0, 1, 2]
    with pytest.raises(BatchError, match="expects 3 rows in the batch at position 2, and it has 2"):
        ds.unbatch(3)[7]
    assert [int(x) for x in ds.to_iter_dataset().unbatch()] == [0, 1, 2, 0, 1, 2, 0, 1]


def test_unbatch_of_dropped_batches() -> None:
    made = MapDataset.range(6).batch(2).filter(lambda batch: batch[0] != 2).unbatch()
    assert [int(x) for x in made] == [0, 1, 4, 5]
    assert made[2] is None
    with pytest.raises(PlanError, match=r"`batch\(2\)` cannot follow `unbatch\(\)`"):
        made.batch(2)
    assert [batch.tolist() for batch in made.compact().batch(3)] == [[0, 1, 4], [5]]
