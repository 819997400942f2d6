"""A random map: each record gets a generator of its own, in a state that its position decides."""

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload
from benchmarks.workloads.loader import epoch_loader

BATCH_SIZE = 128
RECORDS = 1000 * BATCH_SIZE
SEED = 42


def jitter(x: int, rng: np.random.Generator) -> float:
    return x + rng.random()


def positioned(x: int) -> np.random.Generator:
    """Gives the generator that a dataset hands to `random_map` at position x."""
    return np.random.Generator(np.random.Philox(SEED, counter=[0, 0, 0, x]))


def keyed(x: int) -> np.random.Generator:
    """Gives the generator that a loader hands to `random_map` for record x."""
    return np.random.Generator(np.random.Philox(key=SEED + x))


def one_by_one_by_hand(n: int) -> Iterator[float]:
    for x in range(n):
        yield jitter(x, positioned(x))


def dataset_by_hand(n: int) -> Iterator[NDArray[np.float64]]:
    for start in range(0, n, BATCH_SIZE):
        yield np.array([jitter(x, positioned(x)) for x in range(start, start + BATCH_SIZE)])


def loader_by_hand(n: int) -> Iterator[NDArray[np.float64]]:
    for start in range(0, n, BATCH_SIZE):
        yield np.array([jitter(x, keyed(x)) for x in range(start, start + BATCH_SIZE)])


def one_by_one(lib: ModuleType, n: int) -> Any:
    return lib.MapDataset.range(n).random_map(jitter, seed=SEED)


def dataset(lib: ModuleType, n: int) -> Any:
    return one_by_one(lib, n).batch(BATCH_SIZE)


def loader(lib: ModuleType, n: int) -> Iterable[NDArray[np.float64]]:
    class Jitter(lib.transforms.RandomMap):  # type: ignore[name-defined, misc]
        def random_map(self, x: int, rng: np.random.Generator) -> float:
            return jitter(x, rng)

    source = lib.sources.RangeDataSource(0, n, 1)
    operations = [Jitter(), lib.transforms.Batch(batch_size=BATCH_SIZE)]
    return epoch_loader(lib, source, operations, SEED, shuffle=False)


GOAL = Goal(30, "grain")
DATASET = Workload(
    name="random_map",
    title="random_map, batch 128",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=dataset_by_hand,
    forms=(Form("MapDataset", dataset, GOAL),),
)
ONE_BY_ONE = Workload(
    name="random_map_one_by_one",
    title="random_map, no batch",
    gauge=Throughput(RECORDS, batch_size=1),
    hand=one_by_one_by_hand,
    forms=(Form("MapDataset", one_by_one, GOAL),),
)
# A workload of its own: a loader's generators are others, and so the numbers are too.
LOADER = Workload(
    name="random_map_loader",
    title="random_map, batch 128",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=loader_by_hand,
    forms=(Form("DataLoader", loader, GOAL),),
)
