"""The engine of one iterator with workers: gives out tasks, bounds those ahead, takes outcomes."""

import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bushel.core.options import MultiprocessingOptions
from bushel.core.ray_options import RayOptions, bounds_of
from bushel.core.state import State
from bushel.core.tuned_options import as_parameter, worker_bounds
from bushel.run.worker_figures import WorkerFigures
from bushel.workers.fragment import Fragment, Outcome, TaskMessage
from bushel.workers.home import Home as Home
from bushel.workers.seam import ResizablePool, raise_closed
from bushel.workers.start import Starter
from bushel.workers.task import Task
from bushel.workers.tuning import Changes, Tuning, memory_budget

# Limits of prefetching: bytes of all tasks that are ahead of the loop, and their number as a
# multiple of the initial number; the latter by default, and with a tuned buffer size.
_MOST_BYTES_AHEAD, _MOST_TIMES = 1 << 26, 8
_MOST_TIMES_TUNED = 64

# Most bytes of a task. On a cluster they are more, since each task there has an overhead of some
# milliseconds of CPU, in all processes together.
_MOST_TASK_BYTES = 1 << 20
_MOST_TASK_BYTES_ELSEWHERE = 1 << 25


class Engine:
    """Sends the tasks of one iterator to workers, which it takes from a `Home` when needed."""

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
        if isinstance(options, RayOptions):
            self._bounds = bounds_of(options)
        else:
            self._bounds = worker_bounds(options.num_workers)
        self.changes = Changes()
        budget = None if isinstance(options, RayOptions) else options.ram_budget_mb
        memory_bytes = None if budget is None else budget * (1 << 20)
        self._tuning: Tuning | None = None
        if self._bounds.is_tuned:
            self._tuning = Tuning(self._bounds, memory_bytes, self.changes)
        self.most_times, self.most_bytes_ahead = float(_MOST_TIMES), _MOST_BYTES_AHEAD
        tuned = as_parameter(options.per_worker_buffer_size)
        self._ahead = _number(options.per_worker_buffer_size) if tuned is None else tuned.least
        self._tells_ahead = tuned is not None
        if tuned is not None:
            # Half of the budget; the other half is for the workers themselves.
            self.most_bytes_ahead = int(memory_budget(memory_bytes) / 2)
            self.most_times = _MOST_TIMES_TUNED
            if tuned.most is not None:
                self.most_times = (1 + tuned.most) / (1 + tuned.least)
        # Whether outcomes have statistics of the steps.
        self.timed = False
        # Whether outcomes now have the spans of the steps, for a trace.
        self.is_traced: Callable[[], bool] = bool
        self._tasks = self._cancelled = self._bytes = 0
        # Tasks that were sent and neither received nor cancelled, by their `id`.
        self._under_way: dict[int, Task] = {}
        self._busy_seconds = self._idle_seconds = 0.0
        # Seconds of waiting in `wait_for_any`, for the next `wait`.
        self._waited = 0.0
        # Counts of workers that this iterator has given back, or ended.
        self._deaths = self._repeated = 0
        # For the statistics after `close`: the workers that there were, and the tasks that were
        # ready when those under way were cancelled.
        self._last_workers: int | None = None
        self._last_ready = 0
        # The pool, in a list that the finalizer can hold without holding the engine.
        self._pool: list[ResizablePool] = []
        weakref.finalize(self, _abandon, self._pool, weakref.ref(home))
        if starter is not None:
            self._pool.append(home.pool(self._fragments, worker_init, options, starter))

    @property
    def workers(self) -> int:
        """The number of workers that is wanted now."""
        for pool in self._pool[:1]:  # Another thread may close.
            return pool.size
        return self._bounds.first if self._last_workers is None else self._last_workers

    @property
    def most_workers(self) -> int:
        """The most workers that there may be."""
        return self._bounds.most

    @property
    def most_task_bytes(self) -> int:
        """Most bytes that the outcome of a task should have."""
        elsewhere = isinstance(self._options, RayOptions)
        return _MOST_TASK_BYTES_ELSEWHERE if elsewhere else _MOST_TASK_BYTES

    @property
    def depth(self) -> int:
        """How many tasks should be under way: those that workers do now, and their next ones."""
        return self.workers * (1 + max(1, self._ahead))

    def register(self, fragment: Fragment) -> int:
        """Adds a fragment, before the first task: workers get all fragments at their start."""
        self._fragments.append(fragment)
        return len(self._fragments) - 1

    def submit(self, fragment: int, state: State, stop: int, first: int, given: Any = None) -> Task:
        """Sends a task to a worker."""
        traced = self.is_traced()
        message = TaskMessage(
            0, fragment, state, stop, False, given, timed=self.timed, traced=traced
        )
        task = Task(message, first, stop - first if given is None else len(given[1]))
        if self._closed:
            raise_closed()
        if self._pool and self._pool[0].closed:
            self._pool.clear()  # It could not be started.
        if not self._pool:
            self._pool.append(self._home.take(self._fragments, self._worker_init, self._options))
        self._pool[0].submit(task)
        self._under_way[id(task)] = task
        return task

    def wait(self, task: Task) -> Outcome:
        """Waits for a task, and returns its outcome."""
        outcome = task.outcome
        waited, self._waited = self._waited, 0.0
        if outcome is None:
            if task.error is not None:
                raise task.error
            if not self._pool:
                raise_closed()
            began = time.perf_counter()
            outcome = self._pool[0].wait(task)
            waited += time.perf_counter() - began
        self.changes.elements += task.count
        self.changes.begin()
        if self._tuning is not None:
            for pool in self._resizable():
                ahead_bytes = self.depth * task.bytes
                self._tuning.add(pool, waited, outcome.idle_seconds, task.count, ahead_bytes)
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
        began = time.perf_counter()
        task = self._pool[0].wait_for_any(tasks)
        self._waited += time.perf_counter() - began
        return task

    def cancel(self, tasks: Iterable[Task]) -> None:
        """Cancels tasks: their outcomes are discarded."""
        if not self._closed:
            self._last_ready = self._ready_tasks()
        for task in tasks:
            task.cancelled = True
            self._under_way.pop(id(task), None)
            self._cancelled += 1
        if self._tuning is not None:
            self._tuning.forget_stretch()

    def note_ahead(self, was: int, now: int) -> None:
        """Records a change of the number of tasks under way, if that number is tuned."""
        if self._tells_ahead and now != was:
            why = "the loop waited for a worker that had had nothing to do"
            self.changes.note("tasks ahead", was, now, why)

    def resize(self, count: int, why: str) -> None:
        """Changes the number of workers; the stream does not change."""
        for pool in self._resizable():
            if pool.size != count:
                self.changes.note("workers", pool.size, count, why)
                pool.resize(count)

    def _resizable(self) -> list[ResizablePool]:
        # (Another thread may close.)
        return self._pool[:1]

    def figures(self) -> WorkerFigures:
        """Statistics of the workers for this iterator."""
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
            self._last_ready if self._closed else self._ready_tasks(),
            tuple(self.changes.made),
        )

    def _ready_tasks(self) -> int:
        # (A copy: another thread may submit a task.)
        return sum(task.outcome is not None for task in list(self._under_way.values()))

    def rest(self) -> None:
        """Gives idle workers back, so that other iterators can use them."""
        if self._tuning is not None:
            self._tuning.forget_stretch()
        if self._pool and self._pool[0].idle:
            pool = self._pool.pop()
            self._count_deaths(pool)
            self._home.give_back(pool)

    def _count_deaths(self, pool: ResizablePool) -> None:
        self._deaths, self._repeated = self._deaths + pool.deaths, self._repeated + pool.repeated
        pool.deaths = pool.repeated = 0

    def close(self) -> None:
        """Ends the workers."""
        self._closed = True
        while self._pool:
            pool = self._pool.pop()
            self._last_workers = pool.size
            self._count_deaths(pool)
            pool.close()
        self._home.close()


def _number(value: Any) -> int:
    assert isinstance(value, int), value
    return value


def _abandon(pools: list[ResizablePool], home: "weakref.ref[Home]") -> None:
    """Ends the workers of an iterator that is gone; idle ones go back to their home."""
    while pools:
        pool = pools.pop()
        kept = home()
        if kept is not None and pool.idle and pool.told:
            kept.give_back(pool)
        else:
            pool.close(politely=False)
