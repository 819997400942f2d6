"""Counts workers that die before they have started, and gives up after too many.

What counts is what happened, not how many were hit by it. Where the nursery dies, all that it
was asked for die with it, of one cause; where somebody kills all workers, each dies, but no
place has seen it more than once. And where others get on with the work meanwhile, or where it
has not gone on for long, whoever kills may yet stop: a busy machine takes seconds for a start.
"""

import time
from collections.abc import Callable

from bushel.core.limits import limits_told
from bushel.errors import WorkerError
from bushel.workers.child import Child
from bushel.workers.process import WorkerProcess
from bushel.workers.start import not_started

# Starts in a row that may fail, in one worker's place; many more, of all of them, where somebody
# outside kills, and not before so many seconds without any outcome.
_MOST_FAILED = 3
_MOST_KILLED, _KILLED_SECONDS = 50, 60.0


class FailedStarts:
    """Those of one pool, since a worker began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._events = 0
        # Of those, the ones since the work last got on, and when the first of them was.
        self._standing_still, self._since = 0, 0.0
        self._last_cause: object = None
        # How often each worker's place has seen it, in a row.
        self._in_place: dict[int, int] = {}

    def begun(self, worker: WorkerProcess) -> None:
        """A worker is ready."""
        self._events = self._standing_still = 0
        self._in_place.pop(worker.index, None)

    def work_got_on(self) -> None:
        """A worker has done a task: starts that are killed do not stand in the way of the rest."""
        self._standing_still = 0

    def count(self, worker: WorkerProcess) -> WorkerError | None:
        """Counts a worker that is gone and was not ready; returns an error if it is enough."""
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
        """Whether somebody kills for no longer than a while yet."""
        few = self._standing_still < _MOST_KILLED
        return few or self._clock() - self._since < _KILLED_SECONDS
