"""Blocks evaluated ahead on threads, delivered in order."""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from bushel.block import Block
from bushel.run.tune import BlockSize

Evaluate = Callable[[int, int], Block]


class _Task:
    """A block to be evaluated, and the promise of its result."""

    __slots__ = ("_done", "block", "count", "error", "seconds", "start")

    def __init__(self, start: int, count: int) -> None:
        self.start = start
        self.count = count
        self.block: Block | None = None
        self.error: BaseException | None = None
        self.seconds = 0.0
        # A lock that is held until the result is there: the lightest way to wait for it.
        self._done = threading.Lock()
        self._done.acquire()

    def run(self, evaluate: Evaluate) -> None:
        began = time.perf_counter()
        try:
            self.block = evaluate(self.start, self.count)
        except BaseException as error:  # It belongs to the one who takes the block.
            self.error = error
        self.seconds = time.perf_counter() - began
        self._done.release()

    def wait(self) -> Block:
        self._done.acquire()
        self._done.release()
        if self.error is not None:
            raise self.error
        assert self.block is not None
        return self.block


class _Pool:
    """Threads that evaluate tasks until they are told to stop.

    They are daemons: an interpreter that exits does not wait for a read that hangs. What they
    share with the outside is this object and nothing that refers to an iterator.
    """

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[tuple[Evaluate, _Task] | None] = SimpleQueue()
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._work, name=f"bushel-read-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, evaluate: Evaluate, task: _Task) -> None:
        self._tasks.put((evaluate, task))

    def stop(self, wait: bool = False) -> None:
        """Lets each thread end after the block it is at; may be called by a finalizer."""
        self._stopped = True
        for _ in self._threads:
            self._tasks.put(None)  # Safe within a finalizer: SimpleQueue is reentrant.
        if wait:
            for thread in self._threads:
                if thread.is_alive() and thread is not threading.current_thread():
                    thread.join()

    def _work(self) -> None:
        while (item := self._tasks.get()) is not None and not self._stopped:
            evaluate, task = item
            task.run(evaluate)
            del item, evaluate, task  # Not while waiting for the next one.


class ReadAhead:
    """Evaluates consecutive blocks of positions on a pool of threads.

    Threads never hold a reference to this object (nor may `evaluate`): when the last user of
    it goes away, so do they, after the block they are at.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        threads: int,
        buffer_size: int,
        first_size: int,
        start: int,
        stop: int,
    ) -> None:
        self._evaluate = evaluate
        self._next, self._stop = start, stop
        self._block_size = BlockSize(max(1, buffer_size // threads), first_size)
        # Enough that no thread waits for the one who takes the blocks in order.
        self._most_blocks = 2 * threads + 1
        self._buffer_size = max(1, buffer_size)
        self._in_flight: deque[_Task] = deque()
        self._elements = 0
        self._finishing = False
        self._pool = _Pool(threads)
        self._finalizer = weakref.finalize(self, self._pool.stop)
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
        self._block_size.learn(task.count, task.seconds)
        if learner is not None:
            learner.learn(task.count, task.seconds)
        if len(block) and self._block_size.wants_sample():
            self._block_size.limit_bytes(block.part(0, 1).rows()[0])
        self._fill()
        return block

    def finish(self) -> None:
        """Starts no further blocks; what is under way can still be taken."""
        self._finishing = True

    def stop(self, wait: bool) -> None:
        """Stops the threads after the block they are at; `wait` for that or not."""
        self._in_flight.clear()
        self._pool.stop(wait)
        # Last: an interrupt may have come before.
        self._finalizer.detach()

    def _fill(self) -> None:
        while not self._finishing and self._next < self._stop:
            count = min(self._block_size.size, self._stop - self._next)
            if self._in_flight and (
                len(self._in_flight) >= self._most_blocks
                or self._elements + count > self._buffer_size
            ):
                return
            task = _Task(self._next, count)
            self._pool.submit(self._evaluate, task)
            self._in_flight.append(task)
            self._elements += count
            self._next += count
