"""Starts worker processes, and imports as little as can be for that.

A worker takes a tenth of a second to import numpy. In that time the trainer imports what it
needs to talk to it, and pickles the pipeline.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from bushel.errors import WorkerError
from bushel.memory_file import create_unnamed

# The size of the page on which a worker notes what it is at (see `Status`).
PAGE = 4096
# The first argument is `sys.path`; nothing of the path is imported before it is set. Imports
# make nothing that a collector of garbage could find.
_BOOT = (
    "import sys, gc; gc.disable(); sys.path[:] = sys.argv.pop(1).split(chr(10)); "
    "from bushel.workers.program import main; main(*map(int, sys.argv[1:]))"
)


class Started:
    """A process, and the files that it shares with this one."""

    def __init__(self, index: int, count: int) -> None:
        self.index = index
        self.lifeline = self.status = self.stacks = self.pidfd = -1
        self.connection, theirs = socket.socketpair()
        lifeline = -1
        try:
            lifeline, self.lifeline = os.pipe()
            self.status, self.stacks = create_unnamed(PAGE), create_unnamed(0)
            given = (theirs.fileno(), self.status, self.stacks, lifeline)
            arguments = [_paths(), *map(str, (*given, index, count))]
            self.process = _without_interrupts([*_interpreter(), "-c", _BOOT, *arguments], given)
        except BaseException:
            self.forget()
            raise
        finally:
            theirs.close()
            if lifeline >= 0:
                os.close(lifeline)
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self.pidfd = os.pidfd_open(self.process.pid)

    def end(self) -> None:
        """Makes sure that the process is gone, and everything that belongs to it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Closes what belongs to the process, here."""
        self.connection.close()
        for name in ("lifeline", "status", "stacks", "pidfd"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                with suppress(OSError):
                    os.close(descriptor)


def start_workers(count: int) -> list[Started]:
    """Starts so many workers, which then wait to be told what to do."""
    started: list[Started] = []
    try:
        for index in range(count):
            started.append(Started(index, count))
    except BaseException:
        for worker in started:
            worker.end()
        raise
    return started


def _without_interrupts(command: list[str], files: tuple[int, ...]) -> "subprocess.Popen[bytes]":
    """Starts a program that Ctrl-C does not reach before it says what it thinks of that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            command, pass_fds=files, stdin=subprocess.DEVNULL, env=_environment()
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
