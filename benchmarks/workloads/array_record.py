"""Small records in an ArrayRecord file, shuffled: the reader wants many at a time."""

import atexit
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload
from benchmarks.workloads.loader import epoch_loader

Batch = NDArray[np.uint8]

BATCH_SIZE = 256
RECORDS = 400 * BATCH_SIZE
RECORD_BYTES = 200
SEED = 42
AT_A_TIME = 4096
# What the package advises for records in any order.
OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


@cache
def file(n: int) -> str:
    """Writes n records of noise, each for itself, to a file that goes with this process."""
    from array_record.python.array_record_module import ArrayRecordWriter

    folder = TemporaryDirectory(prefix="bushel-benchmarks-")
    atexit.register(folder.cleanup)
    path = str(Path(folder.name) / "noise.array_record")
    writer = ArrayRecordWriter(path, "group_size:1")
    noise = np.random.default_rng(n).bytes(n * RECORD_BYTES)
    for start in range(0, len(noise), RECORD_BYTES):
        writer.write(noise[start : start + RECORD_BYTES])
    writer.close()
    return path


@cache
def reader(n: int) -> Any:
    from array_record.python.array_record_module import ArrayRecordReader

    return ArrayRecordReader(file(n), OPTIONS)


@cache
def source(lib: ModuleType, n: int) -> Any:
    """Opens the file once: that is no part of an epoch."""
    return lib.sources.ArrayRecordDataSource(file(n))


def parse(record: bytes) -> Batch:
    return np.frombuffer(record, np.uint8)


def by_hand(n: int) -> Iterator[Batch]:
    read = reader(n).read
    order = np.random.default_rng(SEED).permutation(n).tolist()
    for start in range(0, n, AT_A_TIME):
        rows = [parse(record) for record in read(order[start : start + AT_A_TIME])]
        for first in range(0, len(rows), BATCH_SIZE):
            yield np.stack(rows[first : first + BATCH_SIZE])


def loader(lib: ModuleType, n: int) -> Iterable[Batch]:
    class Parse(lib.transforms.Map):  # type: ignore[name-defined, misc]
        def map(self, record: bytes) -> Batch:
            return parse(record)

    operations = [Parse(), lib.transforms.Batch(batch_size=BATCH_SIZE)]
    return epoch_loader(lib, source(lib, n), operations, SEED)


def dataset(lib: ModuleType, n: int) -> Any:
    return lib.MapDataset.source(source(lib, n)).shuffle(seed=SEED).map(parse).batch(BATCH_SIZE)


def dataset_inline(lib: ModuleType, n: int) -> Iterable[Batch]:
    pipeline: Iterable[Batch] = dataset(lib, n).to_iter_dataset(lib.ReadOptions(num_threads=0))
    return pipeline


class Batched:
    """A dataset for torch, which asks for a batch in one call where it can."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, key: int) -> Batch:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[int]) -> list[Batch]:
        # Torch warns of arrays that cannot be written to.
        return [parse(record).copy() for record in reader(self.n).read(list(keys))]


def with_torch(n: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    batches: Iterable[Any] = DataLoader(Batched(n), batch_size=BATCH_SIZE, shuffle=True)
    return batches


GOAL = Goal(1.0, "hand")
WORKLOAD = Workload(
    name="array_record",
    title="ArrayRecord, 200 bytes",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=by_hand,
    torch=with_torch,
    forms=(
        Form("DataLoader", loader, GOAL),
        Form("MapDataset", dataset, GOAL),
        Form("MapDataset, 0 threads", dataset_inline, GOAL),
    ),
)
