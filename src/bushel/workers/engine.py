"""The engine of one iterator: gives tasks out, takes outcomes in."""

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

# Bytes that tasks may be ahead of the loop, all together, and how many times as many tasks as
# there are at first; where nobody asked for more, and where the number is tuned.
_MOST_BYTES_AHEAD, _MOST_TIMES = 1 << 26, 8
_MOST_TIMES_TUNED = 64

# Bytes of a task. For a worker elsewhere each takes some milliseconds of CPU, of all who have to do
# with it, whatever it is.
_MOST_TASK_BYTES = 1 << 20
_MOST_TASK_BYTES_ELSEWHERE = 1 << 25


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
            # Half of the budget: the other one is for the workers themselves.
            self.most_bytes_ahead = int(memory_budget(memory_bytes) / 2)
            self.most_times = _MOST_TIMES_TUNED
            if tuned.most is not None:
                self.most_times = (1 + tuned.most) / (1 + tuned.least)
        # Whether outcomes tell what each step did and took.
        self.timed = False
        # And whether, at the time, they are to tell when.
        self.is_traced: Callable[[], bool] = bool
        self._tasks = self._cancelled = self._bytes = 0
        # Those that were sent and neither taken nor cancelled, by their `id`.
        self._under_way: dict[int, Task] = {}
        self._busy_seconds = self._idle_seconds = 0.0
        # Seconds of waiting for whichever task is done first, until its outcome is taken.
        self._waited = 0.0
        # Of workers that this iterator has given back.
        self._deaths = self._repeated = 0
        # The pool, in a list that the finalizer can hold without holding the engine.
        self._pool: list[ResizablePool] = []
        weakref.finalize(self, _abandon, self._pool, weakref.ref(home))
        if starter is not None:
            self._pool.append(home.pool(self._fragments, worker_init, options, starter))

    @property
    def workers(self) -> int:
        """How many there are to be now."""
        for pool in self._pool[:1]:  # Another thread may close.
            return pool.size
        return self._bounds.first

    @property
    def most_workers(self) -> int:
        """How many there may come to be."""
        return self._bounds.most

    @property
    def most_task_bytes(self) -> int:
        """How large the outcome of a task should be at most."""
        elsewhere = isinstance(self._options, RayOptions)
        return _MOST_TASK_BYTES_ELSEWHERE if elsewhere else _MOST_TASK_BYTES

    @property
    def depth(self) -> int:
        """How many tasks should be under way: what workers do now, and what they do next."""
        return self.workers * (1 + max(1, self._ahead))

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
        task = Task(message, first, stop - first if given is None else len(given[1]))
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
        """Says that nobody wants to know what becomes of tasks."""
        for task in tasks:
            task.cancelled = True
            self._under_way.pop(id(task), None)
            self._cancelled += 1
        if self._tuning is not None:
            self._tuning.forget_stretch()

    def note_ahead(self, was: int, now: int) -> None:
        """Takes note that other than so many tasks are under way; tells it where that is tuned."""
        if self._tells_ahead and now != was:
            why = "the loop waited for a worker that had had nothing to do"
            self.changes.note("tasks ahead", was, now, why)

    def resize(self, count: int, why: str) -> None:
        """Has another number of workers from now on; the stream does not change."""
        for pool in self._resizable():
            if pool.size != count:
                self.changes.note("workers", pool.size, count, why)
                pool.resize(count)

    def _resizable(self) -> list[ResizablePool]:
        # (Another thread may close.)
        return self._pool[:1]

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
            tuple(self.changes.made),
        )

    def rest(self) -> None:
        """Lets others have the workers, if they are done."""
        if self._tuning is not None:
            self._tuning.forget_stretch()
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


def _number(value: Any) -> int:
    assert isinstance(value, int), value
    return value


def _abandon(pools: list[ResizablePool], home: "weakref.ref[Home]") -> None:
    """An iterator is gone: its workers too, unless they are idle and have a home."""
    while pools:
        pool = pools.pop()
        kept = home()
        if kept is not None and pool.idle and pool.told:
            kept.give_back(pool)
        else:
            pool.close(politely=False)
