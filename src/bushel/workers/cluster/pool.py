"""Workers on a cluster, as the trainer sees them: given tasks, replaced, asked twice.

A task says all there is to know and changes nothing, so any worker may do it, and two may: the
first outcome counts. What the cluster does by itself (restarting, retrying) is switched off; it
would know neither the order nor which element is to blame.

There is no thread here. The trainer looks after its workers when it wants an element.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from bushel.core.frozen import plain
from bushel.core.ray_options import RayOptions
from bushel.errors import WorkerError
from bushel.workers.blame import Blame
from bushel.workers.cluster.actor import versions
from bushel.workers.cluster.cluster import (
    MEMORY,
    NODE,
    NOTHING_NOTED,
    PROCESS,
    Call,
    Cluster,
    Handle,
    ResultLost,
    TaskFault,
    WorkerGone,
    WorkerGreeting,
)
from bushel.workers.fragment import Fragment
from bushel.workers.seam import TaskQueue
from bushel.workers.task import Task

_log = logging.getLogger("bushel")

# How long to wait at most before looking around.
_LOOK_SECONDS = 1.0
# A task that takes so many times as long as others do, and at least so many seconds, is given to
# another worker too. Ray itself notices a node that is cut off after a minute.
_LATE_TIMES, _LATE_SECONDS = 10.0, 3.0
# Seconds after which workers without a place are told of.
_UNPLACED_SECONDS = 10.0
# So many workers in a row that end before they have begun are not replaced any more.
_MOST_FAILED_STARTS = 10
# And so many that a node ends for want of memory, with the same task.
_MOST_MEMORY_ENDS = 6


@plain
class _Assigned:
    """A task that a worker has."""

    call: Call
    task: Task
    # When the worker could begin with it; None as long as it has others before.
    since: float | None


class _PoolWorker:
    def __init__(self, index: int, handle: Handle, starting: Call, asked: float) -> None:
        self.index, self.handle = index, handle
        # What it is waited for before it gets tasks, and since when.
        self.starting: Call | None = starting
        self.asked = asked
        self.ready: WorkerGreeting | None = None
        # Tasks in the order sent, which is that of their outcomes.
        self.tasks: deque[_Assigned] = deque()
        self.hung = False

    def __str__(self) -> str:
        return (
            f"worker {self.index}" if self.ready is None else f"worker {self.index}, {self.ready}"
        )


class ClusterPool(TaskQueue):
    """The workers of one pipeline, on a cluster (see `WorkerPool`)."""

    def __init__(
        self,
        fragments: Sequence[Fragment],
        make_cluster: Callable[[], Cluster],
        options: RayOptions,
    ) -> None:
        super().__init__()
        self._make_cluster, self._options = make_cluster, options
        self._cluster: Cluster | None = None
        self._blame = Blame(fragments)
        self._workers: list[_PoolWorker] = []
        self._failed_starts = 0
        # How long a task takes as a rule, and how often one was asked of two workers.
        self._usual_seconds = 0.0
        self.doubled = 0
        self._told_unplaced = False

    @property
    def size(self) -> int:
        """How many workers there are to be."""
        return self._options.num_workers

    @property
    def told(self) -> bool:
        """Whether there are workers that know the pipeline."""
        return any(worker.ready is not None for worker in self._workers)

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything."""
        return not self._homeless and not any(
            assigned.task.outcome is None and not assigned.task.cancelled
            for worker in self._workers
            for assigned in worker.tasks
        )

    def _go_on(self) -> None:
        self._give_out()
        self._read()

    # Giving tasks.

    def _give_out(self) -> None:
        """Sees that there are workers, and that tasks have one."""
        if self._cluster is None:
            self._cluster = self._make_cluster()
        cluster = self._cluster
        taken = {worker.index for worker in self._workers}
        for index in range(self._options.num_workers):
            if index not in taken:
                handle, starting = cluster.start(index)
                self._workers.append(_PoolWorker(index, handle, starting, cluster.now()))
        draining = cluster.draining()
        while self._homeless:
            task = self._homeless[0]
            if task.outcome is None and not task.cancelled and task.error is None:
                worker = self._free_worker(draining)
                if worker is None:
                    return
                self._send(worker, task)
            # Only now: if an interrupt comes in between, it is done twice and not never.
            self._homeless.popleft()

    def _free_worker(self, draining: set[str]) -> _PoolWorker | None:
        most = 1 + max(1, self._options.per_worker_buffer_size)
        free = [
            worker
            for worker in self._workers
            if worker.ready is not None
            and len(worker.tasks) < most
            and not self._is_late(worker)
            and worker.ready.node not in draining
        ]
        return min(free, key=lambda worker: len(worker.tasks), default=None)

    def _send(self, worker: _PoolWorker, task: Task) -> None:
        assert self._cluster is not None
        call = self._cluster.run(worker.handle, task.message)
        since = None if worker.tasks else self._cluster.now()
        worker.tasks.append(_Assigned(call, task, since))

    # Looking after workers.

    def _read(self) -> None:
        """Waits for news, and takes note of it."""
        assert self._cluster is not None
        calls = {
            worker.tasks[0].call if worker.starting is None else worker.starting: worker
            for worker in self._workers
            if worker.starting is not None or worker.tasks
        }
        done = self._cluster.wait(list(calls), _LOOK_SECONDS)
        self._check_open()
        for call in done:
            worker = calls[call]
            try:
                if worker.starting is not None:
                    self._take_start(worker, call)
                else:
                    self._take_outcome(worker, call)
            except WorkerGone as gone:
                self._replace(worker, gone)
        if not done:
            self._look_around()

    def _take_start(self, worker: _PoolWorker, call: Call) -> None:
        assert self._cluster is not None
        try:
            said = self._cluster.ready(call)
        except TaskFault as fault:
            self.close()
            where = "on the cluster" if worker.ready is None else f"({worker.ready})"
            raise WorkerError(f"worker {worker.index} {where} could not begin:\n{fault}") from None
        except ResultLost as lost:
            raise WorkerGone(NODE, str(lost)) from None
        if worker.ready is None:
            self._compare(said)
            worker.ready = said
            worker.starting = self._cluster.instruct(worker.handle)
            return
        worker.starting = None
        self._failed_starts = 0

    def _compare(self, ready: WorkerGreeting) -> None:
        """Refuses a worker that would not give the same stream."""
        here = versions()
        if ready.missing:
            self.close()
            raise WorkerError(
                f"the node of {ready} does not have {', '.join(ready.missing)}, which this "
                "pipeline reads. Put the files where all nodes see them (a shared file system, an "
                "object store), or choose nodes that have them with `label_selector`."
            )
        if ready.bushel != here[2] or ready.python.split(".")[:2] != here[0].split(".")[:2]:
            self.close()
            raise WorkerError(
                f"{ready} has Python {ready.python} and bushel {ready.bushel}, and this program "
                f"has Python {here[0]} and bushel {here[2]}. Give the nodes the same "
                "(`runtime_env={'pip': [...]}` or their image)."
            )
        if ready.numpy != here[1]:
            _log.warning(
                "%s has numpy %s and this program has %s: random steps may differ there.",
                ready, ready.numpy, here[1],
            )  # fmt: skip

    def _take_outcome(self, worker: _PoolWorker, call: Call) -> None:
        assert self._cluster is not None
        assigned = worker.tasks[0]
        task = assigned.task
        try:
            outcome, size = self._cluster.outcome(call)
        except ResultLost as lost:
            _log.warning(
                "%s had done %s, and the result is lost: %s It is done again.",
                worker, task.positions(), lost,
            )  # fmt: skip
            self._next_of(worker)
            self._again([task])
            return
        except TaskFault as fault:
            self._next_of(worker)
            if task.outcome is None:
                task.error = WorkerError(f"{worker} failed on {task.positions()}:\n{fault}")
            return
        self._next_of(worker)
        share = 0.2 if self._usual_seconds else 1.0
        self._usual_seconds += share * (outcome.seconds - self._usual_seconds)
        if task.outcome is None:  # Otherwise it was asked of two, and this is the second.
            task.outcome, task.bytes = outcome, size

    def _next_of(self, worker: _PoolWorker) -> None:
        assert self._cluster is not None
        worker.tasks.popleft()
        worker.hung = False
        if worker.tasks:
            worker.tasks[0].since = self._cluster.now()

    def _again(self, tasks: Sequence[Task]) -> None:
        """Has tasks done once more, before all others."""
        again = [task for task in tasks if task.outcome is None and not task.cancelled]
        self.repeated += len(again)
        self._homeless.extendleft(reversed(again))

    def _is_late(self, worker: _PoolWorker) -> bool:
        since = worker.tasks[0].since if worker.tasks else None
        if since is None or self._cluster is None:
            return False
        usual = max(_LATE_SECONDS, _LATE_TIMES * self._usual_seconds)
        return self._cluster.now() - since > usual

    def _look_around(self) -> None:
        """Nothing has come for a while: who is late, who has no place, who hangs?"""
        assert self._cluster is not None
        now = self._cluster.now()
        self._look_for_places(now)
        for worker in list(self._workers):
            since = worker.tasks[0].since if worker.tasks else None
            timeout = self._options.hang_timeout
            if since is not None and timeout is not None and now - since > timeout:
                self._hangs(worker, now - since)
        if not self._homeless:
            self._double_late_ones()

    def _look_for_places(self, now: float) -> None:
        assert self._cluster is not None
        waiting = [worker for worker in self._workers if worker.ready is None]
        if not waiting:
            return
        seconds = now - min(worker.asked for worker in waiting)
        placed = len(self._workers) - len(waiting)
        if not placed and seconds > self._options.start_timeout:
            room = self._cluster.room()
            self.close()
            raise WorkerError(
                f"no worker has found a place on the cluster within {seconds:.0f} s: {room}. Ask "
                "for less (`num_cpus`, `resources`, `label_selector`), or give it more time "
                "(`start_timeout`) where nodes are being added."
            )
        if seconds > _UNPLACED_SECONDS and not self._told_unplaced:
            self._told_unplaced = True
            _log.warning(
                "%d of %d workers have no place on the cluster after %.0f s: %s. The stream goes "
                "on with those that have one.",
                len(waiting), len(self._workers), seconds, self._cluster.room(),
            )  # fmt: skip

    def _hangs(self, worker: _PoolWorker, seconds: float) -> None:
        assigned = worker.tasks[0]
        text = f"{worker} has been at {assigned.task.positions()} for {seconds:.1f} s"
        if self._options.on_hang == "raise":
            self._forget(worker)
            self._again([assigned.task for assigned in worker.tasks])
            raise WorkerError(f"{text}. It is taken for one that hangs.")
        if not worker.hung:
            worker.hung = True
            _log.warning("%s.", text)
        if self._options.on_hang == "replace":
            self._forget(worker)
            self._again([assigned.task for assigned in worker.tasks])

    def _double_late_ones(self) -> None:
        """Gives what a late worker has to others too, where one has nothing to do."""
        assert self._cluster is not None
        idle = [worker for worker in self._workers if worker.starting is None and not worker.tasks]
        for worker in self._workers:
            if not idle or not self._is_late(worker):
                continue
            for assigned in worker.tasks:
                task = assigned.task
                twice = sum(other.task is task for w in self._workers for other in w.tasks) > 1
                if idle and not twice and task.outcome is None and not task.cancelled:
                    other = idle.pop()
                    _log.warning(
                        "%s is late with %s; %s does it too, and the first one counts.",
                        worker, task.positions(), other,
                    )  # fmt: skip
                    self.doubled += 1
                    self._send(other, task)

    def _replace(self, worker: _PoolWorker, gone: WorkerGone) -> None:
        """A worker is gone: another one takes its place, and others its tasks."""
        assert self._cluster is not None
        tasks = [assigned.task for assigned in worker.tasks]
        had = ", ".join(task.positions() for task in tasks[:3]) or "nothing to do"
        _log.warning(
            "%s is gone (%s) while it had %s: %s Another one takes its place; the stream does not "
            "change.",
            worker, gone.why, had, gone,
        )  # fmt: skip
        ready, started = worker.ready, worker.starting is None
        self._forget(worker)
        self.deaths += 1
        if not started:
            self._failed_starts += 1
            if self._failed_starts >= _MOST_FAILED_STARTS and gone.why in (PROCESS, MEMORY):
                self.close()
                raise WorkerError(
                    f"{self._failed_starts} workers in a row ended before they had begun: the last "
                    f"one, {worker} ({gone.why}): {gone}"
                )
        error = self._find_out(tasks[0] if tasks else None, ready, gone)
        if error is not None and tasks:
            tasks.pop(0).error = error
        self._again(tasks)

    def _find_out(
        self, task: Task | None, ready: WorkerGreeting | None, gone: WorkerGone
    ) -> WorkerError | None:
        """What a worker died of; an element is blamed for its process only, not for its node."""
        assert self._cluster is not None
        if task is None or task.outcome is not None:
            return None
        if gone.why == MEMORY:
            task.ends += 1
            if task.ends >= _MOST_MEMORY_ENDS:
                return WorkerError(
                    f"nodes ended {task.ends} workers in a row for want of memory, with "
                    f"{task.positions()}: {gone} Let each worker take more of a node "
                    "(`RayOptions(memory=...)`), or have fewer of them."
                )
            return None
        if gone.why != PROCESS:
            self._blame.other_deaths += 1
            return None
        noted = NOTHING_NOTED if ready is None else self._cluster.noted(ready)
        return self._blame.note(task, noted, False, f"is gone ({gone})")

    def _forget(self, worker: _PoolWorker) -> None:
        assert self._cluster is not None
        self._workers.remove(worker)
        self._cluster.end(worker.handle)

    def close(self, politely: bool = True) -> None:
        """Ends all workers."""
        if self.closed:
            return
        self.closed = True
        self._homeless.clear()
        if self._cluster is not None:
            for worker in self._workers:
                self._cluster.end(worker.handle)
            self._cluster.close()
        self._workers.clear()
