"""`python -m benchmarks busy`: what jobs cost while other programs have the cores.

Each cell is a process of its own, in turns, with 0, 1 and 4 processes that spin beside it. The
laws: with default options no job uses more than 1.15 times the CPU that it uses inline, and none
is more than 10 % slower than the better of inline and threads under the same load. (Of threads
where they pay on a quiet machine: see `report.PAYS`.) Each row is written as it is measured, and a
run that is cut short ends with what it has.
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.busy.beside import busy_processes
from benchmarks.busy.jobs import JOBS, WAYS
from benchmarks.busy.report import (
    MOST_CPU,
    MOST_TIME,
    Reading,
    Readings,
    broken,
    line,
    render,
    row,
)

ROOT = Path(__file__).resolve().parents[2]
LOADS = (0, 1, 4)
# A cell takes a few seconds; one that takes this long hangs.
CELL_TIMEOUT_S = 60.0


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks busy", description=__doc__)
    parser.add_argument("--only", action="append", choices=JOBS, help="this job (again: more)")
    parser.add_argument("--ways", default=",".join(WAYS), help="separated by commas: %(default)s")
    parser.add_argument(
        "--loads", default=",".join(map(str, LOADS)), help="numbers of busy processes: %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run-in", type=float, default=1.0, help="seconds before the clock runs")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each reading")
    parser.add_argument("--quick", action="store_true", help="one round, loads 0 and 4")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every reading here")
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds, options.loads = 1, "0,4"
    options.ways = options.ways.split(",")
    if unknown := set(options.ways) - set(WAYS):
        parser.error(f"unknown way {sorted(unknown)[0]!r}; there are {', '.join(WAYS)}")
    options.loads = [int(load) for load in options.loads.split(",")]
    return options


def measure(job: str, way: str, run_in: float, seconds: float) -> Reading:
    """Runs one cell; leaves none of its processes behind."""
    command = [sys.executable, "-m", "benchmarks.busy.cell", job, way, str(run_in), str(seconds)]
    answer = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, process_group=0, check=True,
        timeout=CELL_TIMEOUT_S,
    )  # fmt: skip
    reading: Reading = json.loads(answer.stdout)
    return reading


def measure_all(options: argparse.Namespace, readings: Readings, failures: list[str]) -> None:
    """Measures every cell, round after round; writes each row as soon as it is there."""
    for number in range(options.rounds):
        # There and back, so that what drifts has no favourites.
        ways = options.ways if number % 2 == 0 else options.ways[::-1]
        for job in options.only or JOBS:
            for load in options.loads:
                this = Readings()
                with busy_processes(load):
                    for way in ways:
                        try:
                            reading = measure(job, way, options.run_in, options.seconds)
                        except (subprocess.SubprocessError, json.JSONDecodeError) as error:
                            failures.append(f"{job}, {way}, {load} busy: {error}")
                        else:
                            this.add((job, load, way), reading)
                for key, (reading,) in this.cells.items():
                    readings.add(key, reading)
                print(f"{number + 1} {line(row(this, job, load))}", flush=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    readings = Readings()
    failures: list[str] = []
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        measure_all(options, readings, failures)
    except KeyboardInterrupt:
        failures.append("cut short")
    print(f"\n{render(readings)}")
    print(
        "\nMicroseconds a record: by the clock / of CPU, workers included (threads of all its "
        "processes), medians of the rounds; ratios within a round, with how far their median may "
        f"be off. The laws: CPU at most {MOST_CPU} times that without threads, time at most "
        f"{MOST_TIME} times the better of inline and threads (of workers: without threads in them)."
    )
    wrong = broken(readings)
    print("\n".join([*wrong, *failures]) or "All laws hold.")
    if options.json:
        cells = [
            {"job": job, "busy": load, "way": way, "readings": rows}
            for (job, load, way), rows in readings.cells.items()
        ]
        options.json.write_text(json.dumps(cells, indent=1) + "\n")
    return int(bool(failures) or any(text.startswith("BROKEN") for text in wrong))
