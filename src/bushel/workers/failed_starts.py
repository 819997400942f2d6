"""Counts workers that die before they have started, and gives up after too many.

It counts incidents, not the workers hit by them. If the nursery dies, all requested workers die
with it, for one reason; if some process kills all workers, each dies, but no worker's place has
seen more than one death. And if other workers get on with the work, or the trouble is recent, it
may still end: on a busy machine a start takes seconds.
"""

import time
from collections.abc import Callable

from bushel.core.limits import limits_told
from bushel.errors import WorkerError
from bushel.workers.child import Child
from bushel.workers.process import WorkerProcess
from bushel.workers.start import not_started

# The most failed starts in a row in one worker's place; and in all places together, if some process
# kills workers, after at least so many seconds without any outcome.
_MOST_FAILED = 3
_MOST_KILLED, _KILLED_SECONDS = 50, 60.0


class FailedStarts:
    """The failed starts of one pool, since a worker began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._events = 0
        # Those since the last progress, and the time of the first of them.
        self._standing_still, self._since = 0, 0.0
        self._last_cause: object = None
        # Failed starts in a row, for each worker's place.
        self._in_place: dict[int, int] = {}

    def begun(self, worker: WorkerProcess) -> None:
        """A worker is ready."""
        self._events = self._standing_still = 0
        self._in_place.pop(worker.index, None)

    def work_got_on(self) -> None:
        """A worker has finished a task: the work goes on, whatever starts fail."""
        self._standing_still = 0

    def count(self, worker: WorkerProcess) -> WorkerError | None:
        """Counts a worker that ended before it was ready; an error if these are too many."""
        process = worker.process
        cause = process.unborn_of if isinstance(process, Child) else None
        if cause is None or cause is not self._last_cause:
            if not self._standing_still:
                self._since = self._clock()
            self._events += 1
            self._standing_still += 1
        self._last_cause = cause
        in_place = self._in_place[worker.index] = self._in_place.get(worker.index, 0) + 1
        if in_place < _MOST_FAILED or self._events < _MOST_FAILED:
            return None
        if worker.was_killed() and not worker.hung and self._may_stop():
            return None
        if worker.refused is not None:
            return not_started(worker.refused)
        return WorkerError(
            f"worker processes die before they have started: the last one {worker.exit()}. Their "
            f"error output may say why.{limits_told()}"
        )

    def _may_stop(self) -> bool:
        """Whether it is too early to know that the killing does not stop."""
        few = self._standing_still < _MOST_KILLED
        return few or self._clock() - self._since < _KILLED_SECONDS
