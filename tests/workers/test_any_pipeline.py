"""Random pipelines, with random numbers of workers: always the stream without them."""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset
from bushel.experimental import FlatMapIterDataset, WindowShuffleIterDataset, ZipIterDataset
from tests.contract.events import events_of, run_events
from tests.nursery import one_nursery
from tests.thorough import THOROUGH, rare_examples
from tests.workers import steps
from tests.workers.streams import INLINE, assert_same_events, with_workers

__all__ = ["one_nursery"]  # What is made is looked at here, not who makes it.

# Fewer than elsewhere: each starts processes. Deterministic unless more is asked for.
tried = settings(
    derandomize=not THOROUGH,
    database=None,
    deadline=None,
    max_examples=rare_examples(8),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def _batch(ds: Any, size: int) -> Any:
    return ds.batch(size, drop_remainder=True)


def _zip(ds: Any) -> Any:
    other = MapDataset.range(500).to_iter_dataset(INLINE)
    return ZipIterDataset([ds, other], strict=False).map(lambda pair: pair[0] + pair[1])


_BY_POSITION = {
    "shuffle": lambda ds, n: ds.shuffle(seed=n),
    "slice": lambda ds, n: ds[n % 3 :: 1 + n % 2],
    "repeat": lambda ds, n: ds.repeat(2) if len(ds) < 60 else ds,
    "map": lambda ds, n: ds.map(steps.shift),
    "random_map": lambda ds, n: ds.random_map(steps.noise, seed=n),
    "filter": lambda ds, n: ds.filter(steps.keep),
    "map_batches": lambda ds, n: ds.map_batches(lambda column: column * 3),
}
_BY_STREAM = {
    "filter": lambda ds, n: ds.filter(steps.keep),
    "map": lambda ds, n: ds.map(steps.shift),
    "map_with_index": lambda ds, n: ds.map_with_index(steps.add_index),
    "random_map": lambda ds, n: ds.random_map(steps.noise, seed=n),
    "flat_map": lambda ds, n: FlatMapIterDataset(ds, steps.Repeats()),
    "window": lambda ds, n: WindowShuffleIterDataset(ds, window_size=1 + n, seed=n),
    "batch": lambda ds, n: _batch(ds, 1 + n % 4),
    "mix": lambda ds, n: IterDataset.mix([ds, ds.map(steps.shift)], [1 + n, 1]),
    "zip": lambda ds, n: _zip(ds),
}


def _steps(of: Any, most: int) -> Any:
    step = st.tuples(st.sampled_from(sorted(of)), st.integers(0, 9))
    return st.lists(step, min_size=1, max_size=most)


def _build(length: int, by_position: Any, by_stream: Any, place: int, count: int) -> Any:
    ds: Any = MapDataset.source(np.arange(length))
    for name, number in by_position:
        ds = _BY_POSITION[name](ds, number)
    ds = ds.to_iter_dataset(INLINE)
    for step, (name, number) in enumerate(by_stream):
        if step == place:
            ds = with_workers(ds, count)
        ds = _BY_STREAM[name](ds, number)
    return ds if place < len(by_stream) else with_workers(ds, count)


@given(
    length=st.integers(1, 70),
    by_position=_steps(_BY_POSITION, 3),
    by_stream=_steps(_BY_STREAM, 4),
    # In the middle, or, as is usual, at the end.
    place=st.sampled_from([1, 2, 9, 9, 9]),
    count=st.integers(1, 3),
    cut=st.integers(0, 40),
)
@tried
def test_one_stream(
    length: int, by_position: Any, by_stream: Any, place: int, count: int, cut: int
) -> None:
    inline = _build(length, by_position, by_stream, place, 0)
    ds = _build(length, by_position, by_stream, place, count)
    expected = run_events(inline)
    with iter(inline) as plain, iter(ds) as iterator:
        assert_same_events(events_of(iterator), expected)
        cut = min(cut, len(expected))
        for _ in range(cut):
            try:
                next(plain)
            except ValueError:
                continue
        iterator.set_state(plain.get_state())
        assert iterator.get_state() == plain.get_state()
        rest = events_of(iterator)
        assert [what[:3] for what, _ in rest] == [what[:3] for what, _ in expected[cut:]]
