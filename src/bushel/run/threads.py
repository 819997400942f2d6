"""Blocks evaluated ahead on threads, delivered in order."""

import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from bushel.block import Block
from bushel.run.tune import BlockSize

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Evaluate = Callable[[int, int], Block]


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
        # Imported here: most pipelines never use threads, and it takes as long as numpy's half.
        from concurrent.futures import ThreadPoolExecutor

        self._in_flight: deque[tuple[int, Future[tuple[Block, float]]]] = deque()
        self._elements = 0
        self._finishing = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="bushel-read")
        self._finalizer = weakref.finalize(self, _shut_down, self._pool)
        self._fill()

    def take(self) -> Block | None:
        """Returns the next block, or None when there are no more (or `finish` was called)."""
        self._fill()
        if not self._in_flight:
            return None
        count, future = self._in_flight[0]
        block, seconds = future.result()
        # Only now: an interrupt while waiting must not lose the block.
        self._in_flight.popleft()
        self._elements -= count
        self._block_size.learn(count, seconds)
        if len(block):
            sample = block.part(0, 1).rows()[0]
            self._block_size.limit_bytes(sample)
        self._fill()
        return block

    def finish(self) -> None:
        """Starts no further blocks; what is under way can still be taken."""
        self._finishing = True

    def stop(self, wait: bool) -> None:
        """Stops the threads after the block they are at; `wait` for that or not."""
        self._in_flight.clear()
        self._finalizer.detach()
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def _fill(self) -> None:
        while not self._finishing and self._next < self._stop:
            count = min(self._block_size.size, self._stop - self._next)
            if self._in_flight and (
                len(self._in_flight) >= self._most_blocks
                or self._elements + count > self._buffer_size
            ):
                return
            future = self._pool.submit(_timed, self._evaluate, self._next, count)
            self._in_flight.append((count, future))
            self._elements += count
            self._next += count


def _timed(evaluate: Evaluate, start: int, count: int) -> tuple[Block, float]:
    began = time.perf_counter()
    block = evaluate(start, count)
    return block, time.perf_counter() - began


def _shut_down(pool: "ThreadPoolExecutor") -> None:
    pool.shutdown(wait=False, cancel_futures=True)
