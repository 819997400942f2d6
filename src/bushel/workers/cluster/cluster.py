"""The interface of a cluster for a pool: workers, calls, results and failures.

`RayCluster` is one; a simulated one serves to try what a thousand hosts would do.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from bushel.workers.fragment import Outcome, TaskMessage

# What ended a worker: its process alone, its node, its node's lack of memory; or nobody knows,
# since it does not answer.
PROCESS, NODE, MEMORY, UNREACHABLE = "process", "node", "memory", "unreachable"


class WorkerGreeting(NamedTuple):
    """What a worker says of itself when it has a place."""

    node: str
    host: str
    pid: int
    python: str
    numpy: str
    bushel: str
    # Local paths of the pipeline that its node does not have.
    missing: Sequence[str]
    # Where on its node a worker notes what it is at.
    page: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (node {self.node[:8]})"


# What a worker noted last: how often, and of which task, step, position and key.
Noted = tuple[int, int, int, int, str]
NOTHING_NOTED: Noted = (0, -1, -1, -1, "")


class WorkerGone(Exception):
    """A worker has ended, and what it was at with it."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


class ResultLost(Exception):
    """A result was made, and is gone: with the node that had it, or from its store."""


class TaskFault(Exception):
    """A worker is there and could not do what it was told; not for a fault of an element."""


# Both are what the cluster makes of them; a pool only hands them back, and compares them.
Handle = Any
Call = Any


class Cluster(Protocol):
    """Workers, somewhere."""

    def start(self, index: int) -> tuple[Handle, Call]:
        """Has a worker started; the call is done when it has a place, with a `WorkerGreeting`."""

    def instruct(self, worker: Handle) -> Call:
        """Tells a worker the pipeline; the call is done when it has it."""

    def run(self, worker: Handle, message: TaskMessage) -> Call:
        """Has a worker do a task, after those that it has; the call gives an `Outcome`."""

    def wait(self, calls: Collection[Call], seconds: float | None) -> list[Call]:
        """Waits until at least one of the calls is done, or for so long."""

    def is_made(self, call: Call) -> bool:
        """Whether a result is there somewhere, though it may not have come yet."""

    def ready(self, call: Call) -> WorkerGreeting:
        """What a worker said; raises as `outcome` does."""

    def outcome(self, call: Call) -> tuple[Outcome, int]:
        """The outcome of a task and its bytes.

        Raises `WorkerGone`, `ResultLost` or `TaskFault`.
        """

    def noted(self, worker: WorkerGreeting) -> Noted:
        """What a worker that has ended noted last, if its node still knows."""

    def draining(self) -> set[str]:
        """Nodes that will be taken away soon."""

    def end(self, worker: Handle) -> None:
        """Ends a worker at once, whatever it is at."""

    def places(self) -> int | None:
        """How many more workers there is room for; None where more can be had for the asking."""

    def room(self) -> str:
        """What was asked for and what the cluster has free, for messages."""

    def now(self) -> float:
        """Seconds on the clock that goes with all this."""

    def close(self) -> None:
        """Lets go of everything that was put there."""
