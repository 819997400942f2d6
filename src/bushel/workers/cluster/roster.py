"""The workers of a cluster and their tasks, indexed so that no call looks at all of them.

A host may have a thousand workers, and giving a task to one of them should take microseconds.
"""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator

from bushel.core.frozen import plain
from bushel.workers.cluster.cluster import Call, Handle, WorkerGreeting
from bushel.workers.task import Task


@plain
class Assigned:
    """A task that a worker has."""

    call: Call
    task: Task
    # The time when the worker could begin with it; None while it has others before.
    since: float | None


class PoolWorker:
    """A worker as the pool sees it."""

    def __init__(self, index: int, handle: Handle, starting: Call, asked: float) -> None:
        self.index, self.handle = index, handle
        # The call to wait for before it gets tasks, and the time of that call.
        self.starting: Call | None = starting
        self.asked = asked
        self.ready: WorkerGreeting | None = None
        # Tasks in the order sent, which is that of their outcomes.
        self.tasks: deque[Assigned] = deque()
        self.hung = False
        # Whether it finishes its tasks, and gets no more.
        self.leaving = False

    def __str__(self) -> str:
        return (
            f"worker {self.index}" if self.ready is None else f"worker {self.index}, {self.ready}"
        )


class Roster:
    """Workers by index, by number of tasks, and by the call that is waited for."""

    def __init__(self) -> None:
        self._workers: dict[int, PoolWorker] = {}
        # Workers that may get tasks, by number of tasks; the earliest first.
        self._by_load: list[dict[int, PoolWorker]] = [{}]
        # For each worker, the call that is done next.
        self._waited_for: dict[Call, PoolWorker] = {}
        # Numbers of tasks under way, of workers that have not begun, and of workers that leave.
        self.under_way = self.starting = self.leaving = 0
        # Unused numbers below the highest.
        self._free: list[int] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[PoolWorker]:
        # (Another thread may close.)
        return iter(list(self._workers.values()))

    def free_index(self) -> int:
        """The lowest unused number, for a worker that is added at once."""
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def calls(self) -> Collection[Call]:
        """The calls from which news may come; stays up to date."""
        return self._waited_for.keys()

    def of(self, call: Call) -> PoolWorker | None:
        """The worker of a call, if that is still waited for."""
        return self._waited_for.get(call)

    def add(self, worker: PoolWorker) -> None:
        """Adds a worker, which is being started."""
        self._workers[worker.index] = worker
        self.starting += 1
        self._wait_for(worker)

    def go_on(self, worker: PoolWorker, starting: Call | None) -> None:
        """A worker has completed a step of its start; `starting` is the next one, if any."""
        self._waited_for.pop(worker.starting, None)
        worker.starting = starting
        self.starting -= starting is None
        self._wait_for(worker)
        self._place(worker)

    def give(self, worker: PoolWorker, assigned: Assigned) -> None:
        """A worker was sent a task."""
        self._remove_place(worker)
        worker.tasks.append(assigned)
        self.under_way += 1
        self._place(worker)
        if len(worker.tasks) == 1:
            self._wait_for(worker)

    def next_of(self, worker: PoolWorker, now: float) -> None:
        """A worker has finished its oldest task."""
        self._remove_place(worker)
        done = worker.tasks.popleft()
        self._waited_for.pop(done.call, None)
        self.under_way -= 1
        worker.hung = False
        if worker.tasks:
            worker.tasks[0].since = now
        self._place(worker)
        self._wait_for(worker)

    def remove(self, worker: PoolWorker) -> None:
        """A worker is gone."""
        self._remove_place(worker)
        if self._workers.pop(worker.index, None) is not None:
            self.under_way -= len(worker.tasks)
            self.starting -= worker.starting is not None
            self.leaving -= worker.leaving
            heapq.heappush(self._free, worker.index)
        for call in (worker.starting, *(assigned.call for assigned in worker.tasks)):
            self._waited_for.pop(call, None)

    def leave(self, worker: PoolWorker) -> None:
        """A worker gets no more tasks."""
        self._remove_place(worker)
        if not worker.leaving:
            worker.leaving = True
            self.leaving += 1

    def least_loaded(self, most: int, may_take: Callable[[PoolWorker], bool]) -> PoolWorker | None:
        """One of the workers with the fewest tasks, below `most`, that may get one more."""
        for same in self._by_load[:most]:
            for worker in same.values():
                if may_take(worker):
                    return worker
        return None

    def _wait_for(self, worker: PoolWorker) -> None:
        if worker.starting is not None:
            self._waited_for[worker.starting] = worker
        elif worker.tasks:
            self._waited_for[worker.tasks[0].call] = worker

    def _place(self, worker: PoolWorker) -> None:
        if worker.ready is None or worker.leaving or worker.index not in self._workers:
            return
        while len(self._by_load) <= len(worker.tasks):
            self._by_load.append({})
        self._by_load[len(worker.tasks)][worker.index] = worker

    def _remove_place(self, worker: PoolWorker) -> None:
        if len(worker.tasks) < len(self._by_load):
            self._by_load[len(worker.tasks)].pop(worker.index, None)
