"""Measures each system in turn, round after round, and prints a table."""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import proof
from benchmarks.on_ray.work import WORKERS, WORKS, Work

SYSTEMS = {
    "hand": "one process by hand",
    "local": "local workers",
    "on_ray": "workers on Ray",
    "on_ray_in_views": "workers on Ray, read-only",
    "ray_data": "Ray Data",
}
_PROVED = 6


def main(argv: list[str]) -> int:
    options = _arguments(argv)
    if find_spec("ray") is None or find_spec("ray.data") is None:
        print("ray is not installed: its rows are left out (`pip install 'ray[data]'`)")
        return 0
    works = [WORKS[name] for name in options.only or WORKS]
    systems = [name for name in SYSTEMS if name in {*(options.systems or SYSTEMS), "ray_data"}]
    report: dict[str, Any] = {}
    failed = False
    with _cluster(options.far):
        for work in works:
            differing = _differing(work, systems)
            for name in differing:
                print(f"{work.name}: NOT THE SAME WORK: {SYSTEMS[name]} delivers something else")
            failed = failed or bool(differing)
            rates: dict[str, list[float]] = {name: [] for name in systems}
            for _ in range(options.repeats):
                for name in systems:
                    rates[name].append(_rate(work, name, options.seconds))
            print(_table(work, rates), flush=True)
            report[work.name] = rates
    where = "another node than the trainer's" if options.far else "the trainer's node"
    print(
        f"\nBatches a second, medians of {options.repeats} rounds of {options.seconds:g} s; Ray on "
        f"{where}, all on this machine of {os.cpu_count()} cores."
    )
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if failed else 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ray", description=main.__doc__)
    parser.add_argument("--only", action="append", metavar="WORK", choices=WORKS)
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--systems", action="append", choices=SYSTEMS)
    parser.add_argument(
        "--far", action="store_true", help="workers on another node (of the same machine)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


@contextmanager
def _cluster(far: bool) -> Iterator[None]:
    """A cluster of this machine, which ends with the measurement."""
    import ray
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder, "HOME": folder}
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        common = {"object_store_memory": 1 << 30, "include_dashboard": False}
        head = {"num_cpus": 0 if far else WORKERS, **common}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            if far:
                cluster.add_node(num_cpus=WORKERS, **common)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
            yield
        finally:
            ray.shutdown()
            cluster.shutdown()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value


def _opened(work: Work, name: str) -> Iterator[Any]:
    make = work.by_hand if name == "hand" else getattr(work, name)
    return iter(make())


def _differing(work: Work, systems: list[str]) -> list[str]:
    """Those whose first batches are not the same in the same order."""
    orders = {}
    for name in {"hand": None, **dict.fromkeys(systems)}:
        batches = _opened(work, name)
        orders[name] = proof.order([next(batches) for _ in range(_PROVED)])
        proof.close(batches)
    return [name for name in systems if orders[name] != orders["hand"]]


def _rate(work: Work, name: str, seconds: float) -> float:
    """Batches a second, once it runs."""
    batches = _opened(work, name)
    try:
        start = time.perf_counter()
        for _ in range(16):
            _touch(next(batches))
        while time.perf_counter() - start < seconds / 2:
            _touch(next(batches))
        taken, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            _touch(next(batches))
            taken += 1
        return taken / (time.perf_counter() - start)
    finally:
        proof.close(batches)


def _touch(batch: Any) -> None:
    for array in batch.values():
        array.ravel()[0]


def _table(work: Work, rates: dict[str, list[float]]) -> str:
    lines = [f"\n{work.title}", "", "| | batches/s | times Ray Data |", "| --- | ---: | ---: |"]
    for name in rates:
        times = [a / b for a, b in zip(rates[name], rates["ray_data"], strict=True)]
        spread = f"{min(times):.2f} to {max(times):.2f}"
        lines.append(
            f"| {SYSTEMS[name]} | {statistics.median(rates[name]):.1f} | "
            f"{statistics.median(times):.2f} ({spread}) |"
        )
    return "\n".join(lines)
