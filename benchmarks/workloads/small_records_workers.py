"""The small records again, through two worker processes: overhead, and the way to the trainer."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.records import Columns, Record, Reused, image_records, normalise
from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload
from benchmarks.workloads.loader import epoch_loader, in_workers, torch_loader

BATCH_SIZE = 128
# Long enough that no epoch ends within a reading, which would count the start of new workers.
RECORDS = 16_384 * BATCH_SIZE
DISTINCT = 4096
WORKERS = 2
SIDE = 8
SEED = 42


def source(n: int) -> Reused:
    return Reused(image_records(DISTINCT, SIDE), n)


def by_hand(n: int) -> Iterator[Columns]:
    """Loops in one process."""
    records = source(n)
    order = np.random.default_rng(SEED).permutation(n)
    for start in range(0, n, BATCH_SIZE):
        keys = order[start : start + BATCH_SIZE].tolist()
        rows = [normalise(records[key]) for key in keys]
        yield {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def loader(lib: ModuleType, n: int) -> Iterable[Columns]:
    class Normalise(lib.transforms.Map):  # type: ignore[name-defined, misc]
        def map(self, record: Record) -> Record:
            return normalise(record)

    operations = [Normalise(), lib.transforms.Batch(batch_size=BATCH_SIZE)]
    return epoch_loader(lib, source(n), operations, SEED, workers=WORKERS)


def dataset(lib: ModuleType, n: int) -> Iterable[Columns]:
    shuffled = lib.MapDataset.source(source(n)).shuffle(seed=SEED)
    return in_workers(lib, shuffled.map(normalise).batch(BATCH_SIZE), WORKERS)


@dataclass(frozen=True, slots=True)
class Normalised:
    """The same for torch, whose datasets apply functions themselves."""

    records: Reused

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, key: int) -> Record:
        return normalise(self.records[key])


def with_torch(n: int) -> Iterable[Any]:
    return torch_loader(Normalised(source(n)), BATCH_SIZE, WORKERS)


GOALS = (Goal(5, "grain"), Goal(1, "torch"))
WORKLOAD = Workload(
    name="small_records_workers",
    title="small records, 2 workers",
    gauge=Throughput(RECORDS, BATCH_SIZE, start_steps=16),
    hand=by_hand,
    torch=with_torch,
    forms=(
        Form("DataLoader", loader, GOALS, grain_agrees="total"),
        Form("MapDataset", dataset, GOALS, grain_agrees="total"),
    ),
)
