"""Pipelines whose plans are written down in `plans.txt`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bushel import (
    DataLoader,
    IterDataset,
    MapDataset,
    MultiprocessingOptions,
    samplers,
    transforms,
)
from bushel.core.node import Node
from bushel.dataset.stream import stream_node
from bushel.experimental import ThreadPrefetchIterDataset, ZipIterDataset
from bushel.loader.chain import Chain
from bushel.sharding import NoSharding, ShardOptions


def double(number: Any) -> Any:
    return number * 2


def is_odd(number: int) -> bool:
    return number % 2 == 1


def tokens(number: int) -> dict[str, Any]:
    return {"text": np.full(1 + number % 3, number)}


def least(number: int) -> int:
    return number


def second(_index: int, element: Any) -> Any:
    return element


class Twice(transforms.FlatMap):
    """Makes two of each element."""

    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element, element]


class Own(IterDataset[int]):
    """A stream of a user's own."""

    def __iter__(self) -> Any:
        return iter(self._parent)


class Double(transforms.Map):
    """A map as loaders take it."""

    def map(self, element: int) -> int:
        return 2 * element


_WORKERS = MultiprocessingOptions(num_workers=2)
_RANGE = MapDataset.range(100)
_STREAM = _RANGE.to_iter_dataset()


def _loader() -> Node:
    sampler = samplers.IndexSampler(100, NoSharding(), shuffle=True, num_epochs=1, seed=3)
    loader = DataLoader(
        data_source=range(100),
        sampler=sampler,
        operations=[Double(), transforms.Batch(8)],
        worker_count=2,
    )
    return Chain(loader._recipe).node()


def _lanes(remainder: str = "drop") -> IterDataset[Any]:
    shard = ShardOptions(1, 2)
    return _RANGE.lanes(4, shard_options=shard, agree=least, remainder=remainder)


PIPELINES: dict[str, Callable[[], Any]] = {
    "plain": lambda: _RANGE.shuffle(seed=1).map(double).batch(8).to_iter_dataset(),
    "threads": lambda: ThreadPrefetchIterDataset(_STREAM.map(double), prefetch_buffer_size=2).batch(
        3
    ),
    "steps with a memory": lambda: _STREAM.windows(4).repeat(2).skip(10).take(20).cache(),
    "workers at the end": lambda: (
        _RANGE.map(double).batch(8).to_iter_dataset().mp_prefetch(_WORKERS)
    ),
    "filter and batch": lambda: (
        _STREAM.map(double).filter(is_odd).batch(8).map(double).mp_prefetch(_WORKERS)
    ),
    "a batch that is a guess": lambda: (
        _RANGE.map(double).to_iter_dataset().batch(8).map(double).mp_prefetch(_WORKERS)
    ),
    "several of one, in batches of batches": lambda: (
        _STREAM.batch(2).batch(3).apply(Twice()).mp_prefetch(_WORKERS)
    ),
    "bad records": lambda: (
        _STREAM.map(double).on_error("skip").map_with_index(second).mp_prefetch(_WORKERS)
    ),
    "mix": lambda: (
        IterDataset.mix([_STREAM.map(double), _STREAM.filter(is_odd)], [1, 2])
        .batch(4)
        .mp_prefetch(_WORKERS)
    ),
    "zip of parts with workers": lambda: ZipIterDataset(
        [_STREAM.map(double).mp_prefetch(_WORKERS), _STREAM]
    ).map(double),
    "workers before packing": lambda: _STREAM.map(tokens).mp_prefetch(_WORKERS).pack({"text": 8}),
    "workers after packing": lambda: (
        _STREAM.map(tokens).pack({"text": 8}).map(double).mp_prefetch(_WORKERS)
    ),
    "lanes by position": lambda: _lanes().map(double).batch(8).mp_prefetch(_WORKERS),
    "lanes with a filter": lambda: _lanes("pad").filter(is_odd).batch(8).mp_prefetch(_WORKERS),
    "an iterator of the user's own": lambda: Own(_STREAM).map(double).mp_prefetch(_WORKERS),
    "a loader": _loader,
    "many parts": lambda: IterDataset.concatenate([_STREAM] * 10),
}


def node_of(name: str) -> Node:
    made = PIPELINES[name]()
    return made if isinstance(made, Node) else stream_node(made)
