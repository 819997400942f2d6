"""`python -m benchmarks autotune`: `num_workers="auto"` beside every fixed number of workers.

Each pipeline runs with 1, 2, ... workers and with "auto", in turn, by a loop that does nothing and
by one that takes a while for each batch (it sleeps, as one whose step is on an accelerator). What
counts is the time of a step once it runs: after the same while for all, in which "auto" is to have
found its number. Shown is the speed of the best fixed number, and of "auto" as a share of the best
run of its round, with the workers that it had in the end and how often it changed them; the median
of the rounds. The best of several runs is better than any of them by their noise, so "auto" is also
shown as a share of the run with as many workers as it had.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Literal

import bushel
from benchmarks.simulation import in_python, light, picture, waiting
from bushel import MapDataset, MultiprocessingOptions
from bushel.core.machine import available_cores

# "auto" is to be so near to the best.
GOAL = 0.9
_ENDLESS = 1 << 40

PIPELINES: dict[str, Callable[[], Any]] = {
    "light": lambda: MapDataset.range(_ENDLESS).map(light).batch(64),
    "heavy": lambda: MapDataset.range(_ENDLESS).map(in_python).batch(32),
    "waits": lambda: MapDataset.range(_ENDLESS).map(waiting).batch(8),
    "12 MB a batch": lambda: MapDataset.range(_ENDLESS).map(picture).batch(256),
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks autotune", description=__doc__)
    parser.add_argument("--only", action="append", choices=PIPELINES, help="this pipeline alone")
    parser.add_argument(
        "--most", type=int, default=int(available_cores()), help="workers (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run (%(default)s)")
    parser.add_argument("--begin", type=float, default=4.0, help="before that (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of all of it (%(default)s)")
    parser.add_argument("--training", default="0,0.02", help="seconds of a step (%(default)s)")
    options = parser.parse_args(argv)
    print(f"{'pipeline':14} {'training':>8}  best fixed         auto   workers, changes")
    missed = 0
    for name in options.only or PIPELINES:
        for step in map(float, options.training.split(",")):
            rounds = [_round(PIPELINES[name], step, options) for _ in range(options.rounds)]
            fixed = {n: median(one[n][0] for one in rounds) for n in rounds[0] if n != "auto"}
            best = max(fixed, key=lambda n: fixed[n])
            shares = sorted(one["auto"][0] / max(_fixed(one)) for one in rounds)
            workers, changes = rounds[-1]["auto"][1:]
            as_many = [
                one["auto"][0] / one[one["auto"][1]][0] for one in rounds if one["auto"][1] in one
            ]
            missed += median(shares) < GOAL
            print(
                f"{name:14} {1e3 * step:5.0f} ms  {best} workers {fixed[best]:7.4g}/s  "
                f"{median(shares):5.2f} ({shares[0]:.2f} to {shares[-1]:.2f})  {workers}, {changes}"
                f"   as many, fixed: {', '.join(f'{share:.2f}' for share in as_many) or 'none'}"
                f"   all fixed: {', '.join(f'{n}: {rate:.4g}' for n, rate in fixed.items())}",
                flush=True,
            )
    print(f"{missed} below {GOAL} of the best")
    return int(missed > 0)


_Seen = tuple[float, int, int]
_Number = int | Literal["auto"]


def _fixed(one: dict[_Number, _Seen]) -> list[float]:
    return [rate for number, (rate, _, _) in one.items() if number != "auto"]


def _round(make: Callable[[], Any], step: float, options: Any) -> dict[_Number, _Seen]:
    numbers: list[_Number] = ["auto", *range(1, options.most + 1)]
    return {n: _run(make(), n, step, options.begin, options.seconds) for n in numbers}


def _run(dataset: Any, workers: _Number, step: float, begin: float, seconds: float) -> _Seen:
    """Steps a second of a loop that has begun; the workers in the end, and their changes."""
    stream = dataset.to_iter_dataset().mp_prefetch(MultiprocessingOptions(num_workers=workers))
    steps = 0
    with bushel.iterate(stream) as iterator:
        began = perf_counter()
        for _ in iterator:
            now = perf_counter()
            if now - began > begin + seconds:
                break
            steps += now - began > begin
            if step:
                time.sleep(step)
        (pool,) = iterator.stats().workers
    changes = [change for change in pool.changes if change.what == "workers"]
    return steps / seconds, pool.workers, len(changes)
