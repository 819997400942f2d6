"""Work on a pool of threads, written by hand: what a pipeline's own threads are compared with."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def on_threads(
    work: Callable[[In], Out], inputs: Iterable[In], threads: int, ahead: int
) -> Iterator[Out]:
    """Calls `work` for one input after the other, up to `ahead` of them before they are taken."""
    waiting: deque[Future[Out]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        submitted = (pool.submit(work, each) for each in inputs)
        waiting.extend(islice(submitted, ahead))
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(islice(submitted, 1))
        finally:
            pool.shutdown(cancel_futures=True)
