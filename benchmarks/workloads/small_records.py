"""Small records, a Python function for each, shuffled, in batches: overhead and little else."""

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.records import Columns, Record, image_records, normalise
from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload
from benchmarks.workloads.loader import epoch_loader

BATCH_SIZE = 128
RECORDS = 400 * BATCH_SIZE
SIDE = 8
SEED = 42


def by_hand(n: int) -> Iterator[Columns]:
    records = image_records(n, SIDE)
    order = np.random.default_rng(SEED).permutation(n).tolist()
    for start in range(0, n, BATCH_SIZE):
        rows = [normalise(records[key]) for key in order[start : start + BATCH_SIZE]]
        yield {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def loader(lib: ModuleType, n: int) -> Iterable[Columns]:
    class Normalise(lib.transforms.Map):  # type: ignore[name-defined, misc]
        def map(self, record: Record) -> Record:
            return normalise(record)

    operations = [Normalise(), lib.transforms.Batch(batch_size=BATCH_SIZE)]
    return epoch_loader(lib, image_records(n, SIDE), operations, SEED)


def dataset(lib: ModuleType, n: int) -> Any:
    source = lib.MapDataset.source(image_records(n, SIDE))
    return source.shuffle(seed=SEED).map(normalise).batch(BATCH_SIZE)


def dataset_inline(lib: ModuleType, n: int) -> Iterable[Columns]:
    pipeline: Iterable[Columns] = dataset(lib, n).to_iter_dataset(lib.ReadOptions(num_threads=0))
    return pipeline


def with_torch(n: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    class Normalised(list[Record]):
        def __getitem__(self, key: Any) -> Any:
            return normalise(super().__getitem__(key))

    source = Normalised(image_records(n, SIDE))
    batches: Iterable[Any] = DataLoader(source, batch_size=BATCH_SIZE, shuffle=True)
    return batches


GOAL = Goal(0.9, "hand")
WORKLOAD = Workload(
    name="small_records",
    title="small records",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=by_hand,
    torch=with_torch,
    forms=(
        Form("DataLoader", loader, GOAL),
        Form("MapDataset", dataset, GOAL),
        Form("MapDataset, 0 threads", dataset_inline, GOAL),
    ),
)
