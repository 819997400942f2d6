"""Local workers and workers on a cluster in one pool: local workers get tasks first.

No system call waits for both: local workers have sockets, and only Ray knows about the others. So
the cluster is polled every few milliseconds while local workers have tasks, and waited for while
they have none.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bushel.core.options import MultiprocessingOptions
from bushel.core.ray_options import RayOptions, bounds_of, is_open
from bushel.workers.cluster.pool import ClusterPool
from bushel.workers.fragment import Fragment
from bushel.workers.payload import Payload
from bushel.workers.pool import Pool
from bushel.workers.seam import TaskQueue
from bushel.workers.start import Starter
from bushel.workers.task import Task

_log = logging.getLogger("bushel")

# A poll of Ray takes a tenth of a millisecond: one or two percent of this interval.
_ASKS_EVERY_SECONDS = 0.005


def joint_pool(
    fragments: Sequence[Fragment],
    make_payload: Callable[[], Payload],
    cluster: ClusterPool,
    options: RayOptions,
) -> "JointPool":
    """Adds local workers to those of a cluster; local ones have the first numbers."""
    here = options.num_local_workers
    bounds = bounds_of(options)
    like_those = MultiprocessingOptions(
        here,
        options.per_worker_buffer_size,
        hang_timeout=options.hang_timeout,
        on_hang=options.on_hang,
    )
    starter = Starter(here, bounds.first if is_open(options.num_workers) else bounds.most)
    local = Pool(fragments, make_payload, like_those, starter)
    return JointPool(local, cluster, 1 + max(1, options.per_worker_buffer_size))


class JointPool(TaskQueue):
    """Two pools that an engine sees as one (see `ResizablePool`); the local pool keeps its size."""

    def __init__(self, local: Pool, cluster: ClusterPool, most: int) -> None:
        """A local worker has at most `most` tasks at once."""
        self._local, self._cluster, self._most = local, cluster, most
        super().__init__()
        # Tasks that local workers have, and that are not done.
        self._here: list[Task] = []
        self.learned: Any = None

    @property
    def closed(self) -> bool:
        """Whether one of the two was closed; a forked child has lost the local workers."""
        return self._closed or self._local.closed or self._cluster.closed

    @closed.setter
    def closed(self, value: bool) -> None:
        self._closed = value

    @property
    def told(self) -> bool:
        """Whether there are workers that know the pipeline."""
        return self._local.told

    @property
    def idle(self) -> bool:
        """Whether there are no tasks."""
        return not self._homeless and self._local.idle and self._cluster.idle

    @property
    def size(self) -> int:
        """The wanted number of workers."""
        return self._local.size + self._cluster.size

    @property
    def settled(self) -> bool:
        """Whether the number is the wanted one, all are ready, and none is about to leave."""
        return self._local.settled and self._cluster.settled

    @property
    def refusal(self) -> str | None:
        """Why the cluster has fewer workers than requested."""
        return self._cluster.refusal

    @refusal.setter
    def refusal(self, value: str | None) -> None:
        self._cluster.refusal = value

    def resize(self, count: int) -> None:
        """Changes the number of workers on the cluster."""
        self._cluster.resize(count - self._local.size)

    def places(self) -> int | None:
        """The most workers that are possible, including local ones."""
        places = self._cluster.places()
        return None if places is None else self._local.size + places

    def private_bytes(self) -> int:
        """Unknown for workers on the cluster, whose number is the one that changes."""
        return 0

    def core_seconds(self) -> float | None:
        """Unknown for workers on the cluster."""
        return None

    def _give_out(self) -> None:
        """Gives tasks to the worker with the fewest, local ones first."""
        with self._both_or_none():
            self._here = [task for task in self._here if _is_wanted(task)]
            while self._homeless:
                task = self._homeless[0]
                if _is_wanted(task):
                    here = len(self._here) // self._local.size
                    there = self._cluster.least_load()
                    if here < self._most and (there is None or here <= there):
                        self._take_here(task)
                    elif there is not None:
                        self._cluster.take(task)
                    else:
                        return
                # After the task was sent: with an interrupt in between, it is done twice rather
                # than never.
                self._homeless.popleft()

    def _take_here(self, task: Task) -> None:
        self._here.append(task)
        self._local.take(task)

    def go_on(self, seconds: float | None = None) -> bool:
        """Gives out tasks, waits for news of either pool, and takes note of it."""
        self._give_out()
        with self._both_or_none():
            heard = self._cluster.go_on(0.0 if self._here else seconds)
            if self._here:
                heard |= self._local.go_on(0.0 if heard else _ASKS_EVERY_SECONDS)
            # Tasks of a lost cluster worker, if no other one there has room for them.
            self._homeless.extendleft(reversed(self._cluster.give_back()))
            self._help_late_ones()
        for pool in (self._local, self._cluster):
            self.deaths += pool.deaths
            self.repeated += pool.repeated
            pool.deaths = pool.repeated = 0
        return heard

    def _help_late_ones(self) -> None:
        """Gives overdue tasks of cluster workers to an idle local worker."""
        if self._homeless:
            return
        for task in self._cluster.late_tasks():
            if len(self._here) >= self._local.size:
                return
            if task not in self._here:
                _log.warning(
                    "%s: late on the cluster; a worker here does it too, and the first one counts.",
                    task.positions(),
                )
                self._take_here(task)

    @contextmanager
    def _both_or_none(self) -> Iterator[None]:
        """Closes one pool if the other one has closed because it could not begin."""
        try:
            yield
        except BaseException:
            if self.closed:
                self.close(politely=False)
            raise

    def close(self, politely: bool = True) -> None:
        """Ends all workers."""
        self._closed = True
        self._homeless.clear()
        self._cluster.close()
        self._local.close(politely)


def _is_wanted(task: Task) -> bool:
    return task.outcome is None and task.error is None and not task.cancelled
