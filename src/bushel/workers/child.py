"""The trainer's handles of the nursery and of the workers that it forks.

The trainer never waits for the nursery: a worker can be given its tasks before it is forked.
"""

import errno
import itertools
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from bushel.transport.channel import receive_files, send_files
from bushel.workers.nursery import BORN, NEWS, REFUSED, REQUEST

# Seconds in which the nursery reports how a child ended. It takes no time, unless it is stopped.
_REPORT_SECONDS = 1.0
# The interval of checks, as another thread may read the news that this one waits for.
_SLICE_SECONDS = 0.05
# The exit code of a process whose end is unknown, as the nursery is gone.
UNKNOWN = 1 << 16


class NurseryProcess:
    """The nursery process, its children, and the requests for further ones."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        connection: socket.socket,
        lifeline: int,
        forks: bool,
    ) -> None:
        """`lifeline` is closed with this; `forks` is False for one that becomes a worker."""
        self.process = process
        self.gone = False
        self._connection, self._lifeline, self._forks = connection, lifeline, forks
        self._children: dict[int, Child] = {}
        # Several pools may ask, each in a thread of its own.
        self._numbers = itertools.count(1)

    def fileno(self) -> int:
        return self._connection.fileno()

    def ask(
        self, files: Sequence[int], index: int, count: int
    ) -> "Child | subprocess.Popen[bytes]":
        """Requests a worker with these files, without waiting for it."""
        number = next(self._numbers)
        child = self._children[number] = Child(self)
        # If the nursery is gone, the child has ended before it was forked.
        with suppress(ConnectionError):
            send_files(self._connection, REQUEST.pack(number, index, count), files)
        if self._forks:
            return child
        self._let_go()
        return self.process

    def read(self) -> None:
        """Reads the nursery's messages, without waiting."""
        while not self.gone:
            try:
                news, files = receive_files(self._connection, NEWS.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EMFILE:
                    raise
                news = b""
            if not news:
                self.gone = True
                return
            kind, number, value = NEWS.unpack(news)
            if kind == BORN:
                self._children[number].pid, self._children[number].pidfd = value, files[0]
                continue
            child = self._children.pop(number)
            if kind == REFUSED:
                child.refused, value = OSError(value, os.strerror(value)), 1
            child.returncode = value

    def wait_for_news(self, seconds: float) -> None:
        """Waits for a message of the nursery, or for a moment."""
        if not self.gone:
            _wait(self.fileno(), min(seconds, _SLICE_SECONDS))
            self.read()

    def end(self) -> None:
        """Ends the process, which has nothing to clean up."""
        if self._forks:
            self.process.kill()
            self.process.wait()
        self._let_go()

    def forget(self) -> None:
        """Releases the process in a forked child of the trainer, to which it does not belong."""
        self.process.returncode = 0
        self._let_go()

    def _let_go(self) -> None:
        self.gone = True
        self._connection.close()
        if self._lifeline >= 0:
            lifeline, self._lifeline = self._lifeline, -1
            os.close(lifeline)
        self._children.clear()


class Child:
    """A process that the nursery forks, like a `Popen`. Before its birth it is the nursery."""

    def __init__(self, nursery: NurseryProcess) -> None:
        self._nursery = nursery
        self.pid, self.pidfd = nursery.process.pid, -1
        self.returncode: int | None = None
        # The reason why the nursery could not fork it.
        self.refused: OSError | None = None

    def fileno(self) -> int:
        """A descriptor that becomes readable at the process's end; before its birth, at that."""
        return self.pidfd if self.pidfd >= 0 else self._nursery.fileno()

    @property
    def unborn_of(self) -> NurseryProcess | None:
        """The nursery with which it ended, if it was never forked."""
        was_born = self.pid != self._nursery.process.pid
        return None if was_born or self.refused is not None else self._nursery

    def poll(self) -> int | None:
        """The exit code, if the process has ended."""
        if self.returncode is None and self._has_ended():
            self._learn_how()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process; raises `TimeoutExpired` if that takes longer."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = _SLICE_SECONDS if deadline is None else deadline - time.monotonic()
            if timeout is not None and left <= 0:
                raise subprocess.TimeoutExpired("a worker", timeout)
            _wait(self.fileno(), min(left, _SLICE_SECONDS))
        return code

    def kill(self) -> None:
        if not self._is_born():
            # After the nursery's end, all of its messages can be read: perhaps that this child was
            # forked.
            self._nursery.process.kill()
            self._nursery.process.wait()
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self._is_born():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Releases the process."""
        if self.pidfd >= 0:
            pidfd, self.pidfd = self.pidfd, -1
            os.close(pidfd)

    def __del__(self) -> None:
        # If an interrupt came between request and answer, the child is forked, but has no owner.
        # (At the end of the program `os` may be gone: the system closes open files.)
        if os is not None:
            self.close()

    def _is_born(self) -> bool:
        if self.pidfd < 0:
            self._nursery.read()
        return self.pidfd >= 0

    def _has_ended(self) -> bool:
        return _wait(self.pidfd, 0) if self._is_born() else self._nursery.gone

    def _learn_how(self) -> None:
        """Finds out how the process ended, or that this is unknown."""
        if self.pidfd < 0:
            self.returncode = self._nursery.process.wait()
            return
        deadline = time.monotonic() + _REPORT_SECONDS
        self._nursery.read()
        while self.returncode is None and not self._nursery.gone:
            left = deadline - time.monotonic()
            if left < 0:
                break
            self._nursery.wait_for_news(left)
        if self.returncode is None:
            self.returncode = _adopted(self.pidfd)


def _wait(file: int, seconds: float) -> bool:
    """Waits until there is a message."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _adopted(pidfd: int) -> int:
    """The exit code of an orphan, if this process has inherited it: as a container's first one."""
    with suppress(ChildProcessError):
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        if found is not None:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    return UNKNOWN
