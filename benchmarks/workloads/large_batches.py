"""Batches of 9.6 MB from one worker process: what it costs to carry them to the trainer."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import proof
from benchmarks.records import Reused
from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload
from benchmarks.workloads.loader import epoch_loader, in_workers, torch_loader

Images = NDArray[np.uint8]

BATCH_SIZE = 64
SHAPE = (224, 224, 3)
RECORD_BYTES = 224 * 224 * 3
# So few that reading them is cheap; no divisor of the batch size, so that batches differ.
DISTINCT = 17
RECORDS = 20_000 * BATCH_SIZE
SEED = 42


@cache
def pictures() -> list[Images]:
    rng = np.random.default_rng(SEED)
    return [rng.integers(0, 256, SHAPE, dtype=np.uint8) for _ in range(DISTINCT)]


@dataclass(frozen=True, slots=True)
class Touched:
    """Reads the first byte of each batch and no more: this is about delivering, not about using."""

    batches: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        iterator = iter(self.batches)
        try:
            for batch in iterator:
                int(batch[0, 0, 0, 0])
                yield batch
        finally:
            proof.close(iterator)


def by_hand(n: int) -> Iterable[Images]:
    """Stacks into one buffer, always the same: no process, no new memory, no copy after it."""
    source = Reused(pictures(), n)
    buffer = np.empty((BATCH_SIZE, *SHAPE), np.uint8)

    def stacked() -> Iterator[Images]:
        for start in range(0, n, BATCH_SIZE):
            yield np.stack([source[key] for key in range(start, start + BATCH_SIZE)], out=buffer)

    return Touched(stacked())


def loader(lib: ModuleType, n: int) -> Iterable[Images]:
    operations = [lib.transforms.Batch(batch_size=BATCH_SIZE)]
    source = Reused(pictures(), n)
    return Touched(epoch_loader(lib, source, operations, SEED, shuffle=False, workers=1))


def dataset(lib: ModuleType, n: int) -> Iterable[Images]:
    batches = lib.MapDataset.source(Reused(pictures(), n)).batch(BATCH_SIZE)
    return Touched(in_workers(lib, batches, workers=1))


def with_torch(n: int) -> Iterable[Any]:
    source = Reused(pictures(), n)
    return Touched(torch_loader(source, BATCH_SIZE, workers=1, shuffle=False))


GOALS = (Goal(0.5, "hand"), Goal(15, "grain"), Goal(15, "torch"))
WORKLOAD = Workload(
    name="large_batches",
    title="9.6 MB batches, 1 worker",
    # One batch is all that the buffer by hand can show of itself.
    gauge=Throughput(
        RECORDS, BATCH_SIZE, proof_records=BATCH_SIZE, record_bytes=RECORD_BYTES, start_steps=16
    ),
    hand=by_hand,
    torch=with_torch,
    forms=(Form("DataLoader", loader, GOALS), Form("MapDataset", dataset, GOALS)),
)
