"""`hang_timeout`: detects workers without progress; reports where, then waits, replaces or raises.

A worker's notes on its page (see `Status`) are progress. A worker that is not ready is watched in
the same way: it notes the steps of its start. Before it can do so, and while it imports what the
pipeline needs, using a core counts as progress.

Time counts only while the trainer waited: if the trainer was stopped (Ctrl-Z), so were its workers,
and none hangs.
"""

import logging
from collections.abc import Callable, Sequence

from bushel.core.options import MultiprocessingOptions
from bushel.errors import WorkerError
from bushel.workers.process import WorkerProcess
from bushel.workers.program import PREPARING
from bushel.workers.task import Task

_log = logging.getLogger("bushel")

# A starting process may have to wait this long for a disk or a core, whatever the limit for an
# element is.
_LEAST_FOR_A_START = 2.0


class HangWatch:
    """Finds workers that hang, and treats them as the options say."""

    def __init__(self, options: MultiprocessingOptions, label: Callable[[Task, int], str]) -> None:
        """`label` returns the name of a step, given a task and a number."""
        self._timeout, self._on_hang = options.hang_timeout, options.on_hang
        self._label = label

    @property
    def slice_seconds(self) -> float | None:
        """The most seconds to wait before a look; None for ever."""
        return None if self._timeout is None else max(0.001, self._timeout / 4)

    def look(self, workers: Sequence[WorkerProcess], waited: float) -> None:
        """Checks all workers, after the trainer has waited for `waited` seconds."""
        if self._timeout is None or self.slice_seconds is None:
            return
        # More than the requested time was no waiting: the trainer itself did not run.
        waited = min(waited, self.slice_seconds)
        for worker in workers:
            noted = _progress(worker)
            if noted != worker.noted or not worker.tasks:
                worker.noted, worker.stalled = noted, 0.0
                continue
            worker.stalled += waited
            patience = self._timeout
            if not worker.ready:
                patience = max(patience, _LEAST_FOR_A_START)
            if worker.stalled > patience and worker.reported != noted:
                worker.reported = noted
                self._report(worker)
                return

    def _report(self, worker: WorkerProcess) -> None:
        text = (
            f"{worker} has made no progress for {worker.stalled:.1f} s {self._where(worker)}. "
            f"Its stack:\n{worker.stack()}"
        )
        if self._on_hang != "wait":
            worker.hung = True
            worker.process.kill()
        if self._on_hang == "raise":
            raise WorkerError(text)
        _log.warning("%s", text)

    def _where(self, worker: WorkerProcess) -> str:
        count, _, operation, position, _ = worker.status.read()
        task = worker.tasks[0]
        if not worker.ready:
            if not count:
                return "in starting: it has not begun, or not even been forked"
            if operation == PREPARING:
                return "in `worker_init_fn`, before it has begun"
            return "in importing and unpickling the pipeline, before it has begun"
        where = f" at position {position}" if position >= 0 else ""
        return f"in `{self._label(task, operation)}`{where}; it has {task.positions()}"


def _progress(worker: WorkerProcess) -> tuple[int, int]:
    """A value that changes unless a worker hangs."""
    count, _, operation, _, _ = worker.status.read()
    if worker.ready or operation == PREPARING:
        return count, 0
    return count, _ticks(worker.process.pid)


def _ticks(pid: int) -> int:
    """The CPU time of a process, in ticks of the system, if known."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
    except OSError:
        return 0
    # The name, in brackets, may contain anything; user and system time are the 14th and 15th field.
    user, system = text.rpartition(")")[2].split()[11:13]
    return int(user) + int(system)
