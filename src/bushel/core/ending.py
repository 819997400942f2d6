"""The end of the program: ends bushel's threads before the interpreter shuts down.

They are daemons, so that a read which hangs keeps no program from ending. But a daemon that
is inside of a C++ library when the interpreter goes may take the whole process down with it:
by a signal, after everything else went well.
"""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bushel.core.limits import limit_of

# What threads are at, they end soon: reading a block, copying a batch. What takes longer than
# this hangs, and is left alone.
_PATIENCE_SECONDS = 5.0


class Ending(Protocol):
    """Something that has to be ended with the program."""

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """The threads that it has."""
        ...

    def end_soon(self) -> None:
        """Has its threads end after what they are at, and wait for nothing any more."""


class OwnThread(threading.Thread):
    """A thread of ours; a daemon, which the end of the program waits for."""

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


_live: "weakref.WeakSet[Ending]" = weakref.WeakSet()
# Not empty when the program has begun to end.
_ending: list[bool] = []


def end_with_program(ending: Ending) -> None:
    """Sees to it that this is ended before the interpreter is."""
    _live.add(ending)
    go_first()


def go_first() -> None:
    """What is registered last is done first: before the libraries that threads use end."""
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def say_ending() -> None:
    """Takes note that the program has begun to end."""
    _ending.append(True)


def is_ending() -> bool:
    """Whether the program has begun to end."""
    return bool(_ending)


def park_at_the_end() -> None:
    """Keeps a thread of the user's from going on, if the program is ending.

    Only daemons are left then, and nobody will look at what they do: an error would only be
    printed over the last words of a program that went well.
    """
    thread = threading.current_thread()
    if _ending and thread is not threading.main_thread() and not isinstance(thread, OwnThread):
        threading.Event().wait()


def _end_all() -> None:
    say_ending()
    endings = list(_live)
    # First all, then each: they may be waiting for each other.
    for ending in endings:
        ending.end_soon()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for ending in endings:
        for thread in ending.threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


if hasattr(os, "register_at_fork"):
    # A forked child has none of these threads; and who waits for its parent is not its business.
    os.register_at_fork(after_in_child=_live.clear)
