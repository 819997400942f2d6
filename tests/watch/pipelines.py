"""Pipelines whose explanations are written down in `explanations.txt`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bushel import DataLoader, IterDataset, MapDataset, MultiprocessingOptions, transforms
from bushel.experimental import InterleaveIterDataset, ThreadPrefetchIterDataset
from bushel.samplers import IndexSampler
from bushel.sharding import NoSharding, ShardOptions
from tests.contract.parts import RowSource, double, is_not_third, jitter, ragged

_WORKERS = MultiprocessingOptions(num_workers=4)


class Decode(transforms.Map):
    """A map as loaders take it."""

    def map(self, element: Any) -> Any:
        return element


class Own(IterDataset[Any]):
    """A stream of a user's own."""

    def __iter__(self) -> Any:
        return iter(self._parent)


def least(number: int) -> int:
    return number


def records(size: int = 1000) -> MapDataset[Any]:
    return MapDataset.source(RowSource(size))


def stream(size: int = 1000) -> IterDataset[Any]:
    return records(size).to_iter_dataset()


def _loader() -> DataLoader[Any]:
    sampler = IndexSampler(1000, NoSharding(), shuffle=True, num_epochs=2, seed=3)
    return DataLoader(
        data_source=np.zeros((1000, 28, 28), np.uint8),
        sampler=sampler,
        operations=[Decode(), transforms.Batch(8)],
        worker_count=2,
    )


PIPELINES: dict[str, Callable[[], Any]] = {
    "by position": lambda: records().shuffle(seed=1).map(double).batch(8),
    "for ever": lambda: records().filter(is_not_third).repeat(),
    "a filter, then a batch, then a map, by workers": lambda: (
        records()
        .shuffle(seed=7)
        .map(double)
        .to_iter_dataset()
        .filter(is_not_third)
        .batch(256)
        .map(double)
        .mp_prefetch(_WORKERS)
    ),
    "a batch that is a guess": lambda: stream().batch(8).mp_prefetch(_WORKERS),
    "threads": lambda: ThreadPrefetchIterDataset(stream().map(double), prefetch_buffer_size=2),
    "a mixture by name": lambda: (
        IterDataset.mix(
            {"web": stream().map(double), "books": stream(70).filter(is_not_third)},
            {"web": 3, "books": 1},
            on_end="restart",
        )
        .batch(4)
        .mp_prefetch(_WORKERS)
    ),
    "a thousand parts": lambda: MapDataset.mix(
        [records(100 + number).shuffle(seed=number).map(double) for number in range(1000)]
    ).batch(8),
    "an interleaving": lambda: InterleaveIterDataset(
        [stream().map(double) for _ in range(3)], cycle_length=2
    ).mp_prefetch(_WORKERS),
    "an iterator of the user's own": lambda: (
        Own(stream().map(double)).map(double).mp_prefetch(_WORKERS)
    ),
    "packing": lambda: stream().map(ragged).pack({"id": 7}).map(double).mp_prefetch(_WORKERS),
    "lanes": lambda: (
        records()
        .lanes(4, shard_options=ShardOptions(1, 2), agree=least)
        .filter(is_not_third)
        .batch(8)
        .mp_prefetch(_WORKERS)
    ),
    "not read yet": lambda: records().filter(is_not_third).compact().batch(8),
    "random numbers that are cached": lambda: (
        stream().random_map(jitter, seed=1).cache().repeat(2).shuffle(10, seed=2)
    ),
    "what cannot run": lambda: (
        records().lanes(4, shard_options=ShardOptions(0, 3)).filter(is_not_third).batch(8)
    ),
    "a loader": _loader,
}
