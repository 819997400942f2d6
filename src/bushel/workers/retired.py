"""Workers that were asked to leave because the pool became smaller."""

import time
from collections.abc import Iterator
from contextlib import suppress

from bushel.workers.process import WorkerProcess

# The most seconds for a worker to end by itself. The trainer does not wait for it meanwhile.
_LEAVING_SECONDS = 5.0


class Retired:
    """Workers that end by themselves, or are killed when they take too long."""

    def __init__(self) -> None:
        self._workers: list[tuple[WorkerProcess, float]] = []

    def __iter__(self) -> Iterator[WorkerProcess]:
        return (worker for worker, _ in self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    def add(self, worker: WorkerProcess) -> None:
        """Asks a worker to leave."""
        self._workers.append((worker, time.monotonic() + _LEAVING_SECONDS))
        worker.leave()

    def end_those_gone(self) -> None:
        """Releases those that have ended, without waiting."""
        for entry in list(self._workers):
            worker, deadline = entry
            if worker.process.poll() is not None or time.monotonic() > deadline:
                worker.end()
                with suppress(ValueError):  # Another thread, which closes, may have taken it.
                    self._workers.remove(entry)

    def take_all(self) -> list[WorkerProcess]:
        """Hands over the remaining ones, to be killed now."""
        workers, self._workers = list(self), []
        return workers
