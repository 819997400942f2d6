"""Records worth waiting for, with default options: these serve cheap and slow records alike."""

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

BATCH_SIZE = 16
RECORDS = 2000 * BATCH_SIZE
THREADS = 16  # as many as Grain reads with when not told otherwise
AHEAD = 4 * THREADS
# Half noise and half zeros, so that zlib neither gives up nor races through.
PAYLOAD = np.random.default_rng(0).bytes(32_768) + bytes(32_768)


def wait_for_record(x: int) -> int:
    """Stands for a read from a remote store."""
    time.sleep(0.002)
    return x


def compress_record(x: int) -> int:
    """Works without the GIL, as decoding does; gives the record's number and a checksum."""
    return x + len(zlib.compress(PAYLOAD, 1))


@dataclass(frozen=True, slots=True)
class HeavyRecords:
    """Records that `work` makes from their numbers, in order, in batches."""

    work: Callable[[int], int]

    def by_hand(self, n: int) -> Iterator[NDArray[np.int64]]:
        waiting: deque[Future[int]] = deque()
        batch = []
        with ThreadPoolExecutor(THREADS) as pool:
            submitted = (pool.submit(self.work, x) for x in range(n))
            waiting.extend(islice(submitted, AHEAD))
            while waiting:
                batch.append(waiting.popleft().result())
                waiting.extend(islice(submitted, 1))
                if len(batch) == BATCH_SIZE:
                    yield np.array(batch)
                    batch = []

    def dataset(self, lib: ModuleType, n: int) -> Iterable[NDArray[np.int64]]:
        mapped = lib.MapDataset.range(n).map(self.work)
        pipeline: Iterable[NDArray[np.int64]] = mapped.batch(BATCH_SIZE)
        return pipeline

    def loader(self, lib: ModuleType, n: int) -> Iterable[NDArray[np.int64]]:
        """Works in the source: that is the part which Grain's loader gives to its threads."""
        pipeline: Iterable[NDArray[np.int64]] = lib.DataLoader(
            data_source=WorkingSource(self.work, n),
            sampler=lib.samplers.SequentialSampler(n, lib.sharding.NoSharding()),
            operations=[lib.transforms.Batch(batch_size=BATCH_SIZE)],
        )
        return pipeline

    def with_torch(self, n: int) -> Iterable[Any]:
        from torch.utils.data import DataLoader

        source = WorkingSource(self.work, n)
        batches: Iterable[Any] = DataLoader(source, batch_size=BATCH_SIZE)
        return batches


@dataclass(frozen=True, slots=True)
class WorkingSource:
    work: Callable[[int], int]
    n: int

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, key: int) -> int:
        return self.work(key)


def heavy_workload(name: str, title: str, work: Callable[[int], int]) -> Workload:
    records = HeavyRecords(work)
    goal = Goal(0.9, "hand")
    return Workload(
        name=name,
        title=title,
        gauge=Throughput(RECORDS, BATCH_SIZE, proof_records=8 * BATCH_SIZE),
        hand=records.by_hand,
        torch=records.with_torch,
        forms=(
            Form("MapDataset", records.dataset, goal),
            Form("DataLoader", records.loader, goal),
        ),
    )


SLOW = heavy_workload("slow_records", "slow records", wait_for_record)
COMPRESSED = heavy_workload("compressed_records", "compressed records", compress_record)
