"""For statistics: `WorkerFigures`, those of worker processes, as plain values."""

from bushel.core.frozen import frozen


@frozen
class WorkerChange:
    """A new number of workers, or of tasks ahead, chosen while an iterator ran."""

    # Seconds since the first task was done; elements that the workers had made.
    seconds: float
    elements: int
    # What changed: "workers" or "tasks ahead".
    what: str
    was: int
    now: int
    why: str


@frozen
class WorkerFigures:
    """Statistics of the worker processes of one iterator."""

    workers: int
    # Tasks whose outcome was taken, the seconds that they took, and seconds that workers were idle.
    tasks: int
    busy_seconds: float
    idle_seconds: float
    # Bytes that came from the workers.
    bytes: int
    # Workers that ended and were replaced, and tasks that were repeated because of it.
    deaths: int
    repeated_tasks: int
    # Tasks whose outcome was no longer needed, after `set_state`.
    cancelled_tasks: int
    # Tasks under way that are done and wait to be taken.
    ready_tasks: int = 0
    # The last changes, if the number of workers is tuned.
    changes: tuple[WorkerChange, ...] = ()

    @property
    def busy_share(self) -> float:
        """The share of their time in which workers had something to do."""
        whole = self.busy_seconds + self.idle_seconds
        return self.busy_seconds / whole if whole else 0.0
