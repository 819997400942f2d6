"""A number of threads that the user fixed, for sources that rely on it."""

from typing import Any

from bushel.core.node import Node
from bushel.core.options import ReadOptions
from bushel.run.thread_choice import ThreadChoice


def threads_counted_on(node: Node, options: ReadOptions) -> int:
    """How many threads a source says that read it, if the user asked for just as many; or 0.

    Such a source has an attribute `num_threads`, and tells its readers apart by the numbers at
    the end of their names. It cannot be read by any other thread.
    """
    while len(node.inputs) == 1:
        (node,) = node.inputs
    threads: Any = getattr(getattr(node, "source", None), "num_threads", None)
    return threads if isinstance(threads, int) and 0 < threads == options.num_threads else 0


class FixedThreads(ThreadChoice):
    """Always the same number of threads, whatever they take."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads, threads)
        self.threaded, self.threads = True, threads

    watching = looking = False

    def learn_work(self, *_: Any, **__: Any) -> None:
        """Learns nothing."""

    def learn_cycle(self, *_: Any, **__: Any) -> None:
        """Learns nothing."""

    def learn_lock(self, *_: Any, **__: Any) -> None:
        """Learns nothing."""
