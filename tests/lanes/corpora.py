"""The pipelines that jobs of several processes run."""

from typing import Any

import numpy as np

from bushel import IterDataset, MapDataset
from bushel.experimental import WindowShuffleIterDataset

LANES = 8
BATCH = 16


def _corpus(corpus: int) -> MapDataset[Any]:
    def record(number: int) -> Any:
        return {"id": np.int32(corpus * 1000 + number), "x": np.full(3, number, np.float32)}

    return MapDataset.range((300, 500)[corpus]).shuffle(seed=corpus).map(record).repeat()


def _noisy(element: Any, rng: np.random.Generator) -> Any:
    return {**element, "noise": np.float32(rng.normal())}


def mixture(**how: Any) -> IterDataset[Any]:
    """Two corpora, filtered, mixed and shuffled in lanes, without end."""
    small, large = (_corpus(number).lanes(LANES, **how) for number in range(2))
    some = small.filter(lambda element: bool(element["id"] % 3))
    ds = IterDataset.mix([some, large], [1, 2])
    ds = WindowShuffleIterDataset(ds, window_size=5, seed=7)
    return ds.random_map(_noisy, seed=11).batch(BATCH)


def finite(remainder: str, **how: Any) -> IterDataset[Any]:
    """Numbers of which a filter leaves some lanes more than others."""
    ds = MapDataset.range(400).lanes(LANES, remainder=remainder, **how)
    return ds.filter(lambda number: number % 8 < 4 or number % 5 == 0).batch(BATCH)
