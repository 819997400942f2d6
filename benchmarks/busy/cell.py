"""One cell, in a process of its own: a job, a way to run it, so many seconds.

`python -m benchmarks.busy.cell JOB WAY RUN_IN SECONDS` prints what an element took. The process
leads a process group, so that its workers are found and their CPU is counted while they live.
"""

import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.busy.jobs import JOBS
from benchmarks.by_hand import on_threads
from benchmarks.throughput import take_for

WORKERS = 2
# Long enough that a look at the clock costs nothing, short enough to stop in time.
SECONDS_BETWEEN_LOOKS = 0.01


def elements(lib: Any, dataset: Any, way: str, threads: int) -> Iterator[Any]:
    """Starts a job in one of the ways.

    `threads` is by hand: a pool that asks for one batch each, as many as serve the job best.
    """
    if way == "threads":
        return on_threads(dataset.__getitem__, count(), threads, 2 * threads)
    none = lib.ReadOptions(num_threads=0)
    stream = dataset.to_iter_dataset(none if way in ("inline", "workers0") else None)
    if way in ("workers", "workers0"):
        stream = stream.mp_prefetch(lib.MultiprocessingOptions(num_workers=WORKERS))
    iterator: Iterator[Any] = iter(stream)
    return iterator


def group() -> list[Path]:
    """Names the processes of this one's group, itself among them."""
    own, members = os.getpgrp(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(fields(folder)[2]) == own:
                members.append(folder)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return members


def fields(folder: Path) -> list[str]:
    """Gives what the system knows of a process, from its state on: a name may hold spaces."""
    return (folder / "stat").read_text().rpartition(") ")[2].split()


def cpu_seconds() -> float:
    """Adds up the CPU that the group has used, with that of members that have ended."""
    ticks = sum(sum(map(int, fields(folder)[11:15])) for folder in group())
    return ticks / os.sysconf("SC_CLK_TCK")


def threads_of_group() -> int:
    return sum(len(list((folder / "task").iterdir())) for folder in group())


def main(job_name: str, way: str, run_in: float, seconds: float) -> None:
    job = JOBS[job_name]
    stream = elements(import_module("bushel"), job.make(import_module("bushel")), way, job.threads)
    began = perf_counter()
    next(stream)
    first = perf_counter() - began
    taken, spent = take_for(run_in, stream, 1)
    # What came together is not counted as if it had come one by one.
    between_looks = max(1, int(SECONDS_BETWEEN_LOOKS * taken / spent))
    cpu_began = cpu_seconds()
    taken, spent = take_for(seconds, stream, between_looks)
    cpu = cpu_seconds() - cpu_began
    each = taken * job.batch_size
    answer = {
        "first": first,
        "wall": spent / each,
        "cpu": cpu / each,
        "threads": threads_of_group(),
    }
    print(json.dumps(answer), flush=True)
    os._exit(0)  # Ways end in unlike times, and a way's end is not what is measured.


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
