"""The threads that send requests of remote files in parallel, and how many there may be."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

A = TypeVar("A")
R = TypeVar("R")

# The most requests of this process at the same time, over all pools.
MOST_REQUESTS = 32


class RequestPool:
    """Threads that make requests in parallel."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()
        # A fork copies neither the threads nor a thread that held the lock.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def each(self, request: Callable[[A], R], arguments: Sequence[A]) -> list[R]:
        """Makes requests in parallel; the first error is raised when all are done."""
        if len(arguments) <= 1:
            return [request(argument) for argument in arguments]
        from concurrent.futures import ThreadPoolExecutor, wait

        with self._lock:
            # Idle threads wait for work until the process ends, and are not part of a pipeline.
            self._pool = self._pool or ThreadPoolExecutor(self._most, "remote-read")
        futures = [self._pool.submit(request, argument) for argument in arguments]
        wait(futures)
        return [future.result() for future in futures]


requests = RequestPool(MOST_REQUESTS)
