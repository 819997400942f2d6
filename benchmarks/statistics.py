"""`python -m benchmarks statistics`: what it costs to have steps counted and timed.

Each workload runs with statistics and without, in turn, in one process, for a short while each. The
ratio of the processor time that a step takes, without to with, is taken within each turn; the
median of the turns is shown. Of workers, it is the time of the trainer alone.
"""

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median
from time import process_time
from typing import Any

import bushel
from benchmarks import proof
from benchmarks.workload import Contender
from benchmarks.workloads import WORKLOADS

NAMES = ("small_records", "vectorised_8x8", "shuffle", "stream", "small_records_workers")
GOAL = 0.99
# Of processor time: long enough for the clock, short enough that both see the same machine.
SECONDS_A_TURN = 0.05


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks statistics", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="this workload alone")
    parser.add_argument("--turns", type=int, default=60, help="of each (%(default)s)")
    options = parser.parse_args(argv)
    missed = False
    for name in options.only or NAMES:
        workload = WORKLOADS[name]
        for form in workload.forms:
            make = Contender("bushel", form.make).bind()
            ratios = compare(make(workload.gauge.records), options.turns)  # type: ignore[attr-defined]
            ratio, middle = median(ratios), sorted(ratios)
            quarter = len(middle) // 4
            missed |= ratio < GOAL
            print(
                f"{workload.title + ' ' + form.title:45} {ratio:.3f}  half of the turns "
                f"{middle[quarter]:.3f} to {middle[-1 - quarter]:.3f}  goal >= {GOAL}",
                flush=True,
            )
    return int(missed)


def compare(dataset: Any, turns: int) -> list[float]:
    """Speed with statistics as a share of that without, turn by turn."""
    runs = [_Endless(dataset, with_statistics) for with_statistics in (False, True)]
    try:
        steps = max(runs[0].steps_in(4 * SECONDS_A_TURN) // 4, 1)
        runs[1].steps_in(4 * SECONDS_A_TURN)
        ratios = []
        for turn in range(turns):
            # Who comes first changes, as what the first leaves in the caches is there for the next.
            order = runs if turn % 2 else runs[::-1]
            taken = {run.with_statistics: run.seconds_for(steps) for run in order}
            ratios.append(taken[False] / taken[True])
        return ratios
    finally:
        for run in runs:
            proof.close(run.iterator)


class _Endless:
    """Epochs of a dataset, one after the other."""

    def __init__(self, dataset: Any, with_statistics: bool) -> None:
        self.with_statistics = with_statistics
        self._dataset = dataset
        self._begin()

    def _begin(self) -> None:
        self.iterator: Iterator[Any] = bushel.iterate(self._dataset, stats=self.with_statistics)

    def seconds_for(self, steps: int) -> float:
        """Processor time of so many steps."""
        began = process_time()
        while steps > 0:
            counted = _count(self.iterator, steps)
            steps -= counted
            if steps:
                proof.close(self.iterator)
                self._begin()
        return process_time() - began

    def steps_in(self, seconds: float) -> int:
        """How many steps that processor time is enough for."""
        steps, spent = 0, 0.0
        while spent < seconds:
            spent += self.seconds_for(8)
            steps += 8
        return steps


def _count(iterator: Iterator[Any], steps: int) -> int:
    last = deque(enumerate(islice(iterator, steps), 1), maxlen=1)
    return last[0][0] if last else 0
