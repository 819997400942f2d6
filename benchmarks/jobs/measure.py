"""Measures the entries of a job in turns, each reading in a process of its own."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchmarks.jobs.job import Entry, Job
from benchmarks.process import FAREWELL_TIMEOUT_S, ROOT, last_words

ANSWER_TIMEOUT_S = 90.0
# It takes two processes more, and differs by less than the systems do.
ROUNDS_WITH_RESUME = 2


class ReadingFailed(Exception):
    """A process raised, died or did not answer; the text is the last thing it said."""


@dataclass(slots=True)
class Outcome:
    """What a job gave: for each entry a dict of figures for each round, and what went wrong."""

    readings: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def measure(
    job: Job,
    entries: Sequence[Entry],
    folder: Path,
    rounds: int,
    seconds: float,
    outcome: Outcome,
    tell: Callable[[str, dict[str, float]], None],
) -> None:
    """Goes round all entries, then round again, so that a slow minute hits all of them alike.

    What is measured is in `outcome` at once, and told, so that a run that is cut short has it.
    """
    for number in range(1, rounds + 1):
        for entry in entries:
            if entry.name in outcome.failures:
                continue
            try:
                figures = ask(job, entry, folder, do="read", seconds=seconds, check=number == 1)
                if wrong := figures.pop("wrong"):
                    raise ReadingFailed(f"NOT THE SAME WORK: it delivered {wrong}")
                if entry.resume is not None and number <= ROUNDS_WITH_RESUME:
                    figures |= resumed(job, entry, folder)
                outcome.readings.setdefault(entry.name, []).append(figures)
                tell(f"{job.name} {number}/{rounds}: {entry.name}", figures)
            except ReadingFailed as failure:
                outcome.failures[entry.name] = str(failure)
                outcome.readings.pop(entry.name, None)
                print(f"{job.name}: {entry.name} failed: {failure}", file=sys.stderr, flush=True)


def resumed(job: Job, entry: Entry, folder: Path) -> dict[str, float]:
    """Kills one process after it has said where it is, and goes on in another."""
    saved = ask(job, entry, folder, do="save")
    answer = ask(job, entry, folder, do="resume", state=saved["state"])
    return {"resume": answer["resume"], "exact": float(answer["next"] == saved["next"])}


def ask(job: Job, entry: Entry, folder: Path, **request: Any) -> dict[str, Any]:
    request |= {"job": job.name, "entry": entry.name, "folder": str(folder)}
    with tempfile.TemporaryFile() as errors, tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(request, f)
        f.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.jobs.reading", f.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            # So that all its processes can be ended together. Not a session of its own, for which
            # Linux would forget the priority that the whole run may have been given.
            process_group=0,
        )
        assert process.stdout is not None
        try:
            readable, _, _ = select.select([process.stdout], [], [], ANSWER_TIMEOUT_S)
            if not readable:
                raise ReadingFailed(f"no answer within {ANSWER_TIMEOUT_S:g} s")
            line = process.stdout.readline()
            if not line:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(FAREWELL_TIMEOUT_S)
                raise ReadingFailed(last_words(errors, process.returncode))
            answer: dict[str, Any] = json.loads(line)
            if request["do"] != "save":
                wait_for_group(process)
            return answer
        finally:
            kill(process, signal.SIGKILL)
            process.wait()
            process.stdout.close()


def wait_for_group(process: "subprocess.Popen[bytes]") -> None:
    """Lets it end by itself, workers and all, since shared memory outlives who is killed."""
    deadline = monotonic() + FAREWELL_TIMEOUT_S
    while monotonic() < deadline:
        process.poll()  # one that has ended stays in the group until it is asked for
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        sleep(0.01)


def kill(process: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
