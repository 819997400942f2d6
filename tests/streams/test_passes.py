"""Streams repeated, limited and cached: those of Grain."""

from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel import IterDataset, MapDataset
from bushel.core.block import Block, Failure
from bushel.core.state_fields import Fields
from bushel.core.stream import Chunk, ComputedMarks, Stream
from bushel.dataset import stream_node
from bushel.deliver.open import open_stream
from bushel.errors import StateError
from bushel.experimental import (
    CacheIterDataset,
    FirstFitPackIterDataset,
    LimitIterDataset,
    RepeatIterDataset,
)
from bushel.order.take import LimitStream
from tests.contract.events import pull_events
from tests.contract.test_schedules import walk
from tests.grain.oracle import Raised, assert_same, events
from tests.property.profile import tried
from tests.streams.compare import assert_goes_on, assert_resumes, states_of

# Names and numbers, from the inside out.
_passes = st.lists(
    st.one_of(
        st.tuples(st.just("repeat"), st.integers(1, 3)),
        st.tuples(st.just("limit"), st.integers(1, 12)),
        st.tuples(st.just("filter"), st.integers(2, 4)),
        st.tuples(st.just("batch"), st.integers(1, 3)),
    ),
    max_size=4,
)
Passes = list[tuple[str, int]]


def _build(lib: Any, length: int, passes: Passes, cached: bool = False) -> Any:
    ds = lib.MapDataset.range(length).to_iter_dataset(lib.ReadOptions(0, 0))
    for name, number in passes:
        if cached:
            ds = lib.experimental.CacheIterDataset(ds)
        if name == "repeat":
            ds = lib.experimental.RepeatIterDataset(ds, number)
        elif name == "limit":
            ds = lib.experimental.LimitIterDataset(ds, number)
        elif name == "filter":
            ds = ds.map(lambda x: x + 1).filter(lambda x, n=number: x % n > 0)
        else:
            ds = ds.batch(number, batch_fn=sum)
    return ds


lengths = st.integers(1, 9)


@tried
@given(lengths, _passes, st.data())
def test_elements_are_those_of_grain(length: int, passes: Passes, data: st.DataObject) -> None:
    expected = list(_build(grain, length, passes))
    assert_same(expected, list(_build(bushel, length, passes)))
    done = data.draw(st.integers(0, len(expected)))
    assert_goes_on(_build(grain, length, passes), _build(bushel, length, passes), done)


@tried
@given(lengths, _passes, st.booleans())
def test_goes_on_from_everywhere(length: int, passes: Passes, cached: bool) -> None:
    assert_resumes(_build(bushel, length, passes, cached), list(_build(bushel, length, passes)))


@tried
@given(lengths, _passes, st.booleans(), st.integers(0, 2**32 - 1))
def test_the_same_however_it_runs(length: int, passes: Passes, cached: bool, seed: int) -> None:
    ds = _build(bushel, length, passes, cached)
    walk(ds, pull_events(ds, [1] * 2000), seed)


@tried
@given(lengths, _passes, st.data())
def test_states_of_caches_of_grain(length: int, passes: Passes, data: st.DataObject) -> None:
    theirs, ours = (_build(lib, length, passes, cached=True) for lib in (grain, bushel))
    assert_goes_on(theirs, ours, data.draw(st.integers(0, len(list(ours)))))


def _counted(length: int = 5) -> tuple[IterDataset[int], list[int]]:
    """A stream, and the elements that were computed."""
    computed: list[int] = []

    def compute(number: int) -> int:
        computed.append(number)
        return number

    return MapDataset.range(length).to_iter_dataset().map(compute), computed


def test_only_the_first_epoch_is_computed() -> None:
    ds, computed = _counted()
    assert list(RepeatIterDataset(CacheIterDataset(ds), 3)) == [0, 1, 2, 3, 4] * 3
    assert computed == [0, 1, 2, 3, 4]


def test_each_iterator_has_its_own_memory() -> None:
    ds, computed = _counted()
    cached = CacheIterDataset(ds)
    assert list(cached) == list(cached)
    assert computed == [0, 1, 2, 3, 4] * 2


def test_going_back_computes_nothing_again() -> None:
    ds, computed = _counted()
    iterator = iter(CacheIterDataset(ds))
    start = iterator.get_state()
    assert [next(iterator), next(iterator)] == [0, 1]
    iterator.set_state(start)
    assert list(iterator) == [0, 1, 2, 3, 4]
    iterator.set_state(start)
    assert next(iterator) == 0
    assert computed == [0, 1, 2, 3, 4]


def test_a_fresh_cache_computes_only_what_is_left() -> None:
    ds, computed = _counted()
    cached = CacheIterDataset(ds)
    states = states_of(cached)
    computed.clear()
    iterator = iter(cached)
    iterator.set_state(states[3])
    assert list(iterator) == [3, 4]
    assert computed == [3, 4]
    iterator.set_state(states[0])
    assert list(iterator) == [0, 1, 2, 3, 4]


class Bang(Exception):
    """An error of a user's own."""


def _fail_at(bad: int, number: int) -> int:
    if number == bad:
        raise Bang(number)
    return number


@pytest.mark.parametrize("bad", [0, 2, 4])
@pytest.mark.parametrize("prefetched", [False, True])
def test_what_fails_is_not_remembered(bad: int, prefetched: bool) -> None:
    ds: IterDataset[Any] = MapDataset.range(5).to_iter_dataset().map(lambda x: _fail_at(bad, x))
    ds = RepeatIterDataset(CacheIterDataset(ds), 3)
    if prefetched:
        ds = bushel.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=4)
    with iter(ds) as iterator:
        shown = ["!" if isinstance(event, Raised) else event for event in events(iterator)]
    assert shown == ["!" if number == bad else number for number in range(5)] * 3


def test_what_fails_does_not_count() -> None:
    ds = MapDataset.range(9).to_iter_dataset().map(lambda x: _fail_at(2, x))
    happened = events(LimitIterDataset(ds, 4))
    assert [event for event in happened if not isinstance(event, Raised)] == [0, 1, 3, 4]


def test_the_parent_is_not_read_past_the_limit() -> None:
    ds, computed = _counted(9)
    assert list(LimitIterDataset(ds, 4)) == [0, 1, 2, 3]
    assert computed == [0, 1, 2, 3]


def test_nothing_for_ever() -> None:
    empty = MapDataset.range(9).to_iter_dataset().filter(lambda x: x > 9)
    assert list(RepeatIterDataset(empty, 3)) == []
    assert list(CacheIterDataset(empty)) == []
    with pytest.raises(ValueError, match="no elements"):
        next(iter(RepeatIterDataset(empty)))


def test_rows_of_a_stream_without_end() -> None:
    ds = MapDataset.range(5).map(lambda number: {"x": number}).to_iter_dataset()
    packed = FirstFitPackIterDataset(
        RepeatIterDataset(ds), length_struct={"x": 3}, num_packing_bins=2, shuffle_bins=False
    )
    rows = list(LimitIterDataset(packed, 5))
    assert [row["x"].tolist() for row in rows] == [
        [0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1], [2, 3, 4],
    ]  # fmt: skip


def test_a_state_of_an_epoch_that_there_is_not() -> None:
    iterator = iter(MapDataset.range(3).to_iter_dataset().repeat(2))
    with pytest.raises(StateError, match="'epoch' in a state must not exceed 2, and is 3"):
        iterator.set_state({"parent": {"next_index": 0}, "epoch": 3})
    assert list(iterator) == [0, 1, 2, 0, 1, 2]


def test_repeat_ends_with_its_last_epoch() -> None:
    stream = MapDataset.range(3).to_iter_dataset().repeat(2)
    iterator = iter(stream)
    assert list(iterator) == [0, 1, 2, 0, 1, 2]
    with pytest.raises(StopIteration):
        next(iterator)  # However often it is asked.
    resumed = iter(stream)
    resumed.set_state(iterator.get_state())
    assert list(resumed) == []
    # The last epoch that there is, and one that Grain counts when it is at the end.
    iterator.set_state({"parent": {"next_index": 0}, "epoch": 1})
    assert list(iterator) == [0, 1, 2]
    iterator.set_state({"parent": {"next_index": 0}, "epoch": 2})
    assert list(iterator) == []


def test_repeat_does_not_begin_an_epoch_after_the_last() -> None:
    stream = open_stream(stream_node(MapDataset.range(3).to_iter_dataset().repeat(2)))
    try:
        while stream.pull(10) is not None:
            pass
        assert stream.state() == {"parent": {"next_index": 3}, "epoch": 1}
    finally:
        stream.close()


class _TwoAndAFailure(Stream):
    """Gives more than it is asked for: a failure right after the elements."""

    def pull(self, want: int) -> Chunk:
        failure = Failure(ValueError("the third"))
        return Chunk(Block([7, 8], np.arange(2), failure), ComputedMarks(lambda used: {}))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass

    def fields(self) -> Fields:
        return Fields()


def test_a_failure_after_the_last_element_is_none_of_it() -> None:
    chunk = LimitStream(_TwoAndAFailure(), 2).pull(2)
    assert chunk is not None and chunk.block.rows() == [7, 8] and chunk.block.failure is None
    chunk = LimitStream(_TwoAndAFailure(), 3).pull(3)
    assert chunk is not None and chunk.block.failure is not None
