"""Statistics of worker processes, as plain values."""

from bushel.core.frozen import frozen


@frozen
class WorkerChange:
    """Another number of workers, or of tasks ahead, that was chosen while an iterator ran."""

    # Since the first task was done; and elements that the workers had made.
    seconds: float
    elements: int
    # What is another: "workers" or "tasks ahead".
    what: str
    was: int
    now: int
    why: str


@frozen
class WorkerFigures:
    """What the worker processes of one iterator have done."""

    workers: int
    # Tasks whose outcome was taken, seconds that they took, and that workers had nothing to do.
    tasks: int
    busy_seconds: float
    idle_seconds: float
    # Bytes that came from the workers.
    bytes: int
    # Workers that ended and were replaced, and tasks that were done again for it.
    deaths: int
    repeated_tasks: int
    # Tasks that nobody wanted any more, after `set_state`.
    cancelled_tasks: int
    # Tasks that are done and wait to be taken, of those that are under way.
    ready_tasks: int = 0
    # The last ones, where the number of workers is tuned.
    changes: tuple[WorkerChange, ...] = ()

    @property
    def busy_share(self) -> float:
        """The share of their time that workers had something to do."""
        whole = self.busy_seconds + self.idle_seconds
        return self.busy_seconds / whole if whole else 0.0
