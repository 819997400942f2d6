"""The threads that send requests in parallel."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

A = TypeVar("A")
R = TypeVar("R")

# Requests of this process that are under way at a time, whoever made them.
MOST_REQUESTS = 32


class RequestPool:
    """Threads that make requests: as many at a time as there are of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()
        # A fork takes neither the threads along nor those who held the lock.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def each(self, request: Callable[[A], R], arguments: Sequence[A]) -> list[R]:
        """Makes requests at the same time; the first error is raised when all are done."""
        if len(arguments) <= 1:
            return [request(argument) for argument in arguments]
        from concurrent.futures import ThreadPoolExecutor, wait

        with self._lock:
            # They wait for work as long as the process lives, and take part in no pipeline.
            self._pool = self._pool or ThreadPoolExecutor(self._most, "remote-read")
        futures = [self._pool.submit(request, argument) for argument in arguments]
        wait(futures)
        return [future.result() for future in futures]


requests = RequestPool(MOST_REQUESTS)
