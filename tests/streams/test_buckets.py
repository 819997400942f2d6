"""Batches by tokens and by buckets: the elements of a plain model, from every state."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.batch.pad import Padding
from bushel.errors import BatchError, PlanError, StateError
from bushel.grain.packed import PaddingReport, padding_report
from tests.contract.events import events_of, pull_events, run_events
from tests.contract.test_schedules import walk
from tests.grain.oracle import Raised, assert_same, events
from tests.property.profile import tried
from tests.streams.compare import assert_resumes, through_json
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import assert_same_events, workers

__all__ = ["no_endless_wait", "no_process_left_behind"]


def _stream(sizes: Sequence[int]) -> IterDataset[Any]:
    elements = [{"x": np.arange(size), "at": at} for at, size in enumerate(sizes)]
    ds = MapDataset.range(len(sizes)).map(elements.__getitem__)
    return ds.to_iter_dataset(ReadOptions(0, 0))


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _batch(sizes: Sequence[int], rows: Sequence[int], width: int) -> Any:
    data = np.full((len(rows), width), -1)
    for row, at in zip(data, rows, strict=True):
        row[: sizes[at]] = np.arange(sizes[at])
    lengths = np.array([sizes[at] for at in rows], np.int32)
    return {"x": data, "at": np.array(rows), "n": lengths}


def _by_tokens(
    sizes: Sequence[int], budget: int, multiple: int, most: int | None, drop: bool
) -> list[Any]:
    """Which elements are in which batch."""
    batches: list[list[int]] = [[]]
    full = False
    for at in range(len(sizes)):
        rows = [*batches[-1], at]
        width = max(1, _up(max(sizes[row] for row in rows), multiple))
        if full or len(rows) * width > budget:
            batches.append([at])
        else:
            batches[-1] = rows
        full = len(batches[-1]) == most
    if drop and not full:
        batches.pop()
    return [
        _batch(sizes, rows, _up(max(sizes[row] for row in rows), multiple))
        for rows in batches
        if rows
    ]


sizes_of = st.lists(st.integers(0, 8), max_size=30)
seeds = st.integers(0, 2**32 - 1)


@tried
@given(sizes_of, st.integers(8, 40), st.integers(1, 4), st.integers(1, 9), st.booleans(), seeds)
def test_by_tokens(
    sizes: list[int], budget: int, multiple: int, most: int, drop: bool, seed: int
) -> None:
    budget = max(budget, _up(8, multiple))
    max_rows = most if most < 7 else None
    ds = _stream(sizes).batch_by_tokens(
        budget,
        length="x",
        pad_to_multiple_of=multiple,
        padding={"x": -1},
        max_rows=max_rows,
        drop_remainder=drop,
        lengths_as="n",
    )
    expected = _by_tokens(sizes, budget, multiple, max_rows, drop)
    assert_resumes(ds, expected)
    walk(ds, pull_events(ds, [1] * 2000), seed)


@tried
@given(sizes_of, st.integers(8, 40), st.integers(0, 30))
def test_padding_is_counted_exactly(sizes: list[int], budget: int, stop: int) -> None:
    ds = _stream(sizes).batch_by_tokens(budget, length="x", lengths_as="n").map(lambda batch: batch)
    with closing(iter(ds)) as iterator, closing(iter(ds)) as other:
        counts = [0, 0, 0, 0]
        assert padding_report(iterator) == PaddingReport(*counts)
        for number, batch in enumerate(iterator):
            rows, width = batch["x"].shape
            added = (1, rows, int(batch["n"].sum()), rows * max(1, width))
            counts = [old + new for old, new in zip(counts, added, strict=True)]
            assert padding_report(iterator) == PaddingReport(*counts)
            if number == stop:
                other.set_state(through_json(iterator.get_state()))
                assert padding_report(other) == PaddingReport(*counts)
        if len(list(ds)) > stop:
            list(other)
            assert padding_report(other.get_state()) == padding_report(iterator)
    assert 0 <= padding_report(iterator.get_state()).padding <= 1


def _by_buckets(
    sizes: Sequence[int], edges: list[int], counts: list[int], window: int, drop: bool
) -> list[tuple[int, list[int]]]:
    """The bucket and the elements of each batch."""
    batches = []
    for start in range(0, len(sizes), window):
        buckets: list[list[int]] = [[] for _ in counts]
        for at in range(start, min(start + window, len(sizes))):
            number = sum(edge < sizes[at] for edge in edges)
            buckets[number].append(at)
            if len(buckets[number]) == counts[number]:
                batches.append((number, buckets[number]))
                buckets[number] = []
        if not drop:
            batches += [(number, bucket) for number, bucket in enumerate(buckets) if bucket]
    return batches


@tried
@given(
    sizes_of,
    st.sets(st.integers(0, 8), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=5, max_size=5),
    st.integers(1, 20),
    st.booleans(),
    st.booleans(),
    seeds,
)
def test_by_buckets(
    sizes: list[int],
    boundaries: set[int],
    counts: list[int],
    window: int,
    drop: bool,
    to_boundary: bool,
    seed: int,
) -> None:
    edges = sorted(boundaries)
    counts = counts[: len(edges) + 1]
    ds = _stream(sizes).bucket_by_length(
        edges,
        counts,
        length=lambda element: len(element["x"]),
        padding={"x": -1},
        pad_to_boundary=to_boundary,
        window=window,
        drop_remainder=drop,
        lengths_as="n",
    )
    expected = []
    for number, rows in _by_buckets(sizes, edges, counts, window, drop):
        longest = max(sizes[row] for row in rows)
        bounded = to_boundary and number < len(edges)
        expected.append(_batch(sizes, rows, edges[number] if bounded else longest))
    assert_resumes(ds, expected)
    walk(ds, pull_events(ds, [1] * 2000), seed)


def test_there_are_no_more_shapes_than_boundaries() -> None:
    ds = _stream([1, 2, 5]).bucket_by_length([3, 6], 2, length="x", pad_to_boundary=True)
    assert [batch["x"].shape for batch in ds] == [(2, 3), (1, 6)]


def test_sequences_of_several_types_are_of_one_that_holds_all() -> None:
    rows = [{"x": np.array([1], np.int8)}, {"x": np.array([300, 7], np.int32)}]
    batch = Padding(-1, 1).batch(rows)["x"]
    assert batch.dtype == np.int32 and batch.tolist() == [[1, -1], [300, 7]]


def test_as_many_as_tokens_allow() -> None:
    ds = _stream([1, 4, 2, 2, 3, 1, 1]).bucket_by_length([2, 4], max_tokens=8, length="x")
    assert [batch["at"].tolist() for batch in ds] == [[1, 4], [0, 2, 3, 5], [6]]


def test_an_element_that_fits_nowhere_is_left_out() -> None:
    happened = events(iter(_stream([2, 9, 3]).batch_by_tokens(8, length="x", pad_to_multiple_of=4)))
    assert isinstance(happened[0], Raised) and isinstance(happened[0].error, BatchError)
    assert "an element of 9 tokens is more than a batch may have: max_tokens is 8, and it is " in (
        str(happened[0].error)
    )
    assert [batch["at"].tolist() for batch in happened[1:]] == [[0, 2]]
    happened = events(iter(_stream([2, 9, 3]).bucket_by_length([4], 2, length="x")))
    assert "an element of length 9 belongs to no bucket" in str(happened[0].error)
    assert [batch["at"].tolist() for batch in happened[1:]] == [[0, 2]]


def test_all_arrays_are_padded_unless_features_are_named() -> None:
    elements = [{"x": np.arange(n), "y": np.ones((n + 1, 2)), "z": n} for n in (1, 3)]
    (batch,) = MapDataset.source(elements).to_iter_dataset().batch_by_tokens(9, length="x")
    assert batch["x"].tolist() == [[0, 0, 0], [0, 1, 2]]
    assert batch["y"].shape == (2, 4, 2) and batch["y"][0, 2:].sum() == 0
    assert batch["z"].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("elements", "arguments", "message"),
    [
        ([{"x": np.ones(2)}], {}, r"write `length=` with one of \['x'\]"),
        ([{"x": np.ones(2)}], {"length": "y"}, "takes the length of feature 'y'"),
        ([3], {}, "needs something that has a length, and got int"),
        ([np.ones(2)], {"length": lambda x: -1}, "returned -1"),
        ([np.ones(2)], {"length": lambda x: 0.5}, "must return a whole number"),
        ([np.ones(2)], {"lengths_as": "n"}, "adds a feature to batches that are dicts"),
        ([np.ones((2, 2)), np.ones((2, 3))], {}, "must have one shape after it"),
        ([{"x": np.ones(2)}], {"length": "x", "padding": {"z": 0}}, "names the features"),
        ([{"x": np.ones(2)}], {"length": "x", "lengths_as": "x"}, "have a feature of that name"),
    ],
)
def test_elements_that_cannot_be(elements: Any, arguments: Any, message: str) -> None:
    ds = MapDataset.source(elements).to_iter_dataset().batch_by_tokens(9, **arguments)
    with pytest.raises(BatchError, match=message):
        list(ds)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "boundaries must be increasing numbers"),
        (([3, 3], 2), "boundaries must be increasing numbers"),
        (([3],), "takes either `batch_sizes` or `max_tokens`"),
        (([3], [1, 2, 3]), "with 1 boundaries there are 1 positive batch_sizes"),
        (([3], 0), "with 1 boundaries there are 1 positive batch_sizes"),
    ],
)
def test_buckets_that_cannot_be(arguments: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        _stream([]).bucket_by_length(*arguments)


@pytest.mark.parametrize("window", [0, -1])
def test_windows_of_buckets_that_cannot_be(window: int) -> None:
    with pytest.raises(PlanError, match=f"window must be .*{window}"):
        _stream([]).bucket_by_length([3], 2, window=window)


def test_budgets_that_cannot_be() -> None:
    with pytest.raises(PlanError, match="max_tokens=7 holds not even one element of 8"):
        _stream([]).bucket_by_length([2, 8], max_tokens=7)
    with pytest.raises(PlanError, match="max_tokens must be positive, and is 0"):
        _stream([]).batch_by_tokens(0)
    with pytest.raises(PlanError, match="pad_to_multiple_of must be a positive number"):
        _stream([]).batch_by_tokens(9, pad_to_multiple_of=0)
    with pytest.raises(TypeError, match="the name of a feature or a function"):
        _stream([]).batch_by_tokens(9, length=3)


def test_states_that_are_damaged() -> None:
    iterator = iter(_stream([1, 2]).batch_by_tokens(9, length="x"))
    state = iterator.get_state()
    for padding in (None, {}, {"batches": 3, "rows": 2, "tokens": 0, "cells": 0}):
        with pytest.raises(StateError):
            iterator.set_state({**state, "padding": padding})
    with pytest.raises(StateError, match="found no counts"):
        padding_report(iter(_stream([1])))


def _sized(number: int) -> Any:
    return {"x": np.arange(number * 7 % 6), "at": number}


def test_windows_of_which_nothing_is_left_do_not_show_in_states() -> None:
    # Windows of one element, of which only the long ones fill a bucket.
    ds = _stream([1, 1, 9, 1, 1, 9, 1, 9, 1, 1])
    buckets = ds.bucket_by_length([4, 9], [2, 1], length="x", window=1, drop_remainder=True)
    expected = pull_events(buckets, [1] * 20)
    assert len(expected) == 3
    for wants in ([9, 9], [2, 2, 2], [1, 9, 9]):
        assert pull_events(buckets, wants) == expected
    assert_resumes(buckets, list(buckets))


def _by_tokens_of(ds: Any) -> Any:
    return ds.batch_by_tokens(14, length="x", lengths_as="n")


def _by_buckets_of(ds: Any) -> Any:
    return ds.bucket_by_length([2, 5], 3, length="x", window=11)


def test_behind_workers_and_before_them() -> None:
    stream = MapDataset.range(40).shuffle(seed=1).to_iter_dataset().map(_sized)
    for plain, spread in (
        (_by_tokens_of(stream), _by_tokens_of(stream.mp_prefetch(workers(1)))),
        (_by_buckets_of(stream), _by_buckets_of(stream).mp_prefetch(workers(1))),
    ):
        with iter(spread) as iterator:
            assert_same_events(events_of(iterator), run_events(plain))


def test_elements_of_arrays_and_tuples() -> None:
    sizes = [2, 1, 3]
    arrays = MapDataset.source(sizes).map(np.arange).to_iter_dataset()
    (batch,) = arrays.batch_by_tokens(9)
    assert batch.tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 2]]
    pairs = arrays.map(lambda array: (array, len(array)))
    (pair,) = pairs.batch_by_tokens(9, length=lambda element: element[1], padding=7)
    assert_same((np.array([[0, 1, 7], [0, 7, 7], [0, 1, 2]]), np.array(sizes)), pair)
