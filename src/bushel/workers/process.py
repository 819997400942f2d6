"""One worker process, as the trainer sees it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress

from bushel.errors import WorkerError
from bushel.memory_file import create_unnamed
from bushel.transport.link import Link
from bushel.workers.program import STACK_SIGNAL
from bushel.workers.status import Status
from bushel.workers.task import Task

# The first argument is `sys.path`; nothing is imported before it is set.
_BOOT = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10)); "
    "from bushel.workers.program import main; main(*map(int, sys.argv[1:]))"
)
_STACK_SECONDS = 1.0


class WorkerProcess:
    """A process, what it has to do, and everything that belongs to it here."""

    def __init__(self, index: int, count: int) -> None:
        self.index = index
        self.tasks: deque[Task] = deque()
        self.ready = False
        self.hung = False
        # What the worker's page said last, since when, and for what it was reported.
        self.noted = self.reported = -1
        self.noted_at = time.monotonic()
        ours, theirs = socket.socketpair()
        lifeline, self.lifeline = os.pipe()
        status = Status.open()
        self.stacks = create_unnamed(0)
        self.pidfd = -1
        self.status = Status(status)
        self.link = Link(ours)
        given = (theirs.fileno(), status, self.stacks, lifeline)
        paths = "\n".join(os.fspath(path) for path in sys.path)
        try:
            self.process = _without_interrupts(
                [*_interpreter(), "-c", _BOOT, paths, *map(str, (*given, index, count))], given
            )
        except BaseException:
            self.forget()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
            os.close(status)
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self.pidfd = os.pidfd_open(self.process.pid)

    def __str__(self) -> str:
        return f"worker {self.index} (pid {self.process.pid})"

    def files(self) -> tuple[int, ...]:
        """What becomes readable when there is news: a message, or the end of the process."""
        return (self.link.fileno(),) if self.pidfd < 0 else (self.link.fileno(), self.pidfd)

    def exit(self) -> str:
        """How the process ended."""
        if self.hung:
            return "was ended because it hung"
        code = self.process.returncode
        if code is not None and code < 0:
            try:
                return f"was killed by {signal.Signals(-code).name}"
            except ValueError:
                return f"was killed by signal {-code}"
        return f"ended with exit code {code}"

    def leave(self) -> None:
        """Asks the process to end; it does when it comes to reading its socket."""
        self.link.close()

    def end(self) -> None:
        """Makes sure that the process is gone, and everything that belongs to it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Closes what belongs to the process, here."""
        self.link.close()
        for name in ("lifeline", "stacks", "pidfd"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                with suppress(OSError):
                    os.close(descriptor)

    def stack(self) -> str:
        """Asks the process for its Python stacks, which it writes even while it hangs."""
        os.ftruncate(self.stacks, 0)
        self.process.send_signal(STACK_SIGNAL)
        deadline = time.monotonic() + _STACK_SECONDS
        size = -1
        while time.monotonic() < deadline:
            grown = os.fstat(self.stacks).st_size
            if grown and grown == size:
                break
            size = grown
            time.sleep(0.02)
        text = os.pread(self.stacks, 1 << 16, 0).decode(errors="replace")
        threads = [part.strip() for part in text.split("\n\n") if "in wait_for_the_end" not in part]
        return "\n\n".join(filter(None, threads)) or "(none came)"


def _without_interrupts(command: list[str], files: tuple[int, ...]) -> "subprocess.Popen[bytes]":
    """Starts a program that Ctrl-C does not reach before it says what it thinks of that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            command, pass_fds=files, stdin=subprocess.DEVNULL, env=_environment()
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _interpreter() -> list[str]:
    """The command that starts a Python like this one."""
    if not sys.executable:
        raise WorkerError("worker processes need `sys.executable`, and there is none.")
    options = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    for option in sys.warnoptions:
        options += ["-W", option]
    return [sys.executable, *options]


def _environment() -> dict[str, str]:
    # A worker that imports JAX must not take the accelerator from the trainer.
    return {**os.environ, "JAX_PLATFORMS": "cpu"}
