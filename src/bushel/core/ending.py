"""The end of the program: ends bushel's threads before the interpreter shuts down.

The threads are daemons, so that a read that hangs does not keep a program from ending. But a daemon
that is inside a C++ library when the interpreter shuts down may crash the whole process by a
signal, after everything else went well.
"""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bushel.core.limits import limit_of

# Work in progress, such as reading a block or copying a batch, ends soon. Threads that take longer
# than this hang, and are left alone.
_PATIENCE_SECONDS = 5.0


class Ending(Protocol):
    """Something that must end before the program does."""

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """Its threads."""
        ...

    def end_soon(self) -> None:
        """Makes its threads end after their current work, and wait for nothing any more."""


# An interrupted start waits no longer for its thread.
_BEGINS_WITHIN_SECONDS = 1.0


class OwnThread(threading.Thread):
    """A thread of bushel: a daemon, which the end of the program waits for."""

    def __init__(self, target: Callable[..., None], name: str, args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)

    def start(self) -> None:
        try:
            super().start()
        except RuntimeError as error:
            limit = limit_of(error)
            if limit is None:
                raise
            raise RuntimeError(f"no thread can be started: {limit}.") from error
        except BaseException:
            # An interrupt: the thread may run nonetheless, and must not be started once more. (It
            # may also never begin, where the interrupt came before it was made.)
            self._started.wait(_BEGINS_WITHIN_SECONDS)  # type: ignore[attr-defined]
            raise


_live: "weakref.WeakSet[Ending]" = weakref.WeakSet()
# Not empty once the program has begun to end.
_ending: list[bool] = []


def end_with_program(ending: Ending) -> None:
    """Makes sure that this ends before the interpreter does."""
    _live.add(ending)
    go_first()


def go_first() -> None:
    """What is registered last is called first: before the libraries that threads use end."""
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def say_ending() -> None:
    """Takes note that the program has begun to end."""
    _ending.append(True)


def is_ending() -> bool:
    """Whether the program has begun to end."""
    return bool(_ending)


def park_at_the_end() -> None:
    """Stops a thread of the user's for good, if the program is ending.

    Only daemons are left then, and nobody will read their results: an error would only be printed
    after the last words of a program that went well.
    """
    thread = threading.current_thread()
    if _ending and thread is not threading.main_thread() and not isinstance(thread, OwnThread):
        threading.Event().wait()


def _end_all() -> None:
    say_ending()
    endings = list(_live)
    # First all, then each, as they may be waiting for each other.
    for ending in endings:
        ending.end_soon()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for ending in endings:
        for thread in ending.threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


if hasattr(os, "register_at_fork"):
    # A forked child has none of these threads; threads that wait for the parent are not its
    # concern.
    os.register_at_fork(after_in_child=_live.clear)
