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
    """Workers of one pipeline: given tasks, which any of them can do, twice if need be.

    An engine has one at a time (`Home.take` makes it, or finds one that is free) and calls it from
    one thread at a time, but for `close`, which may come from any thread at any time. A task that
    was submitted is done once, by whoever: a worker that is lost is the pool's own matter, and so
    is their number. Outcomes are waited for in the order in which tasks were submitted, unless
    tasks were cancelled, which nobody waits for any more.
    """

    # Whether it was closed, and no task can be submitted any more.
    closed: bool
    # Workers that were lost and replaced, and tasks that others did again for it.
    deaths: int
    repeated: int

    @property
    def told(self) -> bool:
        """Whether there are workers that know the pipeline."""

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything, and another iterator may have the workers."""

    @property
    def size(self) -> int:
        """How many workers there are to be."""

    def submit(self, task: Task) -> None:
        """Gives a task to one of the workers; waits for nobody."""

    def wait(self, task: Task) -> Outcome:
        """Waits until a task is done; raises what stands in its way."""

    def wait_for_any(self, tasks: Sequence[Task]) -> Task:
        """Waits until one of some tasks is done, or has failed; returns it."""

    def close(self, politely: bool = True) -> None:
        """Ends the workers."""


class ResizablePool(WorkerPool, Protocol):
    """Workers whose number can be another while they are at work, and so can be tuned."""

    # Why there are fewer workers than were asked for, until the next `resize`.
    refusal: str | None
    # What an engine has learned of them: the next one that has them goes on with it.
    learned: Any

    @property
    def settled(self) -> bool:
        """Whether there are as many as are to be, all of them ready, and none about to leave."""

    def resize(self, count: int) -> None:
        """Has more or fewer workers from the next task on; waits for nobody.

        Those that are added get tasks when they are ready. Those that leave do what they have
        first. Where no more can be had, those that there are go on, and `refusal` says why.
        """

    def places(self) -> int | None:
        """How many workers there could be elsewhere; None where they share this machine's cores."""

    def private_bytes(self) -> int:
        """Memory that the largest of the workers has for itself; 0 where nobody knows."""

    def core_seconds(self) -> float | None:
        """How long the workers were on cores so far, all together; None where nobody knows."""


class TaskQueue(ABC):
    """Tasks of a pool: numbered, given out, waited for. Who does them is for its heirs to say."""

    def __init__(self) -> None:
        # Tasks without a worker.
        self._homeless: deque[Task] = deque()
        self._next_number = 0
        # Workers that were replaced, and tasks that others did again for it.
        self.deaths = self.repeated = 0
        self.closed = False

    @abstractmethod
    def _give_out(self) -> None:
        """Sees that there are workers, and gives them tasks; waits for nobody."""

    @abstractmethod
    def go_on(self, seconds: float | None = None) -> bool:
        """Gives out tasks, waits for news of those who do them, and takes note of it.

        For so many seconds at most, if somebody says so; tells whether there was any.
        """

    def submit(self, task: Task) -> None:
        """Takes a task on, for the worker with the least to do."""
        self._check_open()
        task.message.task = self._next_number
        self._next_number += 1
        self.take(task)

    def take(self, task: Task) -> None:
        """Takes on a task that has its number."""
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
    """Says that the workers are gone while somebody waits for them."""
    raise ClosedError("this iterator was closed while it was waited for.")
