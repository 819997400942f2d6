"""The interface between an engine and its pool of workers; the queue of tasks."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from bushel.core.ending import is_ending
from bushel.errors import ClosedError
from bushel.workers.fragment import Outcome
from bushel.workers.task import Task


class WorkerPool(Protocol):
    """The workers of one pipeline: any of them can do any task, twice if necessary.

    An engine has one at a time (`Home.take` makes it, or finds a free one) and calls it from one
    thread at a time, except for `close`, which any thread may call at any time. A submitted task is
    done once, by any worker: replacing lost workers is the pool's own concern, and so is their
    number. Outcomes are waited for in the order of submission, except those of cancelled tasks,
    which are never waited for.
    """

    # Whether it was closed, so that no task can be submitted any more.
    closed: bool
    # Workers that were lost and replaced, and tasks that were repeated because of it.
    deaths: int
    repeated: int

    @property
    def told(self) -> bool:
        """Whether there are workers that know the pipeline."""

    @property
    def idle(self) -> bool:
        """Whether there are no tasks, so that another iterator may have the workers."""

    @property
    def size(self) -> int:
        """The wanted number of workers."""

    def submit(self, task: Task) -> None:
        """Gives a task to one of the workers, without waiting."""

    def wait(self, task: Task) -> Outcome:
        """Waits until a task is done; raises if that is impossible."""

    def wait_for_any(self, tasks: Sequence[Task]) -> Task:
        """Waits until one of some tasks is done, or has failed; returns it."""

    def close(self, politely: bool = True) -> None:
        """Ends the workers."""


class ResizablePool(WorkerPool, Protocol):
    """Workers whose number can change while they work, and so can be tuned."""

    # Why there are fewer workers than requested, until the next `resize`.
    refusal: str | None
    # What an engine has learnt about them, for the next engine that uses them.
    learned: Any

    @property
    def settled(self) -> bool:
        """Whether the number is the wanted one, all are ready, and none is about to leave."""

    def resize(self, count: int) -> None:
        """Changes the number of workers from the next task on, without waiting.

        New workers get tasks when they are ready. Leaving workers finish their tasks first. If no
        more workers are possible, the existing ones continue, and `refusal` has the reason.
        """

    def places(self) -> int | None:
        """The most workers elsewhere; None if they share this machine's cores."""

    def private_bytes(self) -> int:
        """Private memory of the largest worker; 0 if unknown."""

    def core_seconds(self) -> float | None:
        """CPU seconds of all workers so far; None if unknown."""


class TaskQueue(ABC):
    """The tasks of a pool: numbered, given out, waited for. Subclasses do them."""

    def __init__(self) -> None:
        # Tasks without a worker.
        self._homeless: deque[Task] = deque()
        self._next_number = 0
        # Workers that were replaced, and tasks that were repeated because of it.
        self.deaths = self.repeated = 0
        self.closed = False

    @abstractmethod
    def _give_out(self) -> None:
        """Starts workers as needed, and gives them tasks, without waiting."""

    @abstractmethod
    def go_on(self, seconds: float | None = None) -> bool:
        """Gives out tasks, waits for news of workers, and takes note of it.

        For `seconds` at most, if given; returns whether there was any news.
        """

    def submit(self, task: Task) -> None:
        """Accepts a task, for the worker with the fewest tasks."""
        self._check_open()
        task.message.task = self._next_number
        self._next_number += 1
        self.take(task)

    def take(self, task: Task) -> None:
        """Accepts a task that has its number."""
        self._check_open()
        self._homeless.append(task)
        self._give_out()

    def wait(self, task: Task) -> Outcome:
        """Waits until a task is done."""
        self.wait_for_any([task])
        if task.outcome is None:
            assert task.error is not None
            raise task.error
        return task.outcome

    def wait_for_any(self, tasks: Sequence[Task]) -> Task:
        """Waits until one of some tasks is done, or has failed; returns it."""
        while True:
            for task in tasks:
                if task.outcome is not None or task.error is not None:
                    return task
            self._check_open()
            self.go_on()

    def _check_open(self) -> None:
        if self.closed or is_ending():
            raise_closed()


def raise_closed() -> NoReturn:
    """Raises that the workers are gone while a thread waits for them."""
    raise ClosedError("this iterator was closed while it was waited for.")
