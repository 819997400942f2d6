"""Starts worker processes, and imports as little as can be for that.

A worker takes a tenth of a second to import numpy. In that time the trainer imports what it
needs to talk to it, and pickles the pipeline.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from bushel.errors import WorkerError
from bushel.memory_file import create_unnamed
from bushel.workers.child import Child, NurseryProcess

# The size of the page on which a worker notes what it is at (see `Status`).
PAGE = 4096
# The first argument is `sys.path`; nothing of the path is imported before it is set. Imports
# make nothing that a collector of garbage could find.
_BOOT = (
    "import sys, gc; gc.disable(); sys.path[:] = sys.argv.pop(1).split(chr(10)); "
    "from bushel.workers.nursery import serve; from bushel.workers.program import main; "
    "main(*serve(*map(int, sys.argv[1:])))"
)


class Started:
    """A process, and the files that it shares with this one."""

    def __init__(self, index: int, count: int, nursery: NurseryProcess) -> None:
        self.index = index
        self.lifeline = self.status = self.stacks = -1
        self.connection, theirs = socket.socketpair()
        lifeline = -1
        try:
            lifeline, self.lifeline = os.pipe()
            self.status, self.stacks = create_unnamed(PAGE), create_unnamed(0)
            given = (theirs.fileno(), self.status, self.stacks, lifeline)
            self.process = nursery.ask(given, index, count)
        except BaseException:
            self._close_files()
            raise
        finally:
            theirs.close()
            if lifeline >= 0:
                os.close(lifeline)

    def end(self) -> None:
        """Makes sure that the process is gone, and everything that belongs to it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Lets go of the process, and closes what belongs to it, here."""
        if self.process.returncode is None:
            self.process.returncode = 0  # It is not ours to wait for.
        if isinstance(self.process, Child):
            self.process.close()
        self._close_files()

    def _close_files(self) -> None:
        self.connection.close()
        for name in ("lifeline", "status", "stacks"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                with suppress(OSError):
                    os.close(descriptor)


class Starter:
    """Starts the workers of one pool, and others in the place of those that died."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._nursery: NurseryProcess | None = None
        # Those that wait to be told what to do.
        self._waiting: list[Started] = []

    def start_all(self) -> None:
        """Starts all workers, before they are asked for."""
        try:
            for index in range(self._count):
                self._waiting.append(self._new(index))
        except BaseException:
            self.end()
            raise

    def start(self, index: int) -> Started:
        """Returns a worker that waits, or a new one."""
        return self._waiting.pop(0) if self._waiting else self._new(index)

    def _new(self, index: int) -> Started:
        if self._nursery is not None:
            self._nursery.read()
        if self._nursery is None or self._nursery.gone:
            self._end_nursery()
            self._nursery = _start_nursery()
        return Started(index, self._count, self._nursery)

    def end(self) -> None:
        """Ends those that wait, and what others would have come from."""
        while self._waiting:
            self._waiting.pop().end()
        self._end_nursery()

    def _end_nursery(self) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.end()

    def forget(self) -> None:
        """Lets go of everything, in a forked child: it is the parent's."""
        while self._waiting:
            self._waiting.pop().forget()
        if self._nursery is not None:
            self._nursery.forget()
            self._nursery = None


def _start_nursery() -> NurseryProcess:
    """Starts a process that Ctrl-C does not reach before it says what it thinks of that."""
    ours, theirs = socket.socketpair()
    # The first three numbers mean something to the new process.
    given = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 3)
    theirs.close()
    forks = _can_fork()
    arguments = [_paths(), str(given), str(int(forks))]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            [*_interpreter(), "-c", _BOOT, *arguments],
            pass_fds=[given],
            stdin=subprocess.DEVNULL,
            stdout=_same_or_nothing(1),
            stderr=_same_or_nothing(2),
            env=_environment(),
        )
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(given)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return NurseryProcess(process, ours, forks)


def _same_or_nothing(file: int) -> int | None:
    """What `Popen` is to give the process as an output: that of this program, or nothing.

    A daemon has closed its own, and may have another file by that number.
    """
    with suppress(OSError):
        if os.get_inheritable(file):
            return None
    return subprocess.DEVNULL


def _can_fork() -> bool:
    """Whether a process may be forked that has imported numpy, and its end be noticed.

    On macOS libraries of the system do not survive it.
    """
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return False
    with suppress(OSError):
        os.close(os.pidfd_open(os.getpid()))
        return True
    return False


def _paths() -> str:
    """What is on `sys.path` that Python itself would look at."""
    return "\n".join(os.fspath(path) for path in sys.path if isinstance(path, (str, os.PathLike)))


def _interpreter() -> list[str]:
    """The command that starts a Python like this one."""
    if not sys.executable:
        raise WorkerError("worker processes need `sys.executable`, and there is none.")
    options = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    for option in sys.warnoptions:
        options += ["-W", option]
    return [sys.executable, *options]


def _environment() -> dict[str, str]:
    # glibc gives the memory of large arrays back to the system when they die, and gets it
    # again, page by page, for the next ones: a tenth of the time of decoding images. A worker
    # makes arrays of the same sizes all the time, so it keeps what it has.
    keep = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 28)}
    # A worker that imports JAX must not take the accelerator from the trainer.
    return {**keep, **os.environ, "JAX_PLATFORMS": "cpu"}
