"""The lifeline: a pipe that ends a worker when the trainer ends.

Not by the death of the parent (`PR_SET_PDEATHSIG`): that is by thread, and the thread that
started the process may end long before the trainer does.
"""

import fcntl
import os
import signal
from contextlib import suppress


def kill_when_closed(lifeline: int, pid: int) -> None:
    """Has the system end a process when the other end of the pipe is closed.

    By a signal that ends also a process that is stopped, or cannot run a thread any more;
    where the system can send none but SIGIO, by that.
    """
    with suppress(OSError):
        if hasattr(fcntl, "F_SETSIG"):
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, pid)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
