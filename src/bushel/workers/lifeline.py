"""The lifeline: a pipe that ends a worker when the trainer ends.

`PR_SET_PDEATHSIG` would not do: it depends on the thread that started the process, which may end
long before the trainer does.
"""

import fcntl
import os
import signal
from contextlib import suppress


def kill_when_closed(lifeline: int, pid: int) -> None:
    """Makes the system end a process when the other end of the pipe is closed.

    It uses a signal that also ends a process that is stopped, or cannot run a thread any more; or
    SIGIO if the system can send no other.
    """
    with suppress(OSError):
        if hasattr(fcntl, "F_SETSIG"):
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, pid)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
