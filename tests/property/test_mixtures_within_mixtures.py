"""Mixtures of mixtures of filtered streams: read side by side, they are what each is by itself."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, ReadOptions, ShardOptions, WeightSchedule
from bushel.errors import StateError
from bushel.experimental import InterleaveIterDataset, ZipIterDataset
from tests.contract.events import events_of
from tests.property.profile import tried

INLINE = ReadOptions(num_threads=0)
MOST = 40

Stream = IterDataset[Any]


def _sometimes_none(element: Any) -> Any:
    return None if element is not None and element % 11 == 5 else element


def _sometimes_fails(element: Any) -> Any:
    if element is not None and element % 37 == 20:
        raise ValueError(f"{element} is bad")
    return element


class _Random(random.Random):
    """Random choices; those for which streams are read by themselves are rare or missing."""

    def __init__(self, seed: int, more: int) -> None:
        super().__init__(seed)
        self.more = more
        self._oddity = self.choice([0.0, 0.0, 0.1, 1.0])
        self.lanes = self.choice([1, 1, 1, 1, 1, 8])

    def is_odd(self, share: float) -> bool:
        return self.random() < share * self._oddity


def _leaf(rng: _Random) -> Stream:
    length = rng.choice([60, 30, 9, 0]) if rng.is_odd(0.4) else 400
    ds = MapDataset.range(length).shuffle(seed=rng.randrange(100))
    if rng.random() < 0.2:
        divisor = rng.randint(2, 4)
        ds = ds.filter(lambda x: x % divisor > 0)
    stream: Stream = ds.to_iter_dataset(INLINE)
    if rng.lanes > 1:
        host = ShardOptions(0, 1)
        stream = ds.repeat(5).lanes(rng.lanes, shard_options=host, read_options=INLINE)
    if rng.random() < 0.7:
        rest = rng.randint(0, 2)
        stream = stream.filter(lambda x: x % 3 != rest)
    return stream.map(_sometimes_none) if rng.random() < 0.1 else stream


def _changed(stream: Stream, rng: _Random) -> Stream:
    """A mixture with steps after it, or without."""
    if rng.random() < 0.2:
        stream = stream.map(lambda x: x if x is None else x + 1)
    if rng.random() < 0.05:
        stream = stream.map(_sometimes_none)
    if rng.is_odd(0.05):
        stream = stream.map(_sometimes_fails)
    if rng.is_odd(0.05):
        stream = stream.filter(lambda x: x is None or x % 5 > 0)
    if rng.is_odd(0.05):
        stream = stream.seed(3).random_map(lambda x, rng: (x, int(rng.integers(9))))
        stream = stream.map(lambda pair: pair[0])
    return stream


def _mixture(rng: _Random, parts: list[Stream]) -> Stream:
    on_end = "restart" if rng.is_odd(0.1) else rng.choice(["stop", "drop"])
    weights: Any = [rng.randint(1, 4) + n * rng.more for n in range(len(parts))]
    if rng.random() < 0.2:
        weights = None
    if rng.random() < 0.3:
        names = [f"p{number}" for number in range(len(parts))]
        weights = None if weights is None else dict(zip(names, weights, strict=True))
        return IterDataset.mix(dict(zip(names, parts, strict=True)), weights, on_end=on_end)
    if rng.is_odd(0.05):
        first, last = [1] * len(parts), list(range(1, len(parts) + 1))
        weights = WeightSchedule.linear([(0, first), (20, last)])
    return IterDataset.mix(parts, weights, on_end=on_end)


def _nested(rng: _Random, depth: int) -> Stream:
    if not depth or rng.random() < 0.15:
        return _leaf(rng)
    parts = [_nested(rng, depth - 1) for _ in range(rng.randint(2, 4))]
    return _changed(_mixture(rng, parts), rng)


def _built(seed: int, more: int = 0) -> Stream:
    """A stream; with `more`, later parts of mixtures have larger weights."""
    rng = _Random(seed, more)
    parts = [_nested(rng, rng.randint(1, 2)) for _ in range(rng.randint(3, 5))]
    kind = rng.random()
    stream: Stream
    if rng.lanes > 1:
        stream = _mixture(rng, parts)
    elif kind < 0.15:
        stream = InterleaveIterDataset(parts, cycle_length=len(parts))
    elif kind < 0.3:
        stream = ZipIterDataset(parts, strict=False)
    else:
        stream = _mixture(rng, parts)
    if rng.random() < 0.2:
        stream = stream.seed(1).random_map(lambda x, rng: (x, int(rng.integers(1000))))
    return stream.shuffle(5, seed=1) if rng.random() < 0.3 else stream


@contextmanager
def _each_by_itself() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bushel.run.build.side_by_side", lambda nodes, most_dropped: None)
        yield


def _after(ds: Stream, state: Any, most: int) -> list[Any]:
    iterator = iter(ds)
    try:
        iterator.set_state(state)
    except StateError as error:
        return [str(error)]
    return events_of(iterator, most)


@given(st.integers(0, 1 << 32), st.integers(0, MOST))
@tried
def test_states_and_elements_are_the_same(seed: int, at: int) -> None:
    with _each_by_itself():
        iterator = iter(_built(seed))
        expected = events_of(iterator, at)
        alone = iterator.get_state()
        expected += events_of(iterator, MOST - at)
    iterator = iter(_built(seed))
    assert events_of(iterator, at) == expected[:at]
    together = iterator.get_state()
    assert events_of(iterator, MOST - at) == expected[at:]
    # From a state of either way, the other one goes on.
    assert _after(_built(seed), alone, MOST - at) == expected[at:]
    with _each_by_itself():
        assert _after(_built(seed), together, MOST - at) == expected[at:]
        changed = _after(_built(seed, 1), together, MOST - at)
    assert _after(_built(seed, 1), alone, MOST - at) == changed


def test_elements_that_become_none_remain_beside_filtered_streams() -> None:
    ranges = [MapDataset.range(100).to_iter_dataset(INLINE) for _ in range(9)]
    parts = [stream.filter(lambda x: x % 2 == 0) for stream in ranges[1:]]
    mixed = IterDataset.mix([ranges[0].map(_sometimes_none), *parts])
    # Of each round the element of the first part.
    assert list(mixed)[: 9 * 20 : 9] == [_sometimes_none(x) for x in range(20)]
