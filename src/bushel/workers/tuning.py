"""`num_workers="auto"`: measures, asks `run/worker_choice.py`, and resizes the pool.

It has no thread: when an outcome is taken, it reads the clock, and every quarter of a second or so
it evaluates the measurements since.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from bushel.core.machine import available_cores, available_memory, used_core_seconds
from bushel.core.tuned_options import WorkerBounds
from bushel.run.worker_choice import NOTHING_LEARNED, Glance, Learned, WorkerBudget, decide, refused
from bushel.run.worker_figures import WorkerChange
from bushel.workers.seam import ResizablePool

_log = logging.getLogger("bushel")

# The least seconds of a period, in which every worker has done a task or two.
_STRETCH_SECONDS = 0.25
_TASKS_A_WORKER = 2
# The share of the memory free at the start that workers may use.
_SHARE_OF_MEMORY = 0.25
# The most changes that are remembered for statistics.
_MOST_CHANGES = 20


def memory_budget(asked: float | None) -> float:
    """Bytes that workers and their ready elements may use; by default, a share of free memory."""
    return _SHARE_OF_MEMORY * available_memory() if asked is None else asked


class Changes:
    """The choices made while an iterator ran, the latest ones; each with its reason."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began: float | None = None
        # Elements whose outcome was taken.
        self.elements = 0
        self.made: deque[WorkerChange] = deque(maxlen=_MOST_CHANGES)

    def begin(self) -> None:
        """Notes the time when the first task was done."""
        if self._began is None:
            self._began = self._clock()

    def note(self, what: str, was: int, now: int, why: str) -> None:
        """Records a change, and logs it."""
        seconds = 0.0 if self._began is None else self._clock() - self._began
        self.made.append(WorkerChange(seconds, self.elements, what, was, now, why))
        _log.info("%s: %d -> %d, since %s.", what, was, now, why)


class Tuning:
    """Keeps the number of workers at what the loop needs."""

    def __init__(
        self,
        bounds: WorkerBounds,
        memory_bytes: float | None,
        changes: Changes,
        clock: Callable[[], float] = time.perf_counter,
        core_seconds: Callable[[], float | None] = used_core_seconds,
    ) -> None:
        """`core_seconds` returns how long the cores of this machine were busy for any program."""
        memory = memory_budget(memory_bytes)
        self._budget = WorkerBudget(bounds.least, bounds.most, available_cores(), memory)
        self._changes, self._clock, self._core_seconds = changes, clock, core_seconds
        self._began: float | None = None
        self._used_cores: float | None = None
        self._worked: float | None = None
        self._wait = self._idle = 0.0
        self._elements = self._tasks = 0

    def forget_stretch(self) -> None:
        """Begins a new period, as something else happened in between."""
        self._began = None

    def add(
        self, pool: ResizablePool, waited: float, idle: float, elements: int, ahead_bytes: int
    ) -> None:
        """Takes note of an outcome, and perhaps changes the number of workers.

        The trainer `waited` for so many seconds; the worker was `idle` before. All tasks under way
        take about `ahead_bytes`.
        """
        now = self._clock()
        if pool.refusal is not None:
            self._give_up(pool, pool.refusal)
        if self._began is None or not pool.settled:
            # Times are meaningless while workers begin, or are about to leave.
            self._begin(now, pool)
            return
        self._wait += waited
        self._idle += idle
        self._elements += elements
        self._tasks += 1
        seconds = now - self._began
        if seconds >= _STRETCH_SECONDS and self._tasks >= _TASKS_A_WORKER * pool.size:
            self._decide(pool, seconds, ahead_bytes)
            self._begin(now, pool)

    def _begin(self, now: float, pool: ResizablePool) -> None:
        self._began, self._used_cores = now, self._core_seconds()
        self._worked = pool.core_seconds()
        self._wait = self._idle = 0.0
        self._elements = self._tasks = 0

    def _decide(self, pool: ResizablePool, seconds: float, ahead_bytes: int) -> None:
        budget, free_cores = self._budget, self._free_cores(seconds)
        places = pool.places()
        if places is not None:
            # Free cores here do not matter for those.
            most = max(budget.least, min(budget.most, places))
            budget, free_cores = replace(budget, most=most, cores=most), None
        seen = Glance(
            pool.size,
            seconds,
            min(self._wait, seconds),
            self._idle,
            self._elements,
            free_cores,
            pool.private_bytes(),
            ahead_bytes // pool.size,
            self._core_share(pool, seconds),
        )
        learned: Learned = pool.learned or NOTHING_LEARNED
        pool.learned, decision = decide(learned, seen, budget)
        if decision is not None:
            self._changes.note("workers", pool.size, decision.workers, decision.why)
            pool.resize(decision.workers)

    def _free_cores(self, seconds: float) -> float | None:
        used = self._core_seconds()
        if used is None or self._used_cores is None:
            return None
        return max(0.0, self._budget.cores - (used - self._used_cores) / seconds)

    def _core_share(self, pool: ResizablePool, seconds: float) -> float | None:
        """The share of a core that each worker used."""
        worked = pool.core_seconds()
        if worked is None or self._worked is None:
            return None
        return min(1.0, max(0.0, worked - self._worked) / (seconds * pool.size))

    def _give_up(self, pool: ResizablePool, why: str) -> None:
        pool.refusal = None
        pool.learned = refused(pool.learned or NOTHING_LEARNED, pool.size)
        made = self._changes.made
        wanted = made[-1].now if made else pool.size
        self._changes.note("workers", wanted, pool.size, why.splitlines()[0])
