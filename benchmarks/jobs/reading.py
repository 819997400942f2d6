"""One entry of one job in a new process: `python -m benchmarks.jobs.reading REQUEST.json`.

Answers with a line of JSON on standard output.
"""

import base64
import contextlib
import hashlib
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

from benchmarks.contender import end_with_parent
from benchmarks.jobs.job import Entry, Job
from benchmarks.jobs.jobs import JOBS

TICKS = os.sysconf("SC_CLK_TCK")
MEMORY_SECONDS = 0.4
BATCHES_BEFORE_THE_STATE = 5


def main(request: dict[str, Any]) -> None:
    end_with_parent()
    # Libraries may print; the answer keeps the real standard output to itself.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    job = JOBS[request["job"]]
    entry = job.entry(request["entry"])
    folder = Path(request["folder"])
    entry.bring()
    answer: dict[str, Any]
    match request["do"]:
        case "read":
            answer = read(job, entry, folder, request["seconds"])
            answer["wrong"] = check(job, entry, folder) if request["check"] else None
        case "save":
            answer = save(entry, folder)
        case _:
            answer = resume(entry, folder, request["state"])
    print(json.dumps(answer), file=answers, flush=True)
    if request["do"] == "save":
        signal.pause()  # and here it is killed


def read(job: Job, entry: Entry, folder: Path, seconds: float) -> dict[str, Any]:
    """Measures the first batch, then speed and work in full run, then memory."""
    start = perf_counter()
    batches = iter(entry.make(folder))
    next(batches)
    first_batch = perf_counter() - start

    run_for(seconds / 2, job, batches)
    work_before = cpu_seconds()
    units, spent = run_for(seconds, job, batches)
    work = cpu_seconds() - work_before

    memory = 0
    deadline = perf_counter() + MEMORY_SECONDS
    while perf_counter() < deadline:
        next(batches)
        memory = max(memory, memory_bytes())
        sleep(0.01)
    close(batches)
    return {
        "rate": units / spent,
        "first batch": first_batch,
        "cpu": work / units,
        "memory": memory,
    }


def run_for(seconds: float, job: Job, batches: Iterator[Any]) -> tuple[int, float]:
    units = 0
    start = perf_counter()
    while True:
        units += job.units_in(next(batches))
        spent = perf_counter() - start
        if spent >= seconds:
            return units, spent


def check(job: Job, entry: Entry, folder: Path) -> str | None:
    batches = iter(entry.make(folder))
    delivered = [
        {name: np.array(column) for name, column in batch.items()}
        for batch in islice(batches, job.checked_batches)
    ]
    close(batches)
    return job.check(folder, delivered)


def save(entry: Entry, folder: Path) -> dict[str, Any]:
    """Runs a little, says where it is and which batches come next."""
    assert entry.resume is not None
    stream = entry.resume(folder, None)
    batches = iter(stream)
    for _ in range(BATCHES_BEFORE_THE_STATE):
        next(batches)
    # Pickled, since not every state survives JSON (litdata's has integers for keys).
    state = base64.b64encode(pickle.dumps(stream.state())).decode()
    return {"state": state, "next": [digest(next(batches)) for _ in range(3)]}


def resume(entry: Entry, folder: Path, saved: str) -> dict[str, Any]:
    """Measures from building the loader to the batch after the state."""
    assert entry.resume is not None
    state = pickle.loads(base64.b64decode(saved))
    start = perf_counter()
    batches = iter(entry.resume(folder, state))
    first = next(batches)
    spent = perf_counter() - start
    answer = {
        "resume": spent,
        "next": [digest(first), digest(next(batches)), digest(next(batches))],
    }
    close(batches)
    return answer


def digest(batch: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(batch["tokens"]).tobytes()).hexdigest()


def close(batches: Iterator[Any]) -> None:
    if hasattr(batches, "close"):
        with contextlib.suppress(Exception):  # what was to be measured has been
            batches.close()


def processes(pid: int | None = None) -> Iterator[int]:
    """Gives this process, those that it has started, and those that they have."""
    pid = os.getpid() if pid is None else pid
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text().split()):
                yield from processes(child)


def cpu_seconds() -> float:
    """Adds up what all processes have computed, those included that have ended."""
    ticks = 0
    for pid in processes():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS


def memory_bytes() -> int:
    """Adds up the memory of all processes, a page that n of them share as an n-th for each."""
    total = 0
    for pid in processes():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
    sys.stdout.flush()
