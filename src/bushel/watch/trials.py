"""For `profile`: runs a pipeline for a moment with several numbers of workers, or with threads.

So it is found what several workers or threads get done at the same time on this machine: cores
that share a cache, a way to memory or the interpreter's lock do less together than each alone.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from time import perf_counter, thread_time
from typing import Any

from bushel.core.node import Node
from bushel.deliver.open import iterate
from bushel.files.backend import traffic
from bushel.watch.costs import TriedRun
from bushel.watch.other_programs import CoresUsed, cores_of_others, cores_used
from bushel.watch.profile_variants import with_workers
from bushel.watch.sampling import PIECE_SECONDS, MeasuredPace, begins_again
from bushel.watch.worker_memory import bytes_of_workers

# The part of a run in which it finds its pace. Workers take about 0.8 s for that, while their tasks
# become larger and they try threads of their own: elements take up to twice as long in that time.
_WARMING_UP = 0.6
# An element that comes after more than that was waited for. Those that came with it, from the same
# task or block, are there at once: to begin or end among them would count a part of a task as none.
_WAITED_SECONDS = 2e-4
# A run beside others that used more cores than that tells of those: it is tried again, so often in
# all.
CROWDED, TIMES = 0.2, 3
# But not when all runs together took so many times as long as they were to take.
_TIMES_AS_LONG = 2.0
# And so is one of which a half took as many times as long as the other: as a logarithm.
_UNSTEADY = math.log(1.5)
# Sleeps that tell how long one really is.
_SLEEPS = 9
# Threads are known so much sooner than workers.
_OF_THREADS = 0.7
# What several workers make comes in bursts, so that it takes longer to see how much that is.
_OF_MANY = 1.5
# Nobody sleeps for longer than that in a trial.
_LONGEST_SLEEP = 0.2
# With more workers than that, nothing is tried: they take long to start.
_MOST_WORKERS = 8


def counts_to_try(cores: float, workers: int | None = None) -> list[int]:
    """Numbers of workers that tell what cores get done together: one, and one for each.

    No more than are asked about, if that is known. Those that take turns on a core come in bursts,
    of which there are few in a moment.

    >>> counts_to_try(1), counts_to_try(2), counts_to_try(64), counts_to_try(64, 3)
    ([1], [1, 2], [1, 8], [1, 3])
    """
    most = min(int(cores), _MOST_WORKERS)
    return sorted({1, max(1, most if workers is None else min(most, workers))})


def run_for(
    node: Node, state: Any, seconds: float, most: int, step_seconds: float = 0.0
) -> MeasuredPace:
    """Runs a pipeline, and tells its pace: after a start, in which workers come, or threads.

    The loop sleeps for `step_seconds` after each element, or does nothing.
    """
    slept = _slept(step_seconds) if step_seconds else 0.0
    iterator = iterate(node)
    try:
        begins_again(iterator, state)
        began = asked = perf_counter()
        ended = began + seconds
        passes = 0
        window = _TrialWindow(began + seconds)
        while True:
            try:
                next(iterator)
            except StopIteration:
                passes += 1
                if not window.elements and state is None:
                    break
                # (Workers stay from one pass to the next.)
                state, iterator = None, iterate(node)
                continue
            now = perf_counter()
            if not window.elements:
                ended = max(ended, now + seconds * (1 - _WARMING_UP))
                window.first_seconds = now - began
                window.warm_at = now + _WARMING_UP * seconds
            window.add(asked, now, warm=window.elements > _WARMING_UP * most)
            if (now >= ended and window.is_enough(now, seconds)) or window.elements >= most:
                break
            if step_seconds:
                time.sleep(step_seconds)
            asked = perf_counter()
        made = window.pace(passes, slept)
        return replace(made, worker_bytes=bytes_of_workers())
    finally:
        iterator.close()


class _TrialWindow:
    """The part of a run that counts: from one element that was waited for to another."""

    def __init__(self, warm_at: float) -> None:
        self.warm_at = warm_at
        self.first_seconds = 0.0
        self.elements = 0
        self._is_warm = False
        # Requests, and elements, until then.
        self._requests_before = self._warm_elements = 0
        self._used: CoresUsed | None = None
        # When elements were waited for, how many there were by then, and what it took the thread.
        self._marks: list[tuple[float, int, float]] = []
        self._last = (0.0, 0)

    def is_enough(self, now: float, seconds: float) -> bool:
        """Whether a run of so many seconds that is over tells something.

        One that was stopped for a while has seen little since it was warm.
        """
        marks = self._marks
        return len(marks) > 2 or (bool(marks) and now - marks[0][0] >= (1 - _WARMING_UP) * seconds)

    def add(self, asked: float, now: float, warm: bool) -> None:
        self.elements += 1
        if not self._is_warm and (warm or now >= self.warm_at):
            self._is_warm, self._used = True, cores_used()
            self._requests_before, self._warm_elements = traffic.requests, self.elements
            now = perf_counter()
            self._marks.append((now, self.elements, thread_time()))
        elif self._is_warm:
            self._last = (now, self.elements)
            if now - asked > _WAITED_SECONDS and (
                len(self._marks) < 2 or now - self._marks[-1][0] >= PIECE_SECONDS
            ):
                self._marks.append((now, self.elements, thread_time()))

    def pace(self, passes: int, slept: float) -> MeasuredPace:
        marks = self._marks
        if len(marks) > 2:
            # The first one is any element.
            marks = marks[1:]
        elif marks and self._last[1] > marks[0][1]:
            marks = [marks[0], (*self._last, thread_time())]
        if len(marks) < 2:
            return MeasuredPace(0, 0.0, first_seconds=self.first_seconds, passes=passes)
        (since, first, cpu), (until, last, cpu_then) = marks[0], marks[-1]
        count = last - first
        return MeasuredPace(
            count,
            until - since,
            cores_of_others=cores_of_others(self._used, cores_used()),
            first_seconds=self.first_seconds,
            passes=passes,
            pieces=tuple(
                (after[0] - before[0]) / (after[1] - before[1]) for before, after in pairwise(marks)
            ),
            here_seconds=(cpu_then - cpu) / count,
            step_seconds=slept,
            requests=(traffic.requests - self._requests_before)
            / max(1, self.elements - self._warm_elements),
        )


def _slept(seconds: float) -> float:
    """How long a sleep of so many seconds is, where nothing else is done: a little longer."""
    taken = []
    for _ in range(_SLEEPS):
        began = perf_counter()
        time.sleep(seconds)
        taken.append(perf_counter() - began)
    return median(taken)


def drift_of(pieces: Sequence[float]) -> float:
    """How many times as long elements took in the second half of a run: as a logarithm.

    >>> round(drift_of([1.0, 1.0, 1.1, 1.1]), 3), drift_of([1.0])
    (0.095, 0.0)
    """
    middle = len(pieces) // 2
    if not middle:
        return 0.0
    return math.log(fmean(pieces[-middle:]) / fmean(pieces[:middle]))


def _undisturbed(
    node: Node, state: Any, seconds: float, most: int, step: float, until: float
) -> MeasuredPace:
    """Runs, and runs again where others used the cores, or something stopped it for a while.

    No more after `until`: on a machine that is always full it would be in vain.
    """
    found: list[MeasuredPace] = []
    while len(found) < TIMES and (not found or perf_counter() < until):
        found.append(run_for(node, state, seconds, most, step))
        if found[-1].cores_of_others <= CROWDED and not _is_unsteady(found[-1].pieces):
            break
    return min(found, key=lambda run: (run.cores_of_others > CROWDED, abs(drift_of(run.pieces))))


def _is_unsteady(pieces: Sequence[float]) -> bool:
    return abs(drift_of(pieces)) > _UNSTEADY


def _share_of_time(workers: int) -> float:
    """How long a trial is, in relation to that of one worker."""
    if not workers:
        return _OF_THREADS
    return 1.0 if workers == 1 else _OF_MANY


def _steady_seconds(pieces: Sequence[float]) -> float | None:
    """Seconds for an element in the quicker half of a run whose halves are not alike.

    >>> _steady_seconds([1.0, 1.0, 9.0, 1.0]), _steady_seconds([1.0, 1.1])
    (1.0, None)
    """
    if not _is_unsteady(pieces):
        return None
    middle = len(pieces) // 2
    return min(fmean(pieces[:middle]), fmean(pieces[-middle:]))


def tried_runs(
    node: Node, pace: MeasuredPace, counts: Sequence[int], seconds: float, most: int
) -> tuple[TriedRun, ...]:
    """Tries a pipeline with each of these numbers of workers, for so many seconds in all.

    Where that is 0, threads are tried as the engine would: for a loop that does nothing, and for
    one that sleeps as long as an element takes, which is where most can be hidden. Runs beside
    others that used the cores are left out.
    """
    runs = []
    until = perf_counter() + _TIMES_AS_LONG * seconds
    shares = {count: _share_of_time(count) for count in counts}
    whole = sum(share if count else 2 * share for count, share in shares.items())
    for count in counts:
        steps = [0.0]
        if not count and pace.seconds_each:
            steps.append(min(_LONGEST_SLEEP, pace.seconds_each))
        each = seconds / whole * shares[count]
        for step in steps:
            found = _undisturbed(with_workers(node, count), pace.state, each, most, step, until)
            if found.seconds_each is not None and found.cores_of_others <= CROWDED:
                runs.append(
                    TriedRun(
                        count,
                        _steady_seconds(found.pieces) or found.seconds_each,
                        found.here_seconds,
                        found.first_seconds,
                        found.step_seconds,
                        drift_of(found.pieces),
                        found.worker_bytes if count else 0,
                        found.requests,
                    )
                )
    return tuple(runs)
