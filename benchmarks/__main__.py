"""`python -m benchmarks`: runs the workloads and prints one table, or runs a command."""

import argparse
import json
import os
import platform
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import table
from benchmarks.compiled import compile_as_installed, packages
from benchmarks.figures import draw, from_rows
from benchmarks.progress import Progress
from benchmarks.run import installed, run
from benchmarks.workload import SYSTEMS
from benchmarks.workloads import WORKLOADS

# Modules whose `main(argv)` takes over when their name comes first on the command line.
COMMANDS = {
    "jobs": "benchmarks.jobs",
    "growth": "benchmarks.growth",
    "busy": "benchmarks.busy",
    "heavy": "benchmarks.heavy",
    "statistics": "benchmarks.statistics",
    "simulation": "benchmarks.simulation",
    "autotune": "benchmarks.autotune",
    "scale": "benchmarks.scale",
    "ray": "benchmarks.on_ray",
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compares bushel with the same work by hand, with Grain and with torch.",
        epilog=f"Other benchmarks: python -m benchmarks {'|'.join(COMMANDS)} [--help]",
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=WORKLOADS,
        help=f"run this workload alone (may be given again): {', '.join(WORKLOADS)}",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, metavar="N", help="rounds (5; 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="a rough look in a few minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every reading here")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="also draw the ratios, as SVG")
    parser.add_argument(
        "--systems", default=",".join(SYSTEMS), metavar="A,B",
        help="systems to measure, separated by commas (%(default)s)",
    )  # fmt: skip
    options = parser.parse_args()
    options.systems = options.systems.split(",")
    if unknown := set(options.systems) - set(SYSTEMS):
        parser.error(f"unknown system {sorted(unknown)[0]!r}; there are {', '.join(SYSTEMS)}")
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats {options.repeats} would measure nothing; give 1 or more")
    for name, path in (("--json", options.json), ("--draw", options.draw)):
        if path and not path.parent.is_dir():
            parser.error(f"{name} {path}: there is no folder {path.parent}")
    return options


def main() -> int:
    if missing := compile_as_installed(packages()):
        print(f"{len(missing)} files have no bytecode: starts take longer", file=sys.stderr)
    if command := COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else ""):
        code: int = import_module(command).main(sys.argv[2:])
        return code
    options = arguments()
    repeats = options.repeats or (2 if options.quick else 5)
    seconds = 0.2 if options.quick else 1.0
    systems = frozenset(s for s in options.systems if installed(s))
    for absent in sorted(set(options.systems) - systems):
        print(f"{absent} is not installed: its column stays empty", file=sys.stderr)

    chosen = [WORKLOADS[name] for name in options.only or WORKLOADS]
    progress = Progress(len(chosen))
    outcomes = []
    interrupted = False
    try:
        for workload in chosen:
            progress.begin(workload.title)
            outcomes.append(run(workload, systems, repeats, seconds, progress))
    except KeyboardInterrupt:
        interrupted = True
    progress.end()

    rows = [row for outcome in outcomes for row in table.rows(outcome)]
    complaints = table.complaints(outcomes)
    print(table.render(rows))
    print(
        f"\nMedians of {repeats} rounds of {seconds:g} s on {machine()}. Above 1, bushel is ahead."
    )
    for complaint in complaints:
        print(complaint)
    if interrupted:
        print(f"Interrupted: {len(chosen) - len(outcomes)} workloads are missing.")
    if options.draw and rows:
        told = f"Medians of {repeats} rounds of {seconds:g} s on {machine()}."
        options.draw.write_text(draw(from_rows(rows), told))
    if not options.only and not interrupted:
        print("\nWorkers on a Ray cluster, beside Ray Data:")
        on_ray = ["--repeats", str(min(3, repeats)), *(["--seconds", "1"] if options.quick else [])]
        if import_module(COMMANDS["ray"]).main(on_ray):
            complaints.append("ray: NOT THE SAME WORK")
    if options.json:
        report = {
            "machine": machine(),
            "versions": versions(),
            "rows": [row.to_json() for row in rows],
            "complaints": complaints,
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 130 if interrupted else 1 if complaints else 0


def machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}"


def versions() -> dict[str, str]:
    found = {}
    for package in ("numpy", "bushel", "grain", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
