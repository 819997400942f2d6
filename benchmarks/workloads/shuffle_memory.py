"""The memory that a shuffle over a billion records takes, against a list of a billion positions."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import ModuleType

from benchmarks import proof
from benchmarks.workload import MEGABYTES, Form, Goal, Make, Unit, Workload
from benchmarks.workloads.loader import epoch_loader

RECORDS = 10**9
ITERATED = 200_000
TIME_LIMIT_S = 1.0
SEED = 1


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """Measures how far a process grows over the first 200,000 records, or in one second."""

    @property
    def unit(self) -> Unit:
        return MEGABYTES

    @property
    def fresh_process(self) -> bool:
        return True

    def prove(self, make: Make) -> proof.Proof:
        opening = proof.first(make(RECORDS), 1000)
        return proof.Proof(total=f"{len(opening)} records", order=proof.order(opening))

    def read(self, make: Make, seconds: float) -> float:
        before = peak = resident_bytes()
        start = perf_counter()
        iterator = iter(make(RECORDS))
        for number in range(ITERATED):
            next(iterator)
            if number % 1000 == 0:
                peak = max(peak, resident_bytes())
                if perf_counter() - start > TIME_LIMIT_S:
                    break
        peak = max(peak, resident_bytes())
        proof.close(iterator)
        return (peak - before) / 1e6


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def dataset(lib: ModuleType, n: int) -> Iterable[int]:
    pipeline: Iterable[int] = lib.MapDataset.range(n).shuffle(seed=SEED)
    return pipeline


def loader(lib: ModuleType, n: int) -> Iterable[int]:
    return epoch_loader(lib, lib.sources.RangeDataSource(0, n, 1), [], SEED)


GOAL = Goal(50.0)
WORKLOAD = Workload(
    name="shuffle_memory",
    title="memory of a shuffle over 10^9 records",
    gauge=MemoryGrowth(),
    # By hand it is `np.random.permutation(10**9)`: eight bytes a position, too many to try.
    stated={"hand": 8 * RECORDS / 1e6},
    forms=(Form("MapDataset", dataset, GOAL), Form("DataLoader", loader, GOAL)),
)
