"""`python -m benchmarks statistics`: what it costs to have steps counted and timed.

Each workload of the main benchmark that is a pipeline runs with statistics and without, in turn, in
one process, for a short while each (for whole epochs where those are short). The ratio of the
processor time that a step takes, without to with, is taken within each turn; the median of the
turns is shown, the quartiles, and the ratio of all turns together, in which is what comes seldom.
Of workers, it is the time of the trainer alone; where threads work ahead, one turn has what another
one takes, and only all of them together tell something. `--control` compares runs without
statistics with each other: what this machine tells of no difference at all. `--recorded` compares
statistics with a recording, which has them, and a checksum of every so many batches; there are
batches of 10 MB as well, of which those take longest.
"""

import argparse
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

import bushel
from benchmarks import proof
from benchmarks.workload import Contender, Workload
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.streams import WorstOverhead
from bushel import MapDataset

NAMES = (
    "small_records",
    "vectorised_8x8",
    "vectorised_28x28",
    "random_map",
    "random_map_loader",
    "random_map_one_by_one",
    "shuffle",
    "stream",
    "pack_first_fit",
    "pack_best_fit",
    "pack_end_to_end",
    "window_shuffle",
    "interleave",
    "mix_streams",
    "rebatch",
    "stream_overhead",
    "slow_records",
    "compressed_records",
    "array_record",
    "parquet",
    "arrow",
    "arrow_tokens",
    "arrow_lists",
    "huggingface",
    "huggingface_tokens",
    "huggingface_lists",
    "example_numbers",
    "example_tokens",
    "large_batches",
    "jpeg_decode",
    "small_records_workers",
)
GOAL = 0.99
# Of processor time: long enough for the clock, short enough that both see the same machine. By the
# clock, for a loop that waits for others, no more than so many.
SECONDS_A_TURN, SECONDS_BY_CLOCK = 0.05, 0.25


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks statistics", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="this workload alone")
    parser.add_argument("--turns", type=int, default=60, help="of each (%(default)s)")
    parser.add_argument("--control", action="store_true", help="without statistics in both")
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
        for title, dataset in _pipelines(WORKLOADS[name]):
            ratios = compare(dataset, options.turns, control=options.control)
            missed |= _tell(title, ratios)
    return int(missed)


def _pipelines(workload: Workload) -> Iterator[tuple[str, Any]]:
    """The pipelines of a workload, each with its title."""
    gauge: Any = workload.gauge
    for form in workload.forms:
        made = Contender("bushel", form.make).bind()(
            gauge.numbers if isinstance(gauge, WorstOverhead) else gauge.records
        )
        several = made if isinstance(made, Mapping) else {form.title: made}
        for title, pipeline in several.items():
            # What is done with batches there takes as long with statistics.
            yield f"{workload.title} {title}", getattr(pipeline, "batches", pipeline)


@dataclass(frozen=True, slots=True)
class Ratios:
    """Speed with statistics as a share of that without."""

    turns: list[float]
    together: float


def _tell(title: str, ratios: Ratios) -> bool:
    ratio, middle = median(ratios.turns), sorted(ratios.turns)
    quarter = len(middle) // 4
    print(
        f"{title:60} {ratio:.3f}  half of the turns {middle[quarter]:.3f} to "
        f"{middle[-1 - quarter]:.3f}  together {ratios.together:.3f}  goal >= {GOAL}",
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


def compare(
    dataset: Any, turns: int, recording: str | None = None, control: bool = False
) -> Ratios:
    """Speed with statistics as a share of that without, turn by turn.

    With the path of a recording: that of a recording as a share of that with statistics alone.
    """
    runs = [_Endless(dataset, looked_at and not control, recording) for looked_at in (False, True)]
    try:
        steps = max(runs[0].steps_in(4 * SECONDS_A_TURN, 4 * SECONDS_BY_CLOCK) // 4, 1)
        runs[1].steps_in(4 * SECONDS_A_TURN, 4 * SECONDS_BY_CLOCK)
        epoch = runs[0].epoch_steps
        if epoch is not None and epoch <= 2 * steps:
            steps = ceil(steps / epoch) * epoch
        without, with_statistics = [], []
        for turn in range(turns):
            # Who comes first changes, as what the first leaves in the caches is there for the next.
            order = (0, 1) if turn % 2 else (1, 0)
            taken = {number: runs[number].seconds_for(steps) for number in order}
            without.append(taken[0])
            with_statistics.append(taken[1])
        return Ratios(
            [off / on for off, on in zip(without, with_statistics, strict=True)],
            sum(without) / sum(with_statistics),
        )
    finally:
        for run in runs:
            proof.close(run.iterator)


class _Endless:
    """Epochs of a dataset, one after the other."""

    def __init__(self, dataset: Any, with_statistics: bool, recording: str | None) -> None:
        self.with_statistics = with_statistics
        # How many steps an epoch has, as soon as one has come to its end.
        self.epoch_steps: int | None = None
        self._dataset, self._recording = dataset, recording
        self._begin()

    def _begin(self) -> None:
        options: dict[str, Any] = {"stats": self.with_statistics}
        if self._recording is not None:
            options = {"stats": True, "record": self._recording if self.with_statistics else None}
        self._steps = 0
        self.iterator: Iterator[Any] = bushel.iterate(self._dataset, **options)

    def seconds_for(self, steps: int) -> float:
        """Processor time of so many steps."""
        began = process_time()
        while steps > 0:
            counted = _count(self.iterator, steps)
            steps -= counted
            self._steps += counted
            if steps:
                self.epoch_steps = self._steps
                proof.close(self.iterator)
                self._begin()
        return process_time() - began

    def steps_in(self, seconds: float, by_clock: float) -> int:
        """How many steps that processor time is enough for, or as many by the clock."""
        steps, spent = 0, 0.0
        until = perf_counter() + by_clock
        while spent < seconds and perf_counter() < until:
            spent += self.seconds_for(8)
            steps += 8
        return steps


def _count(iterator: Iterator[Any], steps: int) -> int:
    last = deque(enumerate(islice(iterator, steps), 1), maxlen=1)
    return last[0][0] if last else 0
