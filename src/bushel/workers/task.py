"""A task in the trainer: what is to be done, in words as well; its outcome; deaths at it."""

from bushel.errors import WorkerError
from bushel.workers.fragment import Outcome, TaskMessage


class Task:
    """A task for a worker, and later its outcome."""

    __slots__ = (
        "bytes",
        "cancelled",
        "count",
        "deaths",
        "ends",
        "error",
        "first",
        "losses",
        "message",
        "other_deaths",
        "outcome",
        "suspect",
        "tries",
    )

    def __init__(self, message: TaskMessage, first: int, count: int = 1) -> None:
        """`count` elements from position `first` on."""
        self.message = message
        self.first = first
        self.count = count
        self.outcome: Outcome | None = None
        self.error: WorkerError | None = None
        self.bytes = 0
        self.cancelled = False
        # The number of workers that ended with it, and of those in a row at the same element.
        self.tries = 0
        # The number in a row that ended by themselves after making all elements.
        self.ends = 0
        # How often its result was taken for lost.
        self.losses = 0
        self.deaths = 0
        self.other_deaths = 0
        self.suspect: tuple[int, int] | None = None

    def positions(self) -> str:
        """Its positions, for messages."""
        if self.message.given is not None:
            return f"positions from {self.first} on"
        return f"positions {self.first} to {self.message.stop - 1}"
