"""Worker processes of one pipeline, as the trainer sees them: started, given tasks, replaced.

There are no threads on this side. Workers fill shared memory and write a line to their
sockets; the trainer reads those lines when it wants an element. A task says all there is to
know, so one whose worker died is simply given to another.
"""

import atexit
import logging
import os
import select
import subprocess
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from bushel.core.ending import is_ending, say_ending
from bushel.core.limits import lacks_files, limit_of
from bushel.core.machine import memory_limit
from bushel.core.options import MultiprocessingOptions
from bushel.core.tuned_options import worker_bounds
from bushel.errors import PlanError, WorkerError
from bushel.transport.channel import ChannelClosed
from bushel.workers.blame import Blame
from bushel.workers.failed_starts import FailedStarts
from bushel.workers.fragment import Fragment
from bushel.workers.hangs import HangWatch
from bushel.workers.payload import Payload
from bushel.workers.process import WorkerProcess
from bushel.workers.program import BROKEN, FAULT, READY
from bushel.workers.retired import Retired
from bushel.workers.seam import TaskQueue, raise_closed
from bushel.workers.start import Starter, not_started
from bushel.workers.task import Task

_log = logging.getLogger("bushel")

# How long a worker may take to leave by itself.
_GRACE_SECONDS = 0.4
# Files that there must be room for when a worker is added: its own, and those of its batches and
# of the others'.
_FILES_TO_SPARE = 64
# Tasks that one worker may have: more would fill its socket.
_MOST_TASKS = 16


class Pool(TaskQueue):
    """The workers of one pipeline, as processes of this machine (see `WorkerPool`)."""

    def __init__(
        self,
        fragments: Sequence[Fragment],
        make_payload: Callable[[], Payload],
        options: MultiprocessingOptions,
        starter: Starter | None = None,
    ) -> None:
        """`starter` may have processes that wait to be told; others are started when needed."""
        super().__init__()
        bounds = worker_bounds(options.num_workers)
        self._starter = starter or Starter(bounds.first, bounds.most)
        self._size = bounds.first
        # Whether workers are being added, or leave.
        self._changing = False
        self.refusal: str | None = None
        self.learned: Any = None
        self._make_payload = make_payload
        self._workers: list[WorkerProcess] = []
        # Processes that were told to end, and those that were asked to leave when they are done.
        self._ending: list[Starter | WorkerProcess] = []
        self._retired = Retired()
        self._failed_starts = FailedStarts()
        self._blame = Blame(fragments)
        self._hangs = HangWatch(options, self._blame.label)
        _pools.add(self)
        # What is registered last is done first: before all that ends workers at the exit.
        atexit.unregister(say_ending)
        atexit.register(say_ending)

    @property
    def told(self) -> bool:
        """Whether there are workers that know the pipeline."""
        return bool(self._workers)

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything."""
        return not self._homeless and not any(worker.tasks for worker in self._workers)

    @property
    def size(self) -> int:
        """How many workers there are to be."""
        return self._size

    @property
    def settled(self) -> bool:
        """Whether there are as many, all of them ready, and none that is about to leave."""
        return not self._changing and all(worker.ready for worker in self._workers)

    def resize(self, count: int) -> None:
        """Has more or fewer workers from the next task on."""
        self._size, self._changing, self.refusal = max(1, count), True, None

    def places(self) -> int | None:
        """Nothing elsewhere."""
        return None

    def private_bytes(self) -> int:
        """Memory that the largest of the workers has for itself; 0 where nobody knows."""
        return max((worker.private_bytes() for worker in self._workers), default=0)

    def core_seconds(self) -> float | None:
        """How long the workers were on cores so far, all together; None where nobody knows."""
        spent = [worker.core_seconds() for worker in self._workers]
        known = [seconds for seconds in spent if seconds is not None]
        return sum(known) if len(known) == len(spent) else None

    def _give_out(self) -> None:
        with self._explained():
            self._settle()

    def go_on(self, seconds: float | None = None) -> bool:
        """Gives out tasks, waits for news of workers, and takes note of it."""
        with self._explained():
            self._settle()
            return self._read(seconds)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Explains what comes of limits, and of another thread closing in the middle of this."""
        before = self.closed
        try:
            yield
        except (WorkerError, PlanError):
            raise
        except Exception as error:
            if (self.closed and not before) or is_ending():
                raise_closed()
            limit = limit_of(error)
            if limit is None:
                raise
            # A message may be lost. Where there is room again, others go on from here.
            self._start_over()
            raise WorkerError(f"the trainer cannot go on with its workers: {limit}.") from error
        finally:
            if self.closed:
                # Processes that were being started when the others were ended.
                self._end_all()

    def _settle(self) -> None:
        """Sees that there are workers, and that tasks have one."""
        try:
            self._end_rest()
            if not self._workers:
                try:
                    for index in range(self._size):
                        self._start(index)
                except Exception:
                    self._start_over()
                    raise
                self._instruct(self._workers)
            elif self._changing:
                self._change()
            while self._homeless:
                task = self._homeless[0]
                if task.outcome is None and not task.cancelled:
                    takers = [worker for worker in self._workers if worker.takes_tasks]
                    # Where all that are ready are gone, tasks wait for those that are not.
                    worker = min(takers or self._workers, key=lambda worker: len(worker.tasks))
                    if len(worker.tasks) >= _MOST_TASKS:
                        return
                    try:
                        self._send(worker, task)
                    except ChannelClosed:
                        self._replace(worker)
                        continue
                self._homeless.popleft()
        except Exception:
            raise
        except BaseException:
            # An interrupt may come when half a message is sent.
            self._start_over()
            raise

    def _send(self, worker: WorkerProcess, task: Task) -> None:
        if not worker.tasks:
            worker.stalled = 0.0
        worker.link.send(task.message, by_value=task.message.given is not None)
        worker.tasks.append(task)

    def _change(self) -> None:
        """Comes closer to the number of workers that there are to be; waits for nobody."""
        for worker in [worker for worker in self._workers if worker.added and not worker.ready]:
            self._hear(worker, may_be_gone=True)
        self._retired.end_those_gone()
        staying = [worker for worker in self._workers if not worker.leaving]
        # Those that have not begun leave first, then those that came last.
        staying.sort(key=lambda worker: (worker.added and not worker.ready, worker.index))
        for worker in staying[self._size :]:
            worker.leaving = True
        while len(staying) < self._size:
            if not self._add(staying):
                break
        for worker in [worker for worker in self._workers if worker.leaving and not worker.tasks]:
            # In this order: if an interrupt comes in between, it is ended twice and not never.
            self._retired.add(worker)
            self._workers.remove(worker)
        self._changing = bool(self._retired) or any(
            worker.leaving or (worker.added and not worker.ready) for worker in self._workers
        )

    def _add(self, staying: list[WorkerProcess]) -> bool:
        """Adds a worker to those that stay; tells whether that could be."""
        taken = {worker.index for worker in self._workers}
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        lacking = lacks_files(_FILES_TO_SPARE)
        if lacking is not None:
            self._give_up_adding(f"{lacking}.")
            return False
        try:
            worker = self._start(index)
        except WorkerError as error:
            self._give_up_adding(str(error))
            return False
        worker.added = True
        staying.append(worker)
        self._instruct([worker])
        return True

    def _give_up_adding(self, why: str) -> None:
        """Goes on with the workers that there are, where no more can be had."""
        self._size = max(
            1, sum(not worker.leaving and worker.takes_tasks for worker in self._workers)
        )
        self._changing, self.refusal = True, why
        _log.warning("no worker could be added (%s) The %d that there are go on.", why, self._size)

    def _start(self, index: int) -> WorkerProcess:
        started = self._starter.start(index)
        try:
            worker = WorkerProcess(started)
        except BaseException:
            started.end()
            raise
        self._workers.insert(index, worker)
        return worker

    def _instruct(self, workers: Sequence[WorkerProcess]) -> None:
        """Tells workers the pipeline; it is pickled while they are still starting."""
        try:
            payload = self._make_payload()
        except BaseException:
            self.close(politely=False)
            raise
        for worker in workers:
            # One that is gone already is found out when its tasks are sent.
            with suppress(ChannelClosed):
                payload.send(worker.link)

    def _read(self, seconds: float | None) -> bool:
        """Waits for news of any worker, and takes note of it; tells whether there was any."""
        news = {worker: False for worker in self._workers if worker.link.has_message()}
        if not news:
            began = time.monotonic()
            bounds = (seconds, self._hangs.slice_seconds)
            news = self._wait_for_news(
                min((bound for bound in bounds if bound is not None), default=None)
            )
            self._hangs.look(self._workers, time.monotonic() - began)
        self._check_open()
        try:
            for worker, may_be_gone in news.items():
                self._hear(worker, may_be_gone)
        except Exception:
            raise
        except BaseException:
            # Half a message may be lost.
            self._start_over()
            raise
        return bool(news)

    def _hear(self, worker: WorkerProcess, may_be_gone: bool) -> None:
        """Reads what a worker has sent; if it is gone, another one takes its place."""
        try:
            # Asked first: what a worker sent before its end is still to be read then.
            gone = may_be_gone and worker.is_gone()
            # Whatever else arrives meanwhile is news the next time, but after an end.
            while worker.link.try_read():
                self._take(worker, *self._received(worker))
                if not gone and not worker.link.has_message():
                    return
            if gone:  # Though something that it left behind may hold its socket.
                raise ChannelClosed
        except ChannelClosed:
            self._replace(worker)

    def _wait_for_news(self, seconds: float | None) -> dict[WorkerProcess, bool]:
        """The workers of which there is news; of those that may be gone, True."""
        poll = select.poll()
        files = {worker: worker.files() for worker in self._workers}
        for file in chain.from_iterable(files.values()):
            poll.register(file, select.POLLIN)
        ready = {file for file, _ in poll.poll(None if seconds is None else seconds * 1000)}
        return {
            worker: not ready.isdisjoint(files[worker][1:])
            for worker in self._workers
            if not ready.isdisjoint(files[worker])
        }

    def _received(self, worker: WorkerProcess) -> tuple[str, Any]:
        try:
            kind, value = worker.link.receive()
        except ChannelClosed:
            raise
        except Exception as error:
            if limit_of(error) is not None:
                raise
            return FAULT, f"what it sent cannot be unpickled:\n{traceback.format_exc()}"
        return kind, value

    def _take(self, worker: WorkerProcess, kind: str, value: Any) -> None:
        if kind == READY:
            worker.ready, worker.stalled = True, 0.0
            self._failed_starts.begun(worker)
            return
        if kind == BROKEN and worker.added:
            worker.leaving = True
            self._give_up_adding(f"{worker} could not begin:\n{value}")
            return
        if kind == BROKEN:
            self.close(politely=False)
            raise WorkerError(f"{worker} could not begin:\n{value}")
        task = worker.tasks.popleft()
        if kind == FAULT:
            task.error = WorkerError(f"{worker} failed on {task.positions()}:\n{value}")
            return
        assert task.message.task == value.task, (task.message.task, value.task)
        worker.stalled = 0.0
        if task.outcome is None:  # Otherwise somebody elsewhere was asked for it, too.
            task.outcome, task.bytes = value, worker.link.last_size
        self._failed_starts.work_got_on()
        self._check_memory()

    def _check_memory(self) -> None:
        """Says what happens before the system ends the program for want of memory."""
        held = sum(worker.link.leased for worker in self._workers)
        if held > memory_limit():
            raise WorkerError(
                f"batches that this program still refers to hold {held / 2**30:.1f} GiB of the "
                "memory that it shares with its workers, nearly all that there is. If they are "
                "meant to be kept, keep less of them: `batch['label'].copy()` keeps a label "
                "without the images beside it."
            )

    def _start_over(self) -> None:
        """Ends all workers; their tasks are done again by others."""
        # First nobody works with them any more, then they are ended: an interrupt may come in
        # between, and what is left is ended the next time.
        workers, self._workers = self._workers, []
        self._ending += [self._starter, *workers, *self._retired.take_all()]
        for worker in workers:
            self._homeless.extendleft(reversed(worker.tasks))
        self._end_rest()

    def _end_rest(self) -> None:
        # Another thread that closes may be at the same.
        for ending in self._ending[::-1]:
            ending.end()
            with suppress(ValueError):
                self._ending.remove(ending)

    def _replace(self, worker: WorkerProcess) -> None:
        """A worker is gone: another one takes its place and its tasks."""
        # Not where another thread closes, or the program ends: then it is gone because of that.
        self._check_open()
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(_GRACE_SECONDS)
        self._check_open()
        worker.end()
        if worker.leaving and not worker.tasks:
            self._workers.remove(worker)
            return
        tasks = [task for task in worker.tasks if not task.cancelled]
        had = ", ".join(task.positions() for task in tasks[:3]) or "nothing to do"
        if len(tasks) > 3:
            had += f" and {len(tasks) - 3} more blocks"
        _log.warning(
            "%s %s while it had %s. Another one takes its place; the stream does not change.",
            str(worker), worker.exit(), had,
        )  # fmt: skip
        if not worker.ready:
            given_up = self._failed_starts.count(worker)
            if worker.added:
                self._workers.remove(worker)
                self._changing = True  # Another one is added, unless that is no use.
                if given_up is None and worker.refused is not None:
                    given_up = not_started(worker.refused)
                if given_up is not None:
                    self._failed_starts.begun(worker)
                    self._give_up_adding(str(given_up))
                return
            if given_up is not None:
                self.close(politely=False)
                raise given_up
        # One that had not begun has tried none of its tasks.
        task = worker.tasks[0] if worker.tasks and worker.ready else None
        error = self._blame.note(task, worker.status.read(), worker.was_killed(), worker.exit())
        if error is not None and tasks:
            tasks.pop(0).error = error  # Whoever waits for it is told.
        self.deaths += 1
        self.repeated += len(tasks)
        # In this order: if an interrupt comes in between, tasks are done twice and not never.
        self._homeless.extendleft(reversed(tasks))
        self._workers.remove(worker)
        if not worker.leaving:
            self._instruct([self._start(worker.index)])

    def close(self, politely: bool = True) -> None:
        """Ends all workers."""
        if self.closed:
            return
        self.closed = True
        self._homeless.clear()
        for worker in self._workers:
            worker.leave()
        workers = [*self._workers, *self._retired]
        if politely:
            deadline = time.monotonic() + _GRACE_SECONDS
            for worker in workers:
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, deadline - time.monotonic()))
        self._end_all()

    def _end_all(self) -> None:
        self._ending += self._retired.take_all()
        self._end_rest()
        with suppress(IndexError):
            while True:
                self._workers.pop().end()
        self._starter.end()

    def forget(self) -> None:
        """Lets go of everything, in a forked child: the workers are the parent's."""
        self.closed = True
        for worker in [*self._workers, *self._retired.take_all(), *self._ending, self._starter]:
            worker.forget()
        self._workers, self._ending = [], []
        self._homeless.clear()


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _forget_all() -> None:
    for pool in list(_pools):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
