"""The memory of two workers over a source of 2 GB in the trainer's memory."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import proof
from benchmarks.records import Columns, Record
from benchmarks.workload import MEGABYTES, Form, Goal, Make, Unit, Workload
from benchmarks.workloads.loader import epoch_loader, torch_loader

BATCH_SIZE = 128
BATCHES = 100
WORKERS = 2
SIDE = 64
SEED = 42
RECORDS = 2**31 // SIDE**2
QUICK_RECORDS = 2**28 // SIDE**2
PROOF_RECORDS = 8 * BATCH_SIZE


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Measures what each worker holds for itself alone after 100 batches.

    Whatever else the trainer has started counts too, and is divided among the workers. Memory
    that the processes share does not count.
    """

    @property
    def unit(self) -> Unit:
        return MEGABYTES

    @property
    def fresh_process(self) -> bool:
        return True

    def prove(self, make: Make) -> proof.Proof:
        return proof.of(list(make(PROOF_RECORDS)))

    def read(self, make: Make, seconds: float) -> float:
        iterator = iter(make(RECORDS if seconds >= 1 else QUICK_RECORDS))
        for _ in islice(iterator, BATCHES):
            pass
        held = sum(own_bytes(pid) for pid in descendants(os.getpid()))
        proof.close(iterator)
        return held / WORKERS / 1e6


def descendants(pid: int) -> Iterator[int]:
    """Gives the processes that this one has started, and that those have started."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from descendants(child)


def own_bytes(pid: int) -> int:
    """Adds up the pages that no other process has, mapping by mapping.

    A page of a file or of shared memory that only one process has touched so far is private by
    Linux's count, but others find it too; such pages are not anonymous.
    """
    kilobytes = private = 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, value, *_ = line.split()
        if name in ("Private_Clean:", "Private_Dirty:"):
            private += int(value)
        elif name == "Anonymous:":
            kilobytes += min(private, int(value))
            private = 0
    return kilobytes * 1024


def columns(n: int) -> Columns:
    """Makes n images, different from their neighbours, with every page of them written to."""
    shades = (np.arange(n) % 251 + 1).astype(np.uint8)
    images = np.empty((n, SIDE, SIDE), np.uint8)
    images[:] = shades[:, None, None]
    return {"image": images}


def loader(lib: ModuleType, n: int) -> Iterable[Columns]:
    operations = [lib.transforms.Batch(batch_size=BATCH_SIZE)]
    return epoch_loader(lib, columns(n), operations, SEED, records=n, workers=WORKERS)


def shared_loader(lib: ModuleType, n: int) -> Iterable[Columns]:
    """Keeps the records as bytes in a source that lives in shared memory."""

    class Unpack(lib.transforms.Map):  # type: ignore[name-defined, misc]
        def map(self, record: bytes) -> Record:
            return {"image": np.frombuffer(record, np.uint8).reshape(SIDE, SIDE)}

    source = lib.sources.SharedMemoryDataSource([i.tobytes() for i in columns(n)["image"]])
    operations = [Unpack(), lib.transforms.Batch(batch_size=BATCH_SIZE)]
    return epoch_loader(lib, source, operations, SEED, workers=WORKERS)


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns for torch, which reads one record at a time."""

    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["image"])

    def __getitem__(self, key: int) -> Record:
        return {"image": self.columns["image"][key]}


def with_torch(n: int) -> Iterable[Any]:
    """Forks, and so finds the source in its workers without a copy."""
    return torch_loader(Rows(columns(n)), BATCH_SIZE, WORKERS)


GOAL = Goal(200.0)
WORKLOAD = Workload(
    name="shared_source_memory",
    title="memory of a worker, 2 GB source",
    gauge=WorkerMemory(),
    torch=with_torch,
    forms=(
        # Grain would copy the source to each worker, twice: 15 GB in all.
        Form("columns", loader, GOAL, grain_agrees=None),
        Form("SharedMemoryDataSource", shared_loader, GOAL, grain_agrees="total"),
    ),
)
