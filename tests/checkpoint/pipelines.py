"""Iterators to be saved, of every kind.

In a file of its own, which worker processes can import without importing Orbax.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import bushel
from bushel import DataLoader, DatasetIterator, IterDataset, MapDataset, MultiprocessingOptions


class Numbers:
    """A source that prints the same in every run and either library."""

    def __init__(self, count: int = 40) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: int) -> int:
        return key * 10

    def __repr__(self) -> str:
        return f"Numbers({self._count})"


class Noise(bushel.transforms.RandomMap):
    """Adds a number of the record's own."""

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element + rng.integers(1000)


def loader(workers: int = 0, seed: int = 3, count: int = 40, *more: Any) -> DataLoader[Any]:
    return DataLoader(
        data_source=Numbers(count),
        sampler=bushel.IndexSampler(count, shuffle=True, seed=seed, num_epochs=1),
        operations=[Noise(), *more, bushel.Batch(3)],
        worker_count=workers,
    )


def mapped(seed: int = 1, size: int = 3) -> MapDataset[Any]:
    return MapDataset.range(40).shuffle(seed=seed).map(lambda x: x * 2).batch(size)


def streamed(workers: int = 0) -> IterDataset[Any]:
    stream = MapDataset.range(60).seed(4).shuffle().to_iter_dataset().filter(lambda x: x % 3 > 0)
    drawn = stream.random_map(lambda x, rng: x + rng.integers(1000)).batch(3)
    return drawn.mp_prefetch(MultiprocessingOptions(workers))


MAKERS: dict[str, Callable[[], Any]] = {
    "loader": loader,
    "loader with workers": lambda: loader(2),
    "map": mapped,
    "stream": streamed,
    "stream with workers": lambda: streamed(2),
}


class Counter(DatasetIterator[int]):
    """An iterator of a user's own, whose state is the dict that it goes on to change."""

    def __init__(self) -> None:
        super().__init__()
        self.state = {"count": 0, "seen": [0]}
        self.started = 0

    def __next__(self) -> int:
        self.state["count"] += 1  # type: ignore[operator]
        self.state["seen"].append(self.state["count"])  # type: ignore[attr-defined]
        return self.state["count"]  # type: ignore[return-value]

    def get_state(self) -> dict[str, Any]:
        return self.state

    def set_state(self, state: dict[str, Any]) -> None:
        self.state = state

    def start_prefetch(self) -> None:
        self.started += 1


def rest(iterator: Any) -> list[Any]:
    """What an iterator still has; it is closed then."""
    elements = [np.asarray(element).tolist() for element in iterator]
    iterator.close()
    return elements


def ahead(iterator: Any, count: int) -> Any:
    """Takes elements from an iterator and returns it."""
    for _ in range(count):
        next(iterator)
    return iterator
