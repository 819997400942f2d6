"""`python -m benchmarks statistics`: what it costs to have steps counted and timed.

Each workload runs with statistics and without, in turn, in one process, for a short while each. The
ratio of the processor time that a step takes, without to with, is taken within each turn; the
median of the turns is shown. Of workers, it is the time of the trainer alone. `--recorded` compares
statistics with a recording, which has them, and a checksum of every so many batches; there are
batches of 10 MB as well, of which those take longest.
"""

import argparse
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from statistics import median
from time import process_time
from typing import Any

import numpy as np

import bushel
from benchmarks import proof
from benchmarks.workload import Contender
from benchmarks.workloads import WORKLOADS
from bushel import MapDataset

NAMES = ("small_records", "vectorised_8x8", "shuffle", "stream", "small_records_workers")
GOAL = 0.99
# Of processor time: long enough for the clock, short enough that both see the same machine.
SECONDS_A_TURN = 0.05


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks statistics", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="this workload alone")
    parser.add_argument("--turns", type=int, default=60, help="of each (%(default)s)")
    parser.add_argument("--recorded", action="store_true", help="what a recording costs")
    options = parser.parse_args(argv)
    missed = False
    if options.recorded:
        with tempfile.TemporaryDirectory() as folder:
            for title, make in RECORDED.items():
                ratios = compare(make(), options.turns, f"{folder}/run.bushel")
                missed |= _tell(title, ratios)
        return int(missed)
    for name in options.only or NAMES:
        workload = WORKLOADS[name]
        for form in workload.forms:
            make = Contender("bushel", form.make).bind()
            ratios = compare(make(workload.gauge.records), options.turns)  # type: ignore[attr-defined]
            missed |= _tell(f"{workload.title} {form.title}", ratios)
    return int(missed)


def _tell(title: str, ratios: Sequence[float]) -> bool:
    ratio, middle = median(ratios), sorted(ratios)
    quarter = len(middle) // 4
    print(
        f"{title:45} {ratio:.3f}  half of the turns "
        f"{middle[quarter]:.3f} to {middle[-1 - quarter]:.3f}  goal >= {GOAL}",
        flush=True,
    )
    return ratio < GOAL


def _large(number: int) -> Any:
    return np.full((200, 200, 3), number % 100, np.float32)


RECORDED: dict[str, Callable[[], Any]] = {
    "10 MB a batch": lambda: MapDataset.range(1 << 40).map(_large).batch(21),
    "10 MB a batch, columns": lambda: (
        MapDataset.source(np.ones((1000, 120_000), np.float32)).repeat().batch(21)
    ),
    "64 numbers a batch": lambda: MapDataset.range(1 << 40).map(abs).batch(64),
}


def compare(dataset: Any, turns: int, recording: str | None = None) -> list[float]:
    """Speed with statistics as a share of that without, turn by turn.

    With the path of a recording: that of a recording as a share of that with statistics alone.
    """
    runs = [_Endless(dataset, looked_at, recording) for looked_at in (False, True)]
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

    def __init__(self, dataset: Any, with_statistics: bool, recording: str | None) -> None:
        self.with_statistics = with_statistics
        self._dataset, self._recording = dataset, recording
        self._begin()

    def _begin(self) -> None:
        options: dict[str, Any] = {"stats": self.with_statistics}
        if self._recording is not None:
            options = {"stats": True, "record": self._recording if self.with_statistics else None}
        self.iterator: Iterator[Any] = bushel.iterate(self._dataset, **options)

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
