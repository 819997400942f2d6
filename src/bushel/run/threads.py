"""Prefetches blocks on a pool of threads, and delivers them in order."""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol

from bushel.core.block import Block
from bushel.core.block_size import SOON_SECONDS, TARGET_SECONDS, BlockSize
from bushel.core.ending import OwnThread, end_with_program
from bushel.errors import ClosedError
from bushel.run.thread_time import Spent, Stopwatch

Evaluate = Callable[[int, int], Block]

# Of records of 10 MB, dozens on their way would be a burden, and are no faster for it.
_MOST_BYTES_AHEAD = 1 << 26
# Where many are joined, which takes their memory again, those that wait may take this share of it.
_SHARE_OF_JOINED = 0.25
# Who joins so many is away for so long at the most, as far as threads care: what they are at has to
# be taken from them before there is another choice.
_AWAY_SECONDS = 1.0


class _BlockTask:
    """A block to be evaluated, and the promise of its result."""

    __slots__ = (
        "_done",
        "block",
        "count",
        "cpu_after",
        "error",
        "handing_seconds",
        "measured",
        "seconds",
        "spent",
        "start",
        "wanted",
    )

    def __init__(self, start: int, count: int, measured: bool) -> None:
        self.start = start
        self.count = count
        self.measured = measured
        self.spent: Spent | None = None
        # What the thread has used of the cores by the end of it; and since the end of the last one.
        self.cpu_after: float | None = None
        self.handing_seconds: float | None = None
        self.block: Block | None = None
        self.error: BaseException | None = None
        self.seconds = 0.0
        self.wanted = True
        # A lock that is held until the result is there: the lightest way to wait for it.
        self._done = threading.Lock()
        self._done.acquire()

    def run(
        self, evaluate: Evaluate, since: Stopwatch | None, cpu_before: float | None = None
    ) -> None:
        """Evaluates it. `since` the thread could have begun with it, had it got the lock.

        `cpu_before` is what it had used of the cores after the last block, if that is known.
        """
        stopwatch = (since or Stopwatch()) if self.measured else None
        began = time.perf_counter()
        try:
            self.block = evaluate(self.start, self.count)
        except BaseException as error:  # It belongs to the one who takes the block.
            self.error = error
        self.seconds = time.perf_counter() - began
        if stopwatch is not None:
            self.spent = stopwatch.read()
            self.seconds = self.spent.seconds
            self.cpu_after = stopwatch.began_cpu + self.spent.cpu_seconds
            if cpu_before is not None:
                self.handing_seconds = stopwatch.began_cpu - cpu_before
        self._done.release()

    def give_up(self) -> None:
        """Tells who may wait for it that it is not evaluated any more."""
        self.error = ClosedError("this iterator was used while the program ended.")
        self._done.release()

    def wait(self) -> Block:
        self._done.acquire()
        self._done.release()
        if self.error is not None:
            raise self.error
        assert self.block is not None
        return self.block


class ThreadPool:
    """Threads that evaluate tasks, as long as somebody uses them.

    They are daemons: an interpreter that exits does not wait for a read that hangs. What they
    share with the outside is this object and nothing that refers to an iterator.
    """

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[tuple[Evaluate, _BlockTask] | None] = SimpleQueue()
        self._users: set[object] = set()
        self.stopped = False
        self.threads = [self._thread(number) for number in range(threads)]

    def _thread(self, number: int) -> OwnThread:
        return OwnThread(self._work, f"bushel-read_{number}")

    def enter(self, user: object) -> None:
        """Takes note of somebody who is going to submit tasks, and will `leave`."""
        self._users.add(user)

    def start(self) -> None:
        end_with_program(self)
        for number, thread in enumerate(self.threads):
            if thread.ident is not None and not thread.is_alive() and not self.stopped:
                # What a signal handler raises while Python starts a thread may end that thread.
                self.threads[number] = thread = self._thread(number)
            if thread.ident is None:
                thread.start()

    def submit(self, evaluate: Evaluate, task: _BlockTask) -> None:
        self._tasks.put((evaluate, task))
        if self.stopped:
            self._give_up()

    def leave(self, user: object, wait: bool = False) -> None:
        """Lets the threads end, each after the block it is at, if nobody uses them any more.

        A finalizer may call this.
        """
        self._users.discard(user)
        if self._users:
            return
        self.stopped = True
        self._tell_to_end()
        if wait:
            self.wait()

    def _tell_to_end(self) -> None:
        for _ in self.threads:
            self._tasks.put(None)  # Safe within a finalizer: SimpleQueue is reentrant.

    def wait(self) -> None:
        """Waits until the threads have ended, after all have left."""
        # Once more: an interrupt may have come before all of them were told.
        self._tell_to_end()
        for thread in self.threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def end_soon(self) -> None:
        """Ends the threads whoever uses them: the program ends."""
        self.stopped = True
        self._give_up()

    def _give_up(self) -> None:
        """Evaluates nothing any more: neither what waits, nor what is submitted later."""
        with suppress(Empty):
            while True:
                item = self._tasks.get_nowait()
                if item is not None:
                    item[1].give_up()
        # Again: what told them to may be among what was just taken.
        self._tell_to_end()

    def _work(self) -> None:
        since: Stopwatch | None = None
        cpu_before: float | None = None
        while (item := self._tasks.get()) is not None:
            evaluate, task = item
            if self.stopped:
                task.give_up()
                return
            if task.wanted:
                task.run(evaluate, since, cpu_before)
                cpu_before = task.cpu_after
            # Threads that take turns with the interpreter's lock may do so between two tasks. So
            # the time of the next one begins here, if it waits already.
            since = Stopwatch() if task.measured and not self._tasks.empty() else None
            del item, evaluate, task  # Not while waiting for the next one.


class Interest(Protocol):
    """What somebody wants of threads at the moment (`ThreadChoice` is one)."""

    @property
    def watching(self) -> bool:
        """Whether somebody wants to know what blocks take."""

    @property
    def trying(self) -> bool:
        """Whether threads are on trial: what they are at may be worth nothing."""


class _NoInterest:
    watching = trying = False


class ReadAhead:
    """Evaluates consecutive blocks of positions on a pool of threads.

    The pool may be shared with others: `threads` are as many of it as should be busy for this
    one. Threads never hold a reference to this object (nor may `evaluate`): when the last user
    of it goes away, so do they, after the block they are at.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        threads: int,
        buffer_size: int,
        first_size: int,
        start: int,
        stop: int,
        pool: ThreadPool | None = None,
        least: int = 1,
        interest: Interest | None = None,
        together: int = 0,
    ) -> None:
        """Who takes blocks is away for a while when there are `together` elements, to join them."""
        self._evaluate, self._interest = evaluate, interest or _NoInterest()
        self._side_by_side, self._together = threads, together
        self._next, self._stop = start, stop
        self._least = least
        # Of what the buffer holds, each thread is at one block and has another before it: who
        # takes blocks and asks for more may come late.
        self._block_size = BlockSize(
            max(1, buffer_size // (2 * threads)), first_size, least=least, side_by_side=threads
        )
        # Large blocks on many threads tell nothing of what they take on one.
        self._teaches = least == 1
        # Enough that no thread waits for the one who takes the blocks in order.
        self._most_blocks, self._least_blocks = 2 * threads + 1, threads + 1
        self._buffer_size = max(1, buffer_size)
        self._in_flight: deque[_BlockTask] = deque()
        self._elements = 0
        self._finishing = False
        self._pool = pool or ThreadPool(threads)
        self._as_user = object()
        self._pool.enter(self._as_user)
        self.threads = len(self._pool.threads)
        # What the block that was taken last took its thread, if that was measured; and the time on
        # a core that the thread took between that block and the one before.
        self.spent: Spent | None = None
        self.handing_seconds: float | None = None
        self._finalizer = weakref.finalize(self, self._pool.leave, self._as_user)
        self._finalizer.atexit = False
        # Only now, when they will be told to stop whatever happens.
        self._pool.start()
        self._fill()

    def take(self, learner: BlockSize | None = None) -> Block | None:
        """Returns the next block, or None when there are no more (or `finish` was called).

        `learner` is told how long the block took, for the time after the threads.
        """
        self._fill()
        if not self._in_flight:
            return None
        task = self._in_flight[0]
        block = task.wait()
        # Only now: an interrupt while waiting must not lose the block.
        self._in_flight.popleft()
        self._elements -= task.count
        self.spent, self.handing_seconds = task.spent, task.handing_seconds
        self._block_size.target_seconds = SOON_SECONDS if self._interest.trying else TARGET_SECONDS
        self._block_size.learn(task.count, task.seconds)
        if learner is not None and self._teaches:
            learner.learn(task.count, task.seconds)
        if len(block) and self._block_size.wants_sample():
            self._block_size.limit_bytes(block.part(0, 1).rows()[0])
        self._fill()
        return block

    @property
    def ready_blocks(self) -> int:
        """How many blocks are made and wait to be taken; any thread may ask."""
        return sum(task.block is not None for task in self._in_flight.copy())

    @property
    def under_way(self) -> int:
        """How many blocks are made, being made, or about to be."""
        return len(self._in_flight)

    def finish(self) -> None:
        """Starts no further blocks; what is under way can still be taken."""
        self._finishing = True

    def stop(self, wait: bool) -> None:
        """Stops the threads after the block they are at; `wait` for that or not.

        Those of a pool that others use go on with theirs.
        """
        for task in self._in_flight:
            task.wanted = False
        self._in_flight.clear()
        self._pool.leave(self._as_user, wait)
        # Last: an interrupt may have come before.
        self._finalizer.detach()

    def _room_for(self, count: int) -> int:
        # What a source wants to be asked for at a time may be more than the buffer holds. It
        # is not much memory then, and twice that keeps two cores busy.
        return max(self._buffer_size, 2 * count if 1 < self._least <= count else 0)

    def _is_much(self, elements: int) -> bool:
        """Whether `elements` that wait would take too much memory, beside those being made."""
        if len(self._in_flight) < self._least_blocks:
            return False
        each = self._block_size.bytes_each
        return elements * each > max(_MOST_BYTES_AHEAD, _SHARE_OF_JOINED * self._together * each)

    def _are_enough(self, most_blocks: int, count: int) -> bool:
        """Whether there are so many blocks that no thread will wait, without `count` elements more.

        Who joins elements takes none meanwhile: threads go on with those that are joined next.
        """
        blocks = len(self._in_flight)
        if blocks < most_blocks or self._interest.trying:
            return blocks >= most_blocks
        long_enough = blocks * self._block_size.seconds >= self._side_by_side * _AWAY_SECONDS
        return long_enough or self._elements + count > self._together

    def _blocks_on_trial(self) -> int:
        """As many as there would be later, where they are short: else those that wait are few.

        Threads that often have nothing to do get in each other's way less than they will.
        """
        short = SOON_SECONDS / (self._block_size.seconds or 1.0)
        return min(self._most_blocks, self._least_blocks + int(short))

    def _fill(self) -> None:
        most_blocks = self._blocks_on_trial() if self._interest.trying else self._most_blocks
        while not self._finishing and self._next < self._stop:
            count = min(self._block_size.size, self._stop - self._next)
            if self._in_flight and (
                self._are_enough(most_blocks, count)
                or self._elements + count > self._room_for(count)
                or self._is_much(self._elements + count)
            ):
                return
            task = _BlockTask(self._next, count, self._interest.watching)
            self._pool.submit(self._evaluate, task)
            self._in_flight.append(task)
            self._elements += count
            self._next += count
