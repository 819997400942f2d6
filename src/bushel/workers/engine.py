"""The engine of one iterator: tasks out, outcomes in."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bushel.core.options import MultiprocessingOptions
from bushel.core.ray_options import RayOptions
from bushel.core.state import State
from bushel.run.worker_figures import WorkerFigures
from bushel.workers.fragment import Fragment, Outcome, TaskMessage
from bushel.workers.home import Home as Home
from bushel.workers.pool import Pool, raise_closed
from bushel.workers.start import Starter
from bushel.workers.task import Task

if TYPE_CHECKING:
    from bushel.workers.cluster.pool import ClusterPool

# Bytes of a task. To a worker elsewhere it takes a millisecond each way, whatever it is.
_MOST_TASK_BYTES = 1 << 20
_MOST_TASK_BYTES_ELSEWHERE = 1 << 23


class Engine:
    """Sends the tasks of one iterator to workers, which it has only while it needs them."""

    def __init__(
        self,
        home: Home,
        options: MultiprocessingOptions | RayOptions,
        worker_init: Any,
        starter: Starter | None = None,
    ) -> None:
        self._home, self._options, self._worker_init = home, options, worker_init
        self._fragments: list[Fragment] = []
        self._closed = False
        # Whether outcomes tell what each step did and took.
        self.timed = False
        # And whether, at the time, they are to tell when.
        self.is_traced: Callable[[], bool] = bool
        self._tasks = self._cancelled = self._bytes = 0
        # Those that were sent and neither taken nor cancelled, by their `id`.
        self._under_way: dict[int, Task] = {}
        self._busy_seconds = self._idle_seconds = 0.0
        # Of workers that this iterator has given back.
        self._deaths = self._repeated = 0
        # The pool, in a list that the finalizer can hold without holding the engine.
        self._pool: list[Pool | ClusterPool] = []
        weakref.finalize(self, _abandon, self._pool, weakref.ref(home))
        if starter is not None:
            self._pool.append(home.pool(self._fragments, worker_init, options, starter))

    @property
    def workers(self) -> int:
        """How many processes there are."""
        return self._options.num_workers

    @property
    def most_task_bytes(self) -> int:
        """How large the outcome of a task should be at most."""
        elsewhere = isinstance(self._options, RayOptions)
        return _MOST_TASK_BYTES_ELSEWHERE if elsewhere else _MOST_TASK_BYTES

    @property
    def depth(self) -> int:
        """How many tasks should be under way: what workers do now, and what they do next."""
        return self._options.num_workers * (1 + max(1, self._options.per_worker_buffer_size))

    def register(self, fragment: Fragment) -> int:
        """Makes a fragment known; before the first task, since workers are told at their start."""
        self._fragments.append(fragment)
        return len(self._fragments) - 1

    def submit(self, fragment: int, state: State, stop: int, first: int, given: Any = None) -> Task:
        """Sends a task on its way."""
        traced = self.is_traced()
        message = TaskMessage(
            0, fragment, state, stop, False, given, timed=self.timed, traced=traced
        )
        task = Task(message, first)
        if self._closed:
            raise_closed()
        if self._pool and self._pool[0].closed:
            self._pool.clear()  # It could not be started, and is no use any more.
        if not self._pool:
            self._pool.append(self._home.take(self._fragments, self._worker_init, self._options))
        self._pool[0].submit(task)
        self._under_way[id(task)] = task
        return task

    def wait(self, task: Task) -> Outcome:
        """Waits for a task."""
        outcome = task.outcome
        if outcome is None:
            if task.error is not None:
                raise task.error
            if not self._pool:
                raise_closed()
            outcome = self._pool[0].wait(task)
        self._under_way.pop(id(task), None)
        self._tasks += 1
        self._bytes += task.bytes
        self._busy_seconds += outcome.seconds
        self._idle_seconds += outcome.idle_seconds
        return outcome

    def wait_for_any(self, tasks: Sequence[Task]) -> Task:
        """Waits until one of some tasks is done; `wait` then has its outcome at once."""
        if not self._pool:
            raise_closed()
        return self._pool[0].wait_for_any(tasks)

    def cancel(self, tasks: Iterable[Task]) -> None:
        """Says that nobody wants to know what becomes of tasks."""
        for task in tasks:
            task.cancelled = True
            self._under_way.pop(id(task), None)
            self._cancelled += 1

    def figures(self) -> WorkerFigures:
        """What the workers have done for this iterator."""
        pool = self._pool[0] if self._pool else None
        return WorkerFigures(
            self.workers,
            self._tasks,
            self._busy_seconds,
            self._idle_seconds,
            self._bytes,
            self._deaths + (0 if pool is None else pool.deaths),
            self._repeated + (0 if pool is None else pool.repeated),
            self._cancelled,
            # (Another thread may send one.)
            sum(task.outcome is not None for task in list(self._under_way.values())),
        )

    def rest(self) -> None:
        """Lets others have the workers, if they are done."""
        if self._pool and self._pool[0].idle:
            pool = self._pool.pop()
            self._deaths, self._repeated = (
                self._deaths + pool.deaths,
                self._repeated + pool.repeated,
            )
            pool.deaths = pool.repeated = 0
            self._home.give_back(pool)

    def close(self) -> None:
        """Ends the workers."""
        self._closed = True
        while self._pool:
            self._pool.pop().close()
        self._home.close()


def _abandon(pools: "list[Pool | ClusterPool]", home: "weakref.ref[Home]") -> None:
    """An iterator is gone: its workers too, unless they are idle and have a home."""
    while pools:
        pool = pools.pop()
        kept = home()
        if kept is not None and pool.idle and pool.told:
            kept.give_back(pool)
        else:
            pool.close(politely=False)
