"""`python -m benchmarks autotune`: `num_workers="auto"` beside every fixed number of workers.

Each pipeline runs with 1, 2, ... workers and with "auto", in turn, by a loop that does nothing and
by one that takes a while for each batch (it sleeps, as one whose step is on an accelerator). What
counts is the time of a step once it runs: after the same while for all, in which "auto" is to have
found its number. Shown is the speed of the best fixed number, and of "auto" as a share of the best
run of its round, with the workers that it had in the end and how often it changed them; the median
of the rounds. The best of several runs is better than any of them by their noise, so "auto" is also
shown as a share of the run with as many workers as it had.

Some pipelines change while they run, and in "step changes" the training does: measured is what
comes after that. `--beside` has programs that only compute run at the same time.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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


def computing(seconds: float, number: int) -> int:
    """Computes for so long, and holds the interpreter's lock."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(500))
    return number


def mixed(number: int) -> Any:
    """Waits as long as it computes."""
    time.sleep(0.002)
    return computing(0.002, number)


def costs_more_from(at: float, number: int) -> int:
    """Takes ten times as long from a moment on, by the clock that all processes share."""
    return computing(0.005 if time.monotonic() >= at else 0.0005, number)


# Each is made of the moment at which it is to change, if it does.
PIPELINES: dict[str, Callable[[float], Any]] = {
    "light": lambda _: MapDataset.range(_ENDLESS).map(light).batch(64),
    "heavy": lambda _: MapDataset.range(_ENDLESS).map(in_python).batch(32),
    "waits": lambda _: MapDataset.range(_ENDLESS).map(waiting).batch(8),
    "mixed": lambda _: MapDataset.range(_ENDLESS).map(mixed).batch(8),
    "12 MB a batch": lambda _: MapDataset.range(_ENDLESS).map(picture).batch(256),
    "1 ms a batch": lambda _: MapDataset.range(_ENDLESS).map(partial(computing, 0.0001)).batch(10),
    "1 s a batch": lambda _: MapDataset.range(_ENDLESS).map(partial(computing, 0.05)).batch(20),
    "work changes": lambda at: (
        MapDataset.range(_ENDLESS).map(partial(costs_more_from, at)).batch(8)
    ),
    "step changes": lambda _: MapDataset.range(_ENDLESS).map(partial(computing, 0.002)).batch(8),
}
CHANGING = ("work changes", "step changes")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks autotune", description=__doc__)
    parser.add_argument("--only", action="append", choices=PIPELINES, help="this pipeline alone")
    parser.add_argument(
        "--fixed",
        default=",".join(map(str, range(1, int(available_cores()) + 1))),
        help="numbers of workers (%(default)s)",
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run (%(default)s)")
    parser.add_argument("--begin", type=float, default=4.0, help="before that (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of all of it (%(default)s)")
    parser.add_argument("--training", default="0,0.02", help="seconds of a step (%(default)s)")
    parser.add_argument("--beside", type=int, default=0, help="other programs (%(default)s)")
    options = parser.parse_args(argv)
    with _programs_beside(options.beside):
        return _all(options)


@contextmanager
def _programs_beside(count: int) -> Iterator[None]:
    """Has so many other programs use a core each."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def _all(options: Any) -> int:
    print(f"{'pipeline':14} {'training':>8}  best fixed         auto   workers, changes")
    missed = 0
    for name in options.only or PIPELINES:
        for step in map(float, options.training.split(",")):
            rounds = [_round(name, step, options) for _ in range(options.rounds)]
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


def _round(name: str, step: float, options: Any) -> dict[_Number, _Seen]:
    numbers: list[_Number] = ["auto", *map(int, options.fixed.split(","))]
    return {n: _run(name, n, step, options.begin, options.seconds) for n in numbers}


def _run(name: str, workers: _Number, step: float, begin: float, seconds: float) -> _Seen:
    """Steps a second of a loop that has begun; the workers in the end, and their changes."""
    change = time.monotonic() + begin
    if name in CHANGING:
        begin *= 2
    options = MultiprocessingOptions(num_workers=workers)
    stream = PIPELINES[name](change).to_iter_dataset().mp_prefetch(options)
    steps = 0
    with bushel.iterate(stream) as iterator:
        began = perf_counter()
        for _ in iterator:
            now = perf_counter()
            if now - began > begin + seconds:
                break
            steps += now - began > begin
            is_slow = name == "step changes" and time.monotonic() < change
            if step or is_slow:
                time.sleep(step + 0.05 * is_slow)
        (pool,) = iterator.stats().workers
    changes = [change for change in pool.changes if change.what == "workers"]
    # (Where nothing came, it was too short.)
    return max(steps, 0.1) / seconds, pool.workers, len(changes)
