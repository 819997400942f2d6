"""The end of the program: our threads are gone before the interpreter takes itself apart.

They are daemons, so that a read which hangs keeps no program from ending. But a daemon that
is inside of a C++ library when the interpreter goes may take the whole process down with it:
by a signal, after everything else went well.
"""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Protocol

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


_live: "weakref.WeakSet[Ending]" = weakref.WeakSet()


def end_with_program(ending: Ending) -> None:
    """Sees to it that this is ended before the interpreter is."""
    _live.add(ending)
    go_first()


def go_first() -> None:
    """What is registered last is done first: before the libraries that threads use end."""
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def _end_all() -> None:
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
