"""Random pipelines in lanes, and the same in plain lists."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from bushel.experimental import FlatMapIterDataset, WindowShuffleIterDataset, ZipIterDataset
from bushel.order.mix import MixNode, to_proportions
from bushel.order.permutation import permute
from bushel.sources.memory import RangeNode
from tests.lanes.parts import Copies, add, keeps, noisy, scaled_by, with_index

INLINE = ReadOptions(0, 0)

# How many elements the other dataset of a mixture or a zip has.
OTHER = 90
# A filter may leave nothing of an endless stream; this far it is looked at.
MOST_READ = 3000


class NothingComes(Exception):
    """A stream without end of which nothing is left."""


@dataclass(frozen=True)
class Program:
    """What is done to numbers in lanes, and with which numbers."""

    length: int
    endless: bool
    steps: tuple[tuple[str, Any], ...]
    lanes: int
    rows: int
    remainder: str = "drop"
    workers: int = 0

    @property
    def batch_size(self) -> int:
        return self.lanes * self.rows

    def numbers(self) -> MapDataset[int]:
        ds = MapDataset.range(self.length)[::-1]
        if self.length > 60:  # Shuffling few takes long.
            ds = ds.shuffle(seed=self.length)
        return ds.repeat() if self.endless else ds

    def other(self) -> MapDataset[int]:
        ds = MapDataset.range(10**6, 10**6 + OTHER)
        return ds.repeat() if self.endless else ds

    def stream(self, read_options: ReadOptions = INLINE, **how: Any) -> IterDataset[Any]:
        """The numbers in lanes, before they are gathered."""

        def dealt(ds: MapDataset[int]) -> IterDataset[int]:
            remainder = self.remainder
            return ds.lanes(self.lanes, remainder=remainder, read_options=read_options, **how)

        ds: IterDataset[Any] = dealt(self.numbers())
        for kind, argument in self.steps:
            if kind == "filter":
                ds = ds.filter(keeps(argument))
            elif kind == "map":
                ds = ds.map(scaled_by(argument))
            elif kind == "random_map":
                ds = ds.random_map(noisy, seed=argument)
            elif kind == "map_with_index":
                ds = ds.map_with_index(with_index)
            elif kind == "flat_map":
                ds = FlatMapIterDataset(ds, Copies(argument))
            elif kind == "window":
                ds = WindowShuffleIterDataset(ds, window_size=argument, seed=argument)
            elif kind == "mix":
                ds = IterDataset.mix([ds, dealt(self.other())], argument)
            elif kind == "named_mix":
                parts = {"these": ds, "those": dealt(self.other())}
                ds = IterDataset.mix(parts, {"these": argument[0], "those": argument[1]})
            else:
                assert kind == "zip"
                ds = ZipIterDataset([ds, dealt(self.other())], strict=False).map(add)
        return ds

    def batches(self, **how: Any) -> IterDataset[Any]:
        ds = self.stream(**how).batch(self.batch_size)
        if not self.workers:
            return ds
        return ds.mp_prefetch(MultiprocessingOptions(num_workers=self.workers))

    def expected(self, most: int) -> list[Any]:
        """The first batches of all hosts together, by plain iterators."""
        lanes = [self._lane(lane) for lane in range(self.lanes)]
        steps: list[Any] = []
        while len(steps) < most:
            taken = [list(itertools.islice(lane, self.rows)) for lane in lanes]
            missing = [self.rows - len(rows) for rows in taken]
            if (self.remainder == "drop" and any(missing)) or min(missing) == self.rows:
                break
            batch = [
                row for rows, few in zip(taken, missing, strict=True) for row in rows + [0] * few
            ]
            mask = [
                there
                for rows, few in zip(taken, missing, strict=True)
                for there in [True] * len(rows) + [False] * few
            ]
            steps.append((batch, mask) if self.remainder == "pad" else batch)
        return steps

    def _lane(self, lane: int) -> Iterator[int]:
        """What comes out of one lane."""
        rows = self._dealt(self.numbers(), lane)
        for kind, argument in self.steps:
            if kind == "filter":
                rows = filter(keeps(argument), rows)
            elif kind == "map":
                rows = map(scaled_by(argument), rows)
            elif kind == "random_map":
                rows = self._with_noise(rows, argument, lane)
            elif kind == "map_with_index":
                rows = map(with_index, itertools.count(lane, self.lanes), rows)
            elif kind == "flat_map":
                rows = itertools.chain.from_iterable(map(Copies(argument).flat_map, rows))
            elif kind == "window":
                rows = self._in_windows(rows, argument, lane)
            elif kind in ("mix", "named_mix"):
                rows = _mixed([rows, self._dealt(self.other(), lane)], argument, lane)
            else:
                rows = map(add, zip(rows, self._dealt(self.other(), lane), strict=False))
        return rows

    def _dealt(self, ds: MapDataset[int], lane: int) -> Iterator[int]:
        for position in range(lane, len(ds), self.lanes):
            if position > MOST_READ:
                raise NothingComes
            element = ds[position]
            assert element is not None
            yield element

    def _with_noise(self, rows: Iterator[int], seed: int, lane: int) -> Iterator[int]:
        for number, row in enumerate(rows):
            counter = [0, 0, 0, number * self.lanes + lane]
            yield noisy(row, np.random.Generator(np.random.Philox(seed, counter=counter)))

    def _in_windows(self, rows: Iterator[int], size: int, lane: int) -> Iterator[int]:
        for number in itertools.count():
            window = list(itertools.islice(rows, size))
            if not window:
                return
            places = np.arange(len(window))
            order = permute(places, len(window) - 1, size + number * self.lanes + lane)
            yield from (window[place] for place in order[::-1].tolist())


def _mixed(parts: list[Iterator[int]], weights: Sequence[float], lane: int) -> Iterator[int]:
    pattern = MixNode((RangeNode(range(1)),) * 2, to_proportions(weights, 2))
    for turn in itertools.count(lane):
        which, _ = pattern.locate(np.array([turn]))
        row = next(parts[int(which[0])], None)
        if row is None:
            return
        yield row


_patterns = st.lists(st.booleans(), min_size=1, max_size=9).filter(any)
_counts = st.lists(st.integers(0, 3), min_size=1, max_size=7).filter(any)
_weights = st.tuples(st.integers(1, 4), st.integers(1, 4))
_steps = st.one_of(
    st.tuples(st.just("filter"), _patterns),
    st.tuples(st.just("map"), st.integers(1, 9)),
    st.tuples(st.just("random_map"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("map_with_index"), st.none()),
    st.tuples(st.just("flat_map"), _counts),
    st.tuples(st.just("window"), st.integers(1, 7)),
    st.tuples(st.just("mix"), _weights),
    st.tuples(st.just("named_mix"), _weights),
    st.tuples(st.just("zip"), st.none()),
)


@st.composite
def programs(
    draw: st.DrawFn,
    endless: bool | None = None,
    remainder: st.SearchStrategy[str] = st.sampled_from(["drop", "pad"]),  # noqa: B008
    workers: int = 0,
) -> Program:
    for_ever = draw(st.booleans()) if endless is None else endless
    return Program(
        length=draw(st.integers(1 if for_ever else 0, 120)),
        endless=for_ever,
        steps=tuple(draw(st.lists(_steps, max_size=3))),
        lanes=draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12])),
        rows=draw(st.integers(1, 4)),
        remainder=draw(remainder),
        workers=workers,
    )


def host_counts(lanes: int) -> st.SearchStrategy[int]:
    """Numbers of hosts that lanes can be owned by."""
    return st.sampled_from([count for count in range(1, min(lanes, 4) + 1) if lanes % count == 0])
