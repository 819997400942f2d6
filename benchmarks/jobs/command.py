"""`python -m benchmarks jobs`: measures every system in every job and prints a table for each."""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.jobs.jobs import JOBS
from benchmarks.jobs.measure import Outcome, measure
from benchmarks.jobs.report import render, tell
from benchmarks.process import ROOT

CONVERSION_TIMEOUT_S = 300.0


def main(argv: list[str]) -> int:
    options = arguments(argv)
    rounds = options.repeats or (1 if options.quick else 3)
    seconds = 0.4 if options.quick else 1.0
    chosen = [JOBS[name] for name in options.only or JOBS]
    failed = interrupted = False
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as `timeout` ends a run
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bushel-jobs-") as temporary:
        folder = options.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for job in chosen:
            entries = [e for e in job.entries if wanted(e.name, options.systems)]
            absent = [entry.name for entry in entries if not entry.installed]
            for name in absent:
                print(f"{job.name}: {name} is not installed, and left out", file=sys.stderr)
            entries = [entry for entry in entries if entry.installed]
            unprepared: dict[str, str] = {}
            for entry in entries:
                for format_name in (*job.prepared, *entry.prepared):
                    if wrong := prepare(folder, format_name):
                        unprepared[entry.name] = wrong
                        break
            outcome = Outcome(failures=unprepared)
            try:
                measure(job, entries, folder, rounds, seconds, outcome, partial(tell, job))
            except KeyboardInterrupt:
                interrupted = True
            failed = failed or bool(outcome.failures)
            print(render(job, outcome), end="\n\n", flush=True)
            report[job.name] = as_json(outcome)
            if interrupted:
                break
    print(
        f"Medians of {rounds} rounds of {seconds:g} s, each in a new process. /hand is the rate "
        "as a share of that of the same work by hand, round by round."
        + (" Interrupted: the last table is of what had been measured." if interrupted else "")
    )
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 130 if interrupted else 1 if failed else 0


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks jobs",
        description="Compares whole jobs, from files to batches, with what else people use.",
    )
    parser.add_argument(
        "--only", action="append", metavar="JOB", choices=JOBS,
        help=f"run this job alone (may be given again): {', '.join(JOBS)}",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds (3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="a rough look in a few minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every reading here")
    parser.add_argument(
        "--systems", metavar="A,B", type=lambda text: text.lower().split(","),
        help="systems beside those by hand to measure, by the beginnings of their names",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER",
        help="where to make the data, and find it the next time; else they go with the run",
    )  # fmt: skip
    return parser.parse_args(argv)


def wanted(name: str, systems: list[str] | None) -> bool:
    return systems is None or name.lower().startswith(("by hand", *systems))


def prepare(folder: Path, name: str) -> str | None:
    """Writes one format of the data, in a process of its own; gives what went wrong, if it did."""
    done = folder / f".{name}"
    if done.exists():
        return None
    print(f"writing {name}", file=sys.stderr, flush=True)
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.jobs.convert", str(folder), name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=CONVERSION_TIMEOUT_S,
        check=False,
    )
    if process.returncode:
        last = process.stdout.decode(errors="replace").strip().splitlines()[-1:]
        return f"its data could not be written: {''.join(last)}"
    done.touch()
    return None


def as_json(outcome: Outcome) -> dict[str, Any]:
    return {"readings": outcome.readings, "failures": outcome.failures}
