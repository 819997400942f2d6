"""One worker process, as the trainer sees it: its link, status page, tasks and end."""

import os
import signal
import time
from collections import deque

from bushel.transport.link import Link
from bushel.workers.child import UNKNOWN, Child
from bushel.workers.program import STACK_SIGNAL
from bushel.workers.start import Started
from bushel.workers.status import Status
from bushel.workers.task import Task

_STACK_SECONDS = 1.0


class WorkerProcess:
    """A process, its tasks, and its notes."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self.index, self.process = started.index, started.process
        self.tasks: deque[Task] = deque()
        self.ready = False
        self.hung = False
        # Whether it was added to others, which have the tasks until it is ready; and whether it is
        # to end after its own tasks.
        self.added = self.leaving = False
        # Its progress at the last check, the seconds waited for it then, and the progress that was
        # reported as a hang. (See `HangWatch`.)
        self.noted = self.reported = (-1, 0)
        self.stalled = 0.0
        self.status = Status(started.status)
        self.link = Link(started.connection)

    def __str__(self) -> str:
        return f"worker {self.index} (pid {self.process.pid})"

    @property
    def takes_tasks(self) -> bool:
        """Whether it may get more tasks."""
        return not self.leaving and (self.ready or not self.added)

    def files(self) -> tuple[int, ...]:
        """Descriptors that become readable at news: a message, or the end of the process."""
        ending = self.process.fileno() if isinstance(self.process, Child) else -1
        return tuple(file for file in (self.link.fileno(), ending) if file >= 0)

    def is_gone(self) -> bool:
        """Whether the process has ended, even if another process still has its socket."""
        return isinstance(self.process, Child) and self.process.poll() is not None

    def was_killed(self) -> bool:
        """Whether it seems to have been killed from outside, or its end is unknown."""
        return self.process.returncode in (-signal.SIGKILL, -signal.SIGTERM, UNKNOWN)

    @property
    def refused(self) -> OSError | None:
        """Why the system refused to start it, if it did."""
        return self.process.refused if isinstance(self.process, Child) else None

    def private_bytes(self) -> int:
        """Private memory of the process; 0 if unknown."""
        if not self.ready:
            return 0
        try:
            with open(f"/proc/{self.process.pid}/statm") as file:
                _, resident, shared, *_ = map(int, file.read().split())
        except (OSError, ValueError):
            return 0
        return max(0, resident - shared) * os.sysconf("SC_PAGE_SIZE")

    def core_seconds(self) -> float | None:
        """CPU seconds of the process so far, all of its threads; None if unknown."""
        try:
            with open(f"/proc/{self.process.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None

    def exit(self) -> str:
        """How the process ended."""
        if self.hung:
            return "was ended because it hung"
        if self.refused is not None:
            return "could not be started"
        code = self.process.returncode
        if code is not None and code < 0:
            try:
                return f"was killed by {signal.Signals(-code).name}"
            except ValueError:
                return f"was killed by signal {-code}"
        return "ended" if code == UNKNOWN else f"ended with exit code {code}"

    def leave(self) -> None:
        """Asks the process to end; it does when it next reads its socket."""
        self.link.close()

    def end(self) -> None:
        """Makes sure that the process is gone, and everything that belongs to it."""
        self.link.close()
        self._started.end()

    def forget(self) -> None:
        """Closes its files, in this process."""
        self.link.close()
        self._started.forget()

    def stack(self) -> str:
        """Asks the process for its Python stacks, which it writes even while it hangs."""
        if not self.status.read()[0]:
            return "(none: it cannot be asked yet)"
        stacks = self._started.stacks
        os.ftruncate(stacks, 0)
        self.process.send_signal(STACK_SIGNAL)
        deadline = time.monotonic() + _STACK_SECONDS
        size = -1
        while time.monotonic() < deadline:
            grown = os.fstat(stacks).st_size
            if grown and grown == size:
                break
            size = grown
            time.sleep(0.02)
        text = os.pread(stacks, 1 << 16, 0).decode(errors="replace")
        threads = [part.strip() for part in text.split("\n\n") if "in wait_for_the_end" not in part]
        return "\n\n".join(filter(None, threads)) or "(none came)"
