"""Streams of random filters, flat maps and batches: however they are cut, one stream."""

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, ReadOptions, transforms
from bushel.experimental import FlatMapIterDataset, WindowShuffleIterDataset, ZipIterDataset
from tests.contract.events import events_of, pull_events, run_events
from tests.property.profile import tried

INLINE = ReadOptions(0, 0)


class Repeats(transforms.FlatMap):
    """Makes as many copies of number i as a list says."""

    max_fan_out = 4

    def __init__(self, counts: list[int]) -> None:
        self._counts = counts

    def flat_map(self, element: int) -> list[Any]:
        return [element] * self._counts[element % len(self._counts)]


_patterns = st.lists(st.booleans(), min_size=1, max_size=9)
_counts = st.lists(st.integers(0, 4), min_size=1, max_size=7)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("filter"), _patterns),
        st.tuples(st.just("flat_map"), _counts),
        st.tuples(st.just("window"), st.integers(1, 7)),
        st.tuples(st.just("mix"), st.integers(1, 3)),
        st.tuples(st.just("zip"), st.just(0)),
    ),
    max_size=4,
)
_wants = st.lists(st.integers(1, 30), min_size=1, max_size=8)


def _pick(pattern: list[bool], element: int) -> bool:
    return pattern[element % len(pattern)]


def _build(length: int, steps: Any, batch: int) -> IterDataset[Any]:
    ds: IterDataset[Any] = MapDataset.range(length).to_iter_dataset(INLINE)
    for kind, argument in steps:
        if kind == "filter":
            ds = ds.filter(lambda element, pattern=argument: _pick(pattern, element))
        elif kind == "flat_map":
            ds = FlatMapIterDataset(ds, Repeats(argument))
        elif kind == "window":
            # The order is the window shuffle's own business; the rest is not.
            ds = WindowShuffleIterDataset(ds, window_size=argument, seed=1)
        elif kind == "mix":
            ds = IterDataset.mix([ds, MapDataset.range(50).to_iter_dataset(INLINE)], [argument, 1])
        else:
            other = MapDataset.range(length).to_iter_dataset(INLINE)
            ds = ZipIterDataset([ds, other], strict=False).map(lambda pair: pair[0])
    return ds.batch(batch, batch_fn=list) if batch else ds


@given(st.integers(0, 40), _steps, st.integers(0, 4), _wants)
@tried
def test_cuts_do_not_show(length: int, steps: Any, batch: int, wants: list[int]) -> None:
    ds = _build(length, steps, batch)
    expected = pull_events(ds, itertools.repeat(1))
    assert pull_events(ds, itertools.cycle(wants)) == expected
    assert run_events(ds) == expected


@given(st.integers(1, 40), _steps, st.integers(0, 4), st.integers(0, 60), st.integers(0, 30))
@tried
def test_states_lead_to_the_same_rest(
    length: int, steps: Any, batch: int, first: int, second: int
) -> None:
    ds = _build(length, steps, batch)
    expected = run_events(ds)
    iterator = iter(ds)
    done = 0
    for leg in (first, second):
        leg = min(leg, len(expected) - done)
        for _ in range(leg):
            next(iterator)
        done += leg
        state = iterator.get_state()
        iterator = iter(ds)
        iterator.set_state(state)
        assert iterator.get_state() == state
    assert events_of(iterator) == expected[done:]


@given(st.integers(0, 60), _patterns, st.integers(1, 5))
@tried
def test_filter_is_a_list_comprehension(length: int, pattern: list[bool], size: int) -> None:
    kept = [number for number in range(length) if _pick(pattern, number)]
    by_position = MapDataset.range(length).filter(lambda number: _pick(pattern, number))
    assert list(by_position) == kept
    stream = MapDataset.range(length).to_iter_dataset().filter(lambda n: _pick(pattern, n))
    assert list(stream) == kept
    batches = [kept[start : start + size] for start in range(0, len(kept), size)]
    assert list(stream.batch(size, batch_fn=list)) == batches


@given(st.integers(0, 40), _counts)
@tried
def test_flat_map_is_a_chain(length: int, counts: list[int]) -> None:
    repeats = Repeats(counts)
    expected = [copy for number in range(length) for copy in repeats.flat_map(number)]
    stream = MapDataset.range(length).to_iter_dataset()
    assert list(FlatMapIterDataset(stream, repeats)) == expected
    assert list(MapDataset.range(length).apply(repeats)) == expected


@given(st.integers(1, 50), st.integers(1, 9), st.integers(0, 2**31))
@tried
def test_window_shuffle_shuffles_windows(length: int, window: int, seed: int) -> None:
    stream = MapDataset.range(length).to_iter_dataset()
    shuffled = list(WindowShuffleIterDataset(stream, window_size=window, seed=seed))
    for start in range(0, length, window):
        expected = list(range(start, min(start + window, length)))
        assert sorted(shuffled[start : start + window]) == expected
