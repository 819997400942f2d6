"""The shuffle alone: an ImageNet's worth of positions in random order, in batches of 1,024."""

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

BATCH_SIZE = 1024
RECORDS = 1250 * BATCH_SIZE
SEED = 42


def by_hand(n: int) -> Iterator[NDArray[np.int64]]:
    order = np.random.default_rng(SEED).permutation(n)
    for start in range(0, n, BATCH_SIZE):
        yield order[start : start + BATCH_SIZE]


def dataset(lib: ModuleType, n: int) -> Iterable[NDArray[np.int64]]:
    shuffled = lib.MapDataset.range(n).shuffle(seed=SEED)
    pipeline: Iterable[NDArray[np.int64]] = shuffled.batch(BATCH_SIZE)
    return pipeline


def with_torch(n: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    batches: Iterable[Any] = DataLoader(range(n), batch_size=BATCH_SIZE, shuffle=True)
    return batches


WORKLOAD = Workload(
    name="shuffle",
    title="shuffle of 1.28M records",
    gauge=Throughput(RECORDS, BATCH_SIZE, proof_records=4 * BATCH_SIZE),
    hand=by_hand,
    torch=with_torch,
    forms=(Form("MapDataset", dataset, Goal(100, "grain")),),
)
