"""A pipeline written to ArrayRecord shards by all cores, against processes that do it by hand."""

import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import ModuleType
from typing import Any

from benchmarks import proof
from benchmarks.packed_noise import packed
from benchmarks.workload import RATE, Form, Goal, Make, Unit, Workload

RECORDS = 49_152
SHARDS = 16


def cores() -> int:
    return len(os.sched_getaffinity(0))


def _write_by_hand(task: tuple[str, int, int]) -> int:
    from array_record.python.array_record_module import ArrayRecordWriter

    path, start, stop = task
    writer = ArrayRecordWriter(path, "group_size:1")
    for number in range(start, stop):
        writer.write(packed(number))
    writer.close()
    return stop - start


def by_hand(n: int) -> Any:
    """Forks a process for each core, which writes one shard after the other."""

    def go(folder: str) -> int:
        bounds = [n * shard // SHARDS for shard in range(SHARDS + 1)]
        tasks = [(f"{folder}/{k}", bounds[k], bounds[k + 1]) for k in range(SHARDS)]
        with multiprocessing.get_context("fork").Pool(cores()) as pool:
            return sum(pool.imap_unordered(_write_by_hand, tasks))

    return go


def written(lib: ModuleType, n: int) -> Any:
    def go(folder: str) -> int:
        ds = lib.MapDataset.range(n).map(packed)
        return int(ds.write(f"{folder}/a-*.arrayrecord", shards=SHARDS).records)

    return go


@dataclass(frozen=True, slots=True)
class WriteRate:
    """Measures how many records a second are written, start and end included."""

    @property
    def unit(self) -> Unit:
        return RATE

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        with TemporaryDirectory() as folder:
            count = f"{make(256)(folder)} records"
            assert any(Path(folder).iterdir())
        return proof.Proof(total=count, order=count)

    def read(self, make: Make, seconds: float) -> float:
        go = make(RECORDS)
        count, start = 0, perf_counter()
        while perf_counter() - start < seconds:
            with TemporaryDirectory() as folder:
                count += go(folder)
        return count / (perf_counter() - start)


WORKLOAD = Workload(
    name="written",
    title="16 kB compressed for each record, written to 16 ArrayRecord shards by all cores",
    gauge=WriteRate(),
    hand=by_hand,
    forms=(Form("write", written, Goal(0.9, "hand"), grain_agrees=None),),
)
