"""Parts that were decoded, as many as there is room for; each is decoded by one thread."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from bushel.sources.arrow_parts import Part

# Parts that are views of files need no memory, but a map each, of which Linux allows 65,530.
_MOST_VIEWS = 16384


class PartCache:
    """Keeps the parts that were last asked for: so many bytes of them, in each process.

    >>> loads = []
    >>> def load(number, again):
    ...     loads.append((number, again))
    ...     return Part([], nbytes=60)
    >>> cache = PartCache(100, load)
    >>> for number in (1, 1, 2, 1):
    ...     _ = cache.get(number)
    >>> loads
    [(1, False), (2, False), (1, True)]

    Args:
        most_bytes: how much is kept. One part may be larger; then it is kept alone.
        load: makes a part. It is told whether that was done before, and room had to be made.
    """

    def __init__(self, most_bytes: int, load: Callable[[int, bool], Part]) -> None:
        self._most_bytes, self._load = most_bytes, load
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._held: OrderedDict[int, Part] = OrderedDict()
        self._views: OrderedDict[int, Part] = OrderedDict()
        self._coming: dict[int, Future[Part]] = {}
        self._seen: set[int] = set()
        self._bytes = 0

    def waits(self, number: int) -> bool:
        """Whether another thread is making this part."""
        return number in self._coming

    def get(self, number: int) -> Part:
        """A part, made by this thread or another if it is not there."""
        if self._pid != os.getpid():
            self._begin()  # Forked, perhaps while another thread held the lock.
        while True:
            with self._lock:
                for kept in (self._held, self._views):
                    if number in kept:
                        kept.move_to_end(number)
                        return kept[number]
                coming = self._coming.get(number)
                if coming is None:
                    mine: Future[Part] = Future()
                    self._coming[number] = mine
                    again = number in self._seen
                    break
            try:
                return coming.result()
            except Exception:
                raise
            except BaseException:
                if not coming.done() or coming.exception() is None:
                    raise  # Our own interrupt; one of the other thread lets us try ourselves.
        return self._make(number, again, mine)

    def _make(self, number: int, again: bool, mine: "Future[Part]") -> Part:
        try:
            part = self._load(number, again)
        except BaseException as error:
            with self._lock:
                del self._coming[number]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._coming[number]
            self._seen.add(number)
            self._keep(number, part)
        mine.set_result(part)
        return part

    def _keep(self, number: int, part: Part) -> None:
        if not part.nbytes:
            self._views[number] = part
            if len(self._views) > _MOST_VIEWS:
                self._views.popitem(last=False)
            return
        self._held[number] = part
        self._bytes += part.nbytes
        while self._bytes > self._most_bytes and len(self._held) > 1:
            _, gone = self._held.popitem(last=False)
            self._bytes -= gone.nbytes
