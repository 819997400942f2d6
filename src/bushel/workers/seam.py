"""What an engine needs of those who do its tasks, wherever they are."""

from collections.abc import Sequence
from typing import Any, Protocol

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

    def private_bytes(self) -> int:
        """Memory that the largest of the workers has for itself; 0 where nobody knows."""
