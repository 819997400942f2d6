"""A stream: elements are dropped, so batches cannot be found by counting positions."""

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

BATCH_SIZE = 64
RECORDS = 6000 * BATCH_SIZE  # of which every second one is delivered


def even(x: int) -> bool:
    return x % 2 == 0


def double(x: int) -> int:
    return x * 2


def by_hand(n: int) -> Iterator[NDArray[np.int64]]:
    batch = []
    for x in range(n):
        if even(x):
            batch.append(double(x))
            if len(batch) == BATCH_SIZE:
                yield np.array(batch)
                batch = []


def dataset(lib: ModuleType, n: int) -> Iterable[NDArray[np.int64]]:
    stream = lib.MapDataset.range(n).to_iter_dataset()
    pipeline: Iterable[NDArray[np.int64]] = stream.filter(even).map(double).batch(BATCH_SIZE)
    return pipeline


def with_torch(n: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader, IterableDataset

    class Doubled(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            return (double(x) for x in range(n) if even(x))

    batches: Iterable[Any] = DataLoader(Doubled(), batch_size=BATCH_SIZE)
    return batches


WORKLOAD = Workload(
    name="stream",
    title="stream of filter, map, batch",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=by_hand,
    torch=with_torch,
    forms=(Form("", dataset, Goal(40, "grain")),),
)
