"""Streams one after the other, and in turn."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from bushel.errors import PlanError, StateError
from bushel.experimental import InterleaveIterDataset
from tests.property.profile import tried
from tests.streams.compare import assert_resumes, states_of
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]

fewer = settings(tried, max_examples=min(25, tried.max_examples))
# How long each stream is, and what a filter leaves of it.
_parts = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([1, 2, 3])), min_size=1, max_size=5)


def _streams(parts: Sequence[tuple[int, int]]) -> list[IterDataset[int]]:
    return [
        MapDataset.range(10 * number, 10 * number + length)
        .to_iter_dataset(ReadOptions(0, 0))
        .filter(lambda x, step=step: x % step == 0)
        for number, (length, step) in enumerate(parts)
    ]


@fewer
@given(_parts)
def test_one_after_the_other(parts: Any) -> None:
    streams = _streams(parts)
    expected = [element for stream in streams for element in stream]
    assert_resumes(IterDataset.concatenate(streams), expected)
    assert list(streams[0].concat(*streams[1:])) == expected


@fewer
@given(_parts, st.integers(1, 4))
def test_in_turn(parts: Any, cycle: int) -> None:
    streams = _streams(parts)
    expected = InterleaveIterDataset(streams, cycle_length=cycle)
    joined = streams[0].interleave(*streams[1:], cycle_length=cycle)
    assert list(joined) == list(expected)
    assert states_of(joined) == states_of(expected)


def test_parts_are_done_by_workers() -> None:
    ds = MapDataset.range(9).to_iter_dataset(ReadOptions(0, 0)).map(lambda x: x + 0.5)
    joined = ds.concat(MapDataset.range(5), ds)
    expected, states = list(joined), states_of(joined)
    with iter(joined.mp_prefetch(MultiprocessingOptions(num_workers=1))) as iterator:
        assert list(iterator) == expected
        iterator.set_state(states[12])
        assert list(iterator) == expected[12:]
        # Back to where a part has been read already.
        iterator.set_state(states[2])
        assert list(iterator) == expected[2:]


def test_what_they_read_from() -> None:
    first = MapDataset.range(3).to_iter_dataset()
    other = MapDataset.range(4)
    assert first.concat(other).parents == (first, other)
    assert first.interleave(other).parents == (first, other)
    assert IterDataset.concatenate([first, first]).parents == (first, first)


def test_a_state_of_more_streams() -> None:
    ds = MapDataset.range(3).to_iter_dataset()
    state = states_of(ds.concat(ds, ds))[-1]
    with pytest.raises(StateError, match=r"`concatenate\(3 parts\)`.*`concatenate\(2 parts\)`"):
        iter(ds.concat(ds)).set_state(state)
    del state["bushel"]
    with pytest.raises(StateError, match="in part 2 of a concatenation, and there are 2 parts"):
        iter(ds.concat(ds)).set_state(state)


def test_mistakes() -> None:
    ds = MapDataset.range(3).to_iter_dataset()
    with pytest.raises(PlanError, match="`concatenate` needs at least one dataset"):
        IterDataset.concatenate([])
    with pytest.raises(TypeError, match=r"argument 2 is a list.*write `concat\(\*datasets\)`"):
        ds.concat(ds, [ds])  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="`cycle_length` must be positive, and is 0"):
        ds.interleave(ds, cycle_length=0)
