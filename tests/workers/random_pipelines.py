"""Random pipelines with workers somewhere: what they are, and how they are drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset
from bushel.experimental import FlatMapIterDataset, WindowShuffleIterDataset, ZipIterDataset
from tests.workers import steps
from tests.workers.streams import INLINE


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


@dataclass(frozen=True)
class Program:
    """Some steps by position, some of a stream, and the place of the step that has workers."""

    length: int
    by_position: list[tuple[str, int]]
    by_stream: list[tuple[str, int]]
    place: int

    def build(self, spread: Callable[[Any], Any]) -> Any:
        """Makes the pipeline; `spread` adds the workers."""
        ds: Any = MapDataset.source(np.arange(self.length))
        for name, number in self.by_position:
            ds = _BY_POSITION[name](ds, number)
        ds = ds.to_iter_dataset(INLINE)
        for step, (name, number) in enumerate(self.by_stream):
            if step == self.place:
                ds = spread(ds)
            ds = _BY_STREAM[name](ds, number)
        return ds if self.place < len(self.by_stream) else spread(ds)


PROGRAMS = st.builds(
    Program,
    length=st.integers(1, 70),
    by_position=_steps(_BY_POSITION, 3),
    by_stream=_steps(_BY_STREAM, 4),
    # In the middle, or, as is usual, at the end.
    place=st.sampled_from([1, 2, 9, 9, 9]),
)
