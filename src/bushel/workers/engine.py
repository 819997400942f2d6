"""The engine of one iterator: tasks out, outcomes in."""

import weakref
from collections.abc import Iterable
from typing import Any

from bushel.core.options import MultiprocessingOptions
from bushel.core.state import State
from bushel.workers.fragment import Fragment, Outcome, TaskMessage
from bushel.workers.home import Home as Home
from bushel.workers.pool import Pool, raise_closed
from bushel.workers.start import Starter
from bushel.workers.task import Task


class Engine:
    """Sends the tasks of one iterator to workers, which it has only while it needs them."""

    def __init__(
        self,
        home: Home,
        options: MultiprocessingOptions,
        worker_init: Any,
        starter: Starter | None = None,
    ) -> None:
        self._home, self._options, self._worker_init = home, options, worker_init
        self._fragments: list[Fragment] = []
        self._closed = False
        # The pool, in a list that the finalizer can hold without holding the engine.
        self._pool: list[Pool] = []
        weakref.finalize(self, _abandon, self._pool, weakref.ref(home))
        if starter is not None:
            self._pool.append(home.pool(self._fragments, worker_init, options, starter))

    @property
    def workers(self) -> int:
        """How many processes there are."""
        return self._options.num_workers

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
        task = Task(TaskMessage(0, fragment, state, stop, False, given), first)
        if self._closed:
            raise_closed()
        if self._pool and self._pool[0].closed:
            self._pool.clear()  # It could not be started, and is no use any more.
        if not self._pool:
            self._pool.append(self._home.take(self._fragments, self._worker_init, self._options))
        self._pool[0].submit(task)
        return task

    def wait(self, task: Task) -> Outcome:
        """Waits for a task."""
        if task.outcome is not None:
            return task.outcome
        if task.error is not None:
            raise task.error
        if not self._pool:
            raise_closed()
        return self._pool[0].wait(task)

    def cancel(self, tasks: Iterable[Task]) -> None:
        """Says that nobody wants to know what becomes of tasks."""
        for task in tasks:
            task.cancelled = True

    def rest(self) -> None:
        """Lets others have the workers, if they are done."""
        if self._pool and self._pool[0].idle:
            self._home.give_back(self._pool.pop())

    def close(self) -> None:
        """Ends the workers."""
        self._closed = True
        while self._pool:
            self._pool.pop().close()
        self._home.close()


def _abandon(pools: list[Pool], home: "weakref.ref[Home]") -> None:
    """An iterator is gone: its workers too, unless they are idle and have a home."""
    while pools:
        pool = pools.pop()
        kept = home()
        if kept is not None and pool.idle and pool.told:
            kept.give_back(pool)
        else:
            pool.close(politely=False)
