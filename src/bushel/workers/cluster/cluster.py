"""The interface of a cluster for a pool: workers, calls, results and failures.

`RayCluster` is one implementation; a simulated one tests what would happen on a thousand hosts.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from bushel.workers.fragment import Outcome, TaskMessage

# What ended a worker: its process alone, its node, a lack of memory on its node; or unknown, as it
# does not answer.
PROCESS, NODE, MEMORY, UNREACHABLE = "process", "node", "memory", "unreachable"


class WorkerGreeting(NamedTuple):
    """A worker's first report, once it has a place."""

    node: str
    host: str
    pid: int
    python: str
    numpy: str
    bushel: str
    # Local paths of the pipeline that do not exist on its node.
    missing: Sequence[str]
    # The path on its node where a worker notes its progress.
    page: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (node {self.node[:8]})"


# A worker's last note: count of notes, task, step, position and key.
Noted = tuple[int, int, int, int, str]
NOTHING_NOTED: Noted = (0, -1, -1, -1, "")


class WorkerGone(Exception):
    """A worker has ended; includes its last note."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


class ResultLost(Exception):
    """A finished result was lost: with its node, or from the store."""


class TaskFault(Exception):
    """A worker failed to do what it was told; not because of an element."""


# Opaque values of the cluster; a pool only compares them and passes them back.
Handle = Any
Call = Any


class Cluster(Protocol):
    """A cluster on which workers run."""

    def start(self, index: int) -> tuple[Handle, Call]:
        """Starts a worker; the call is done when it has a place, with a `WorkerGreeting`."""

    def instruct(self, worker: Handle) -> Call:
        """Sends the pipeline to a worker; the call is done when it has it."""

    def run(self, worker: Handle, message: TaskMessage) -> Call:
        """Gives a task to a worker, after its other tasks; the call returns an `Outcome`."""

    def wait(self, calls: Collection[Call], seconds: float | None) -> list[Call]:
        """Waits until at least one of the calls is done, or until the time is over."""

    def is_made(self, call: Call) -> bool:
        """Whether a result exists on some node, though it may not have arrived yet."""

    def ready(self, call: Call) -> WorkerGreeting:
        """A worker's answer; raises as `outcome` does."""

    def outcome(self, call: Call) -> tuple[Outcome, int]:
        """The outcome of a task and its size in bytes.

        Raises `WorkerGone`, `ResultLost` or `TaskFault`.
        """

    def noted(self, worker: WorkerGreeting) -> Noted:
        """The last note of a worker that has ended, if its node still has it."""

    def draining(self) -> set[str]:
        """Nodes that will be removed soon."""

    def end(self, worker: Handle) -> None:
        """Ends a worker at once, in the middle of its task."""

    def places(self) -> int | None:
        """The number of further workers that fit; None if the cluster grows on request."""

    def room(self) -> str:
        """Requested and free resources, for messages."""

    def now(self) -> float:
        """The time in seconds, by the clock of the cluster."""

    def close(self) -> None:
        """Releases everything in the cluster's store."""
