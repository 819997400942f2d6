"""The keeper of per-process objects: made on first use, bounded, dropped after a fork.

Examples are open files, mapped files and decoded parts of files. A forked child must not use those
of its parent (it shares offsets, and locks may be held by threads that it does not have), and none
can be pickled. So each process makes its own.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ProcessLock:
    """A lock between the threads of a process: free in a forked child, and in a pickled copy.

    >>> lock = ProcessLock()
    >>> with lock:
    ...     pass
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self._begin()  # Forked, perhaps while another thread held the lock.
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return ProcessLock, ()


class LastUsed(Generic[K, V]):
    """Keeps the most recently used things by their keys, separately in each process.

    Other attributes of a subclass are pickled with it; the kept things are not.

    >>> kept = LastUsed[str, int](most=2)
    >>> for number, letter in enumerate("abc"):
    ...     kept.keep(letter, number)
    >>> kept.find("a"), kept.find("c")
    (None, 2)

    Args:
        most: how much is kept, in the unit of `_weigh`: by default the number of things. One
            thing is kept even if it alone is more.
    """

    def __init__(self, most: float = float("inf")) -> None:
        self.most = most
        self._begin()

    def _begin(self) -> None:
        """Forgets everything."""
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._weight = 0.0
        self._unlock()

    def _unlock(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()

    def _forked(self) -> None:
        """Drops what the parent kept; called first in a forked child.

        A subclass whose things stay useful there only takes a new lock, by `_unlock`.
        """
        self._begin()

    def _weigh(self, value: V) -> float:
        """The share of a thing in `most`."""
        return 1

    def _look_for_fork(self) -> None:
        if self._process != os.getpid():
            self._forked()  # Perhaps while another thread held the lock.

    def find(self, key: K) -> V | None:
        """The thing of a key if it is kept; it then counts as the last used."""
        self._look_for_fork()
        with self._lock:
            return self._found(key)

    def keep(self, key: K, value: V) -> None:
        """Keeps a thing, unless its key has one already."""
        self._look_for_fork()
        with self._lock:
            if key not in self._kept:
                self._put(key, value)

    def discard(self, key: K, value: V) -> None:
        """Drops a thing, if it is still the one of its key."""
        self._look_for_fork()
        with self._lock:
            if self._kept.get(key) is value:
                del self._kept[key]
                self._weight -= self._weigh(value)

    def let_go(self) -> None:
        """Drops all things; each is freed when its last user is done."""
        self._look_for_fork()
        with self._lock:
            self._kept.clear()
            self._weight = 0.0

    def _found(self, key: K) -> V | None:
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
        return value

    def _put(self, key: K, value: V) -> None:
        self._kept[key] = value
        self._weight += self._weigh(value)
        while self._weight > self.most and len(self._kept) > 1:
            # A file is closed when the last thread that uses it is done.
            _, gone = self._kept.popitem(last=False)
            self._weight -= self._weigh(gone)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _OF_THE_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()


class PerProcess(LastUsed[K, V], ABC):
    """Makes things by their keys, and keeps the most recently used ones.

    One thread makes a thing, while others that want it wait.

    >>> class Squares(PerProcess[int, int]):
    ...     def _make(self, key):
    ...         print("making", key)
    ...         return key * key
    >>> squares = Squares(most=2)
    >>> [squares.get(number) for number in (2, 3, 2, 4, 2, 3)]
    making 2
    making 3
    making 4
    making 3
    [4, 9, 4, 16, 4, 9]
    """

    def _unlock(self) -> None:
        super()._unlock()
        self._coming: dict[K, Future[V]] = {}

    @abstractmethod
    def _make(self, key: K) -> V:
        """Makes a thing."""

    def get(self, key: K) -> V:
        """The thing of a key, made by this thread or another if it is not there."""
        self._look_for_fork()
        while True:
            with self._lock:
                value = self._found(key)
                if value is not None:
                    return value
                coming = self._coming.get(key)
                if coming is None:
                    mine = self._coming[key] = Future()
                    break
            try:
                return coming.result()
            except Exception:
                raise
            except BaseException:
                if not coming.done() or coming.exception() is None:
                    raise  # Our own interrupt; after the other thread's, this one tries itself.
        return self._made(key, mine)

    def _made(self, key: K, mine: "Future[V]") -> V:
        try:
            value = self._make(key)
        except BaseException as error:
            with self._lock:
                del self._coming[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._coming[key]
            self._put(key, value)
        mine.set_result(value)
        return value

    def is_coming(self, key: K) -> bool:
        """Whether a thread is making it."""
        return key in self._coming


_OF_THE_PROCESS = {"_process", "_lock", "_kept", "_coming", "_weight"}
