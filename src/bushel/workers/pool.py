"""The worker processes of one pipeline: gives them tasks, replaces dead ones and logs that.

There are no threads in the trainer. Workers fill shared memory and write a message to their
sockets; the trainer reads the messages when it needs an element. A task is self-contained,
so the task of a dead worker is simply given to another worker.
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

# Seconds that a worker may take to exit before it is killed.
_GRACE_SECONDS = 0.4
# File descriptors that must be free when a worker is added, for the worker and for batches.
_FILES_TO_SPARE = 64
# Most tasks of one worker: more would fill its socket.
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
        """`starter` may have started processes already; more are started when needed."""
        super().__init__()
        bounds = worker_bounds(options.num_workers)
        self._starter = starter or Starter(bounds.first, bounds.most)
        self._size = bounds.first
        # Whether workers are being added or removed.
        self._changing = False
        self.refusal: str | None = None
        self.learned: Any = None
        self._make_payload = make_payload
        self._workers: list[WorkerProcess] = []
        # Processes that are being killed, and workers that were asked to leave after their tasks.
        self._ending: list[Starter | WorkerProcess] = []
        self._retired = Retired()
        self._failed_starts = FailedStarts()
        self._blame = Blame(fragments)
        self._hangs = HangWatch(options, self._blame.label)
        _pools.add(self)
        # The last registered function runs first: before those that end workers at the exit.
        atexit.unregister(say_ending)
        atexit.register(say_ending)

    @property
    def told(self) -> bool:
        """Whether there are workers, which have got the pipeline."""
        return bool(self._workers)

    @property
    def idle(self) -> bool:
        """Whether there are no tasks."""
        return not self._homeless and not any(worker.tasks for worker in self._workers)

    @property
    def size(self) -> int:
        """The wanted number of workers."""
        return self._size

    @property
    def settled(self) -> bool:
        """Whether the number of workers is the wanted one, and all of them are ready."""
        return not self._changing and all(worker.ready for worker in self._workers)

    def resize(self, count: int) -> None:
        """Changes the number of workers, from the next task on."""
        self._size, self._changing, self.refusal = max(1, count), True, None

    def places(self) -> int | None:
        """None: only a cluster has places for workers."""
        return None

    def private_bytes(self) -> int:
        """Private memory of the largest worker; 0 if unknown."""
        return max((worker.private_bytes() for worker in self._workers), default=0)

    def core_seconds(self) -> float | None:
        """CPU seconds of all workers so far; None if unknown."""
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
        """Turns errors into clear ones if a limit, or a `close` by another thread, caused them."""
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
            # A message may be lost. New workers go on when the limit allows it again.
            self._start_over()
            raise WorkerError(f"the trainer cannot go on with its workers: {limit}.") from error
        finally:
            if self.closed:
                # Ends processes that were being started during `close`.
                self._end_all()

    def _settle(self) -> None:
        """Starts or changes workers as needed, and sends waiting tasks to them."""
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
                    # If no worker is ready, tasks go to workers that are still starting.
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
            # An interrupt may have left half a message in a socket.
            self._start_over()
            raise

    def _send(self, worker: WorkerProcess, task: Task) -> None:
        if not worker.tasks:
            worker.stalled = 0.0
        worker.link.send(task.message, by_value=task.message.given is not None)
        worker.tasks.append(task)

    def _change(self) -> None:
        """Adds or removes workers towards the wanted number, without waiting."""
        for worker in [worker for worker in self._workers if worker.added and not worker.ready]:
            self._hear(worker, may_be_gone=True)
        self._retired.end_those_gone()
        staying = [worker for worker in self._workers if not worker.leaving]
        # Workers that are not ready leave first, then the latest ones.
        staying.sort(key=lambda worker: (worker.added and not worker.ready, worker.index))
        for worker in staying[self._size :]:
            worker.leaving = True
        while len(staying) < self._size:
            if not self._add(staying):
                break
        for worker in [worker for worker in self._workers if worker.leaving and not worker.tasks]:
            # In this order: with an interrupt in between, it is ended twice rather than never.
            self._retired.add(worker)
            self._workers.remove(worker)
        self._changing = bool(self._retired) or any(
            worker.leaving or (worker.added and not worker.ready) for worker in self._workers
        )

    def _add(self, staying: list[WorkerProcess]) -> bool:
        """Adds a worker to `staying`; returns False if it cannot be added."""
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
        """Keeps the current number of workers, since no more can be added."""
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
        """Sends the pipeline to workers; it is pickled while they start."""
        try:
            payload = self._make_payload()
        except BaseException:
            self.close(politely=False)
            raise
        for worker in workers:
            # A dead worker is detected when its tasks are sent.
            with suppress(ChannelClosed):
                payload.send(worker.link)

    def _read(self, seconds: float | None) -> bool:
        """Waits for a message or the death of any worker, and handles it; True if one came."""
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
            # An interrupt may have left half a message in a socket.
            self._start_over()
            raise
        return bool(news)

    def _hear(self, worker: WorkerProcess, may_be_gone: bool) -> None:
        """Reads the messages of a worker; replaces the worker if it is dead."""
        try:
            # Checked before reading, so that all messages before its death are read.
            gone = may_be_gone and worker.is_gone()
            # Later messages are read the next time; of a dead worker, all are read now.
            while worker.link.try_read():
                self._take(worker, *self._received(worker))
                if not gone and not worker.link.has_message():
                    return
            if gone:  # Its socket may still be open, in a process that it started.
                raise ChannelClosed
        except ChannelClosed:
            self._replace(worker)

    def _wait_for_news(self, seconds: float | None) -> dict[WorkerProcess, bool]:
        """The workers with messages; the value is True for workers that may be dead."""
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
        """Raises a clear error before the system kills the program for lack of memory."""
        held = sum(worker.link.leased for worker in self._workers)
        if held > memory_limit():
            raise WorkerError(
                f"batches that this program still refers to hold {held / 2**30:.1f} GiB of the "
                "memory that it shares with its workers, nearly all that there is. If they are "
                "meant to be kept, keep less of them: `batch['label'].copy()` keeps a label "
                "without the images beside it."
            )

    def _start_over(self) -> None:
        """Ends all workers; new workers will do their tasks again."""
        # The workers are first moved to `_ending`, then ended: with an interrupt in between,
        # the next call ends the rest.
        workers, self._workers = self._workers, []
        self._ending += [self._starter, *workers, *self._retired.take_all()]
        for worker in workers:
            self._homeless.extendleft(reversed(worker.tasks))
        self._end_rest()

    def _end_rest(self) -> None:
        # Another thread may do the same in `close`.
        for ending in self._ending[::-1]:
            ending.end()
            with suppress(ValueError):
                self._ending.remove(ending)

    def _replace(self, worker: WorkerProcess) -> None:
        """Replaces a dead worker: a new one gets its tasks."""
        # Not if another thread has closed the pool, or the program ends: that ended the worker.
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
                self._changing = True  # Another one is added, unless starts fail repeatedly.
                if given_up is None and worker.refused is not None:
                    given_up = not_started(worker.refused)
                if given_up is not None:
                    self._failed_starts.begun(worker)
                    self._give_up_adding(str(given_up))
                return
            if given_up is not None:
                self.close(politely=False)
                raise given_up
        # A worker that was not ready has not begun any task.
        task = worker.tasks[0] if worker.tasks and worker.ready else None
        error = self._blame.note(task, worker.status.read(), worker.was_killed(), worker.exit())
        if error is not None and tasks:
            tasks.pop(0).error = error  # `wait` raises it.
        self.deaths += 1
        self.repeated += len(tasks)
        # In this order: with an interrupt in between, tasks are done twice rather than never.
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
        """Drops everything in a forked child: the workers belong to the parent."""
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
