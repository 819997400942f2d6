"""The pool of workers on a cluster: gives out tasks, replaces workers, repeats stragglers.

A task is self-contained and changes nothing, so any worker may do it, and two may: the first
outcome counts. The cluster's own restarts and retries are switched off, as they know neither the
order of tasks nor which element is to blame.

It has no thread: workers are attended to whenever the trainer wants an element.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.ray_options import RayOptions, cluster_bounds
from bushel.errors import WorkerError
from bushel.workers.blame import Blame
from bushel.workers.cluster.actor import why_refused
from bushel.workers.cluster.cluster import (
    MEMORY,
    NODE,
    NOTHING_NOTED,
    PROCESS,
    Call,
    Cluster,
    ResultLost,
    TaskFault,
    WorkerGone,
    WorkerGreeting,
)
from bushel.workers.cluster.roster import Assigned, PoolWorker, Roster
from bushel.workers.fragment import Fragment
from bushel.workers.seam import TaskQueue
from bushel.workers.task import Task

_log = logging.getLogger("bushel")

# The most seconds to wait before a look at all workers.
_LOOK_SECONDS = 1.0
# A task that takes this many times as long as usual, and at least so many seconds, is given to
# another worker, too. Ray itself notices that a node is cut off only after a minute.
_LATE_TIMES, _LATE_SECONDS = 10.0, 3.0
# The seconds that a finished result may take to arrive before it counts as lost. Ray itself would
# ask for a lost result for ten minutes. The time doubles for each repetition of a task: if the
# network is that slow, asking again does not help.
_LOST_SECONDS = 15.0
# Seconds after which workers without a place are reported.
_UNPLACED_SECONDS = 10.0
# After this many failed starts in a row, workers are not replaced any more.
_MOST_FAILED_STARTS = 10
# And after this many ends for lack of memory with the same task.
_MOST_MEMORY_ENDS = 6
# Room for workers on a cluster that may grow.
_ANY_NUMBER = 1 << 30


class ClusterPool(TaskQueue):
    """The workers of one pipeline, on a cluster (see `WorkerPool`)."""

    def __init__(
        self,
        fragments: Sequence[Fragment],
        make_cluster: Callable[[], Cluster],
        options: RayOptions,
        alone: bool = True,
    ) -> None:
        """Unless it is `alone`, another pool takes tasks for which there is no worker here."""
        super().__init__()
        self._alone = alone
        self._make_cluster, self._options = make_cluster, options
        self._cluster: Cluster | None = None
        self._blame = Blame(fragments)
        self._roster = Roster()
        bounds = cluster_bounds(options.num_workers)
        self._size, self._is_tuned = bounds.first, bounds.is_tuned
        # Whether workers are being added, or leave.
        self._changing = True
        self.refusal: str | None = None
        self.learned: Any = None
        self._failed_starts = 0
        self._looked_at = 0.0
        # The usual seconds of a task, and the number of tasks given to two workers.
        self._usual_seconds = 0.0
        self.doubled = 0
        self._told_unplaced = False

    @property
    def size(self) -> int:
        """The wanted number of workers."""
        return self._size

    @property
    def told(self) -> bool:
        """Whether there are workers that know the pipeline."""
        return any(worker.ready is not None for worker in self._roster)

    @property
    def idle(self) -> bool:
        """Whether there are no tasks."""
        return not self._homeless and not any(
            assigned.task.outcome is None and not assigned.task.cancelled
            for worker in self._roster
            for assigned in worker.tasks
        )

    # Having more of them, or fewer.

    @property
    def settled(self) -> bool:
        """Whether the number is the wanted one, all are ready, and none is about to leave."""
        return not (self._changing or self._roster.starting or self._roster.leaving)

    def resize(self, count: int) -> None:
        """Changes the number of workers, from the next task on."""
        self._size, self._changing, self.refusal = max(1, count), True, None

    def private_bytes(self) -> int:
        """Unknown: their memory is on other machines."""
        return 0

    def core_seconds(self) -> float | None:
        """Unknown: their cores are on other machines."""
        return None

    def places(self) -> int | None:
        """The most workers that are possible, including existing ones."""
        room = None if self._cluster is None else self._cluster.places()
        # If the user set a number, that is requested, and the cluster may grow for it.
        return _ANY_NUMBER if room is None else len(self._roster) - self._roster.starting + room

    def _change(self, cluster: Cluster) -> None:
        """Moves towards the wanted number of workers, without waiting."""
        roster = self._roster
        staying = [worker for worker in roster if not worker.leaving]
        # Workers without a place leave first, then the latest ones.
        staying.sort(key=lambda worker: (worker.ready is None, worker.index))
        for worker in staying[self._size :]:
            roster.leave(worker)
        for _ in range(self._size - len(staying)):
            index = roster.free_index()
            handle, starting = cluster.start(index)
            roster.add(PoolWorker(index, handle, starting, cluster.now()))
        for worker in roster if roster.leaving else ():
            if worker.leaving and not worker.tasks:
                self._forget(worker)
        # Further changes set it again.
        self._changing = False

    def go_on(self, seconds: float | None = None) -> bool:
        """Gives out tasks, waits for news, and takes note of it."""
        self._give_out()
        return self._read(seconds)

    # What others beside it, who have the same tasks, want to know.

    def least_load(self) -> int | None:
        """The number of tasks of the worker that gets the next one; None if no worker takes any."""
        if self._homeless:
            return None
        worker = self._roster.least_loaded(self._usual_load, self._may_take)
        return None if worker is None else len(worker.tasks)

    def give_back(self) -> list[Task]:
        """Hands over the tasks that have no worker."""
        tasks = list(self._homeless)
        self._homeless.clear()
        return tasks

    def late_tasks(self) -> list[Task]:
        """Overdue tasks of workers."""
        return [
            assigned.task
            for worker in self._roster
            if self._is_late(worker)
            for assigned in worker.tasks
            if assigned.task.outcome is None and not assigned.task.cancelled
        ]

    # Giving tasks.

    @property
    def _usual_load(self) -> int:
        return 1 + max(1, self._options.per_worker_buffer_size)

    def _give_out(self) -> None:
        """Starts workers as needed, and gives them tasks."""
        if self._cluster is None:
            self._cluster = self._make_cluster()
        cluster, roster = self._cluster, self._roster
        if self._changing:
            self._change(cluster)
        if not self._homeless:
            return
        # The tasks that an engine has under way are shared equally; workers that begin later get
        # their part.
        share = -(-(len(self._homeless) + roster.under_way) // max(1, len(roster)))
        most = max(self._usual_load, share)
        while self._homeless:
            task = self._homeless[0]
            if task.outcome is None and not task.cancelled and task.error is None:
                worker = roster.least_loaded(most, self._may_take) or self._last_resort(most)
                if worker is None:
                    return
                self._send(worker, task)
            # After the task was sent: with an interrupt in between, it is done twice rather than
            # never.
            self._homeless.popleft()

    def _may_take(self, worker: PoolWorker) -> bool:
        return not self._is_late(worker)

    def _last_resort(self, most: int) -> PoolWorker | None:
        """A leaving worker, if its node goes away and no other worker is there yet."""
        if not self._roster.leaving:
            return None
        ready = [worker for worker in self._roster if worker.ready is not None]
        if any(not worker.leaving for worker in ready):
            return None
        free = [worker for worker in ready if len(worker.tasks) < most]
        return min(free, key=lambda worker: len(worker.tasks), default=None)

    def _send(self, worker: PoolWorker, task: Task) -> None:
        assert self._cluster is not None
        call = self._cluster.run(worker.handle, task.message)
        since = None if worker.tasks else self._cluster.now()
        self._roster.give(worker, Assigned(call, task, since))

    # Looking after workers.

    def _read(self, seconds: float | None) -> bool:
        """Waits for news, and takes note of it; returns whether there was any."""
        assert self._cluster is not None
        calls = self._roster.calls()
        # (None if all have begun, and none has a task.)
        done = self._cluster.wait(calls, _LOOK_SECONDS if seconds is None else seconds)
        self._check_open()
        for call in done:
            worker = self._roster.of(call)
            if worker is None:
                continue
            try:
                if worker.starting is not None:
                    self._take_start(worker, call)
                else:
                    self._take_outcome(worker, call)
            except WorkerGone as gone:
                self._replace(worker, gone)
            if worker.leaving:
                self._changing = True
        now = self._cluster.now()
        if (seconds is None and not done) or now - self._looked_at > _LOOK_SECONDS:
            self._looked_at = now
            self._look_around(now)
        return bool(done)

    def _take_start(self, worker: PoolWorker, call: Call) -> None:
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
            refused = why_refused(said)
            if refused is not None:
                self.close()
                raise WorkerError(refused)
            worker.ready = said
            self._roster.go_on(worker, self._cluster.instruct(worker.handle))
            return
        self._roster.go_on(worker, None)
        self._failed_starts = 0

    def _take_outcome(self, worker: PoolWorker, call: Call) -> None:
        assert self._cluster is not None
        assigned = worker.tasks[0]
        task = assigned.task
        try:
            outcome, size = self._cluster.outcome(call)
        except ResultLost as lost:
            self._lost(worker, str(lost))
            return
        except TaskFault as fault:
            self._next_of(worker)
            if task.outcome is None:
                task.error = WorkerError(f"{worker} failed on {task.positions()}:\n{fault}")
            return
        self._next_of(worker)
        share = 0.2 if self._usual_seconds else 1.0
        self._usual_seconds += share * (outcome.seconds - self._usual_seconds)
        if task.outcome is None:  # Otherwise two workers had it, and this is the second outcome.
            task.outcome, task.bytes = outcome, size

    def _lost(self, worker: PoolWorker, why: str) -> None:
        """The result of a worker's oldest task is lost; the worker still exists."""
        task = worker.tasks[0].task
        _log.warning(
            "%s had done %s, and the result is lost: %s It is done again.",
            worker, task.positions(), why,
        )  # fmt: skip
        task.losses += 1
        self._next_of(worker)
        self._again([task])

    def _next_of(self, worker: PoolWorker) -> None:
        assert self._cluster is not None
        self._roster.next_of(worker, self._cluster.now())

    def _again(self, tasks: Sequence[Task]) -> None:
        """Repeats tasks, before all others."""
        again = [task for task in tasks if task.outcome is None and not task.cancelled]
        self.repeated += len(again)
        self._homeless.extendleft(reversed(again))

    def _is_late(self, worker: PoolWorker) -> bool:
        since = worker.tasks[0].since if worker.tasks else None
        if since is None or self._cluster is None:
            return False
        usual = max(_LATE_SECONDS, _LATE_TIMES * self._usual_seconds)
        return self._cluster.now() - since > usual

    def _look_around(self, now: float) -> None:
        """Checks now and then for leaving nodes, late tasks, lack of places, and hangs."""
        assert self._cluster is not None
        self._look_for_places(now)
        draining = self._cluster.draining()
        for worker in self._roster:
            if worker.ready is not None and worker.ready.node in draining and not worker.leaving:
                # Another one is started elsewhere before the node is gone.
                self._roster.leave(worker)
                self._changing = True
            since = worker.tasks[0].since if worker.tasks else None
            timeout = self._options.hang_timeout
            if since is None:
                continue
            if self._does_not_come(worker, now - since):
                self._lost(worker, f"it has not come for {now - since:.0f} s.")
            elif timeout is not None and now - since > timeout:
                self._hangs(worker, now - since)
        if not self._homeless:
            self._double_late_ones()

    def _does_not_come(self, worker: PoolWorker, seconds: float) -> bool:
        """Whether a worker has finished its oldest task, and the store has lost the result."""
        assert self._cluster is not None
        assigned = worker.tasks[0]
        patience = _LOST_SECONDS * 2**assigned.task.losses
        return seconds > patience and self._is_late(worker) and self._cluster.is_made(assigned.call)

    def _look_for_places(self, now: float) -> None:
        assert self._cluster is not None
        waiting = [worker for worker in self._roster if worker.ready is None]
        if not waiting:
            return
        seconds = now - min(worker.asked for worker in waiting)
        placed = len(self._roster) - len(waiting)
        if self._alone and not placed and seconds > self._options.start_timeout:
            room = self._cluster.room()
            self.close()
            raise WorkerError(
                f"no worker has found a place on the cluster within {seconds:.0f} s: {room}. Ask "
                "for less (`num_cpus`, `resources`, `label_selector`), or give it more time "
                "(`start_timeout`) where nodes are being added."
            )
        if self._is_tuned and seconds > self._options.start_timeout:
            self._size, self._changing = placed, True
            self.refusal = f"there is no place for {len(waiting)} more: {self._cluster.room()}"
        elif seconds > _UNPLACED_SECONDS and not self._told_unplaced:
            self._told_unplaced = True
            _log.warning(
                "%d of %d workers have no place on the cluster after %.0f s: %s. The stream goes "
                "on with the others.",
                len(waiting), len(self._roster), seconds, self._cluster.room(),
            )  # fmt: skip

    def _hangs(self, worker: PoolWorker, seconds: float) -> None:
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
        """Gives tasks of an overdue worker to idle ones, too."""
        assert self._cluster is not None
        idle = [
            worker
            for worker in self._roster
            if worker.starting is None and not worker.tasks and not worker.leaving
        ]
        for worker in self._roster:
            if not idle or not self._is_late(worker):
                continue
            for assigned in worker.tasks:
                task = assigned.task
                twice = sum(other.task is task for w in self._roster for other in w.tasks) > 1
                if idle and not twice and task.outcome is None and not task.cancelled:
                    other = idle.pop()
                    _log.warning(
                        "%s is late with %s; %s does it too, and the first one counts.",
                        worker, task.positions(), other,
                    )  # fmt: skip
                    self.doubled += 1
                    self._send(other, task)

    def _replace(self, worker: PoolWorker, gone: WorkerGone) -> None:
        """Replaces a lost worker: a new one takes its place, and others its tasks."""
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
        """Finds out why a worker died; an element is blamed for its process only, not its node."""
        assert self._cluster is not None
        if task is None or task.outcome is not None:
            return None
        if gone.why == MEMORY:
            task.ends += 1
            if task.ends >= _MOST_MEMORY_ENDS:
                return WorkerError(
                    f"nodes killed {task.ends} workers in a row for lack of memory, with "
                    f"{task.positions()}: {gone} Let each worker take more of a node "
                    "(`RayOptions(memory=...)`), or have fewer of them."
                )
            return None
        if gone.why != PROCESS:
            self._blame.other_deaths += 1
            return None
        noted = NOTHING_NOTED if ready is None else self._cluster.noted(ready)
        return self._blame.note(task, noted, False, f"is gone ({gone})")

    def _forget(self, worker: PoolWorker) -> None:
        assert self._cluster is not None
        self._roster.remove(worker)
        self._changing = True
        self._cluster.end(worker.handle)

    def close(self, politely: bool = True) -> None:
        """Ends all workers."""
        if self.closed:
            return
        self.closed = True
        self._homeless.clear()
        if self._cluster is not None:
            for worker in self._roster:
                self._cluster.end(worker.handle)
            self._cluster.close()
        self._roster = Roster()
