"""A stopwatch for a thread: time on a core, waiting, and in the run queue.

A thread that is off its core either waits (for a disk, a network, a lock) or is ready and stands
in the queue because others have the cores. The two look alike to a clock and mean opposite
things: waiting is done side by side by more threads, queueing is not.
"""

import os
import resource
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

# Nanoseconds on a core, nanoseconds in the queue, and how often it ran.
_SCHEDULER_NOTES = "/proc/thread-self/schedstat"


class Spent(NamedTuple):
    """The time that some work took its thread, less what it stood in the queue for a core."""

    seconds: float
    cpu_seconds: float
    queued_seconds: float = 0.0

    def times(self, factor: float) -> "Spent":
        return Spent(*(factor * seconds for seconds in self))

    def standing_for(self, pieces: int, whole: "Spent") -> "Spent":
        """What so many pieces of work took, of which this was one: the `whole` time and no more.

        In the queue they stood for their share of the whole, by their time on a core. A turn of
        another program takes as long as many pieces, and one piece in many has to wait for it.
        """
        times = min(float(pieces), whole.seconds / max(self.seconds, 1e-9))
        cpu_seconds = times * self.cpu_seconds
        share = min(1.0, cpu_seconds / max(whole.cpu_seconds, 1e-9))
        return Spent(times * self.seconds, cpu_seconds, share * whole.queued_seconds)


class Stopwatch:
    """Tells what the work of the calling thread took, from when it was made to `read`."""

    __slots__ = ("_before", "_thread", "_wall", "began_cpu")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._before = _system().read()
        self._wall, self.began_cpu = time.perf_counter(), time.thread_time()

    def read(self) -> Spent:
        wall, cpu = time.perf_counter() - self._wall, time.thread_time() - self.began_cpu
        if threading.get_ident() != self._thread:
            return Spent(wall, wall)  # Another thread knows nothing of it.
        system = _system()
        queued = system.queued(self._before, system.read(), wall, cpu)
        return Spent(max(cpu, wall - queued), cpu, max(0.0, queued))


class _ScheduleFile:
    """The file in which the system notes what becomes of a thread, open as long as it lives.

    To open it takes longer than all else here together.
    """

    def __init__(self) -> None:
        self._file = -1  # In case that it cannot be opened.
        self._file = os.open(_SCHEDULER_NOTES, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        return os.pread(self._file, 96, 0)

    def __del__(self) -> None:
        # (At the end of the program `os` may be gone: the system closes what is open.)
        if self._file >= 0 and os is not None:
            os.close(self._file)


class SchedulerNotes:
    """The queue as Linux counts it."""

    def __init__(self) -> None:
        self._of_thread = threading.local()
        _ALL.add(self)

    def forget(self) -> None:
        self._of_thread = threading.local()

    def read(self) -> float | None:
        """The seconds that this thread has stood in the queue so far."""
        try:
            notes = self._of_thread.notes
        except AttributeError:
            try:
                notes = self._of_thread.notes = _ScheduleFile()
            except OSError:
                return None
        try:
            _, queued, runs = notes.read().split()
            # A kernel that keeps no such notes says 0 to everything. (Time on a core is noted by
            # and by, so of a thread that has just begun it is 0, too.)
            return int(queued) * 1e-9 if int(runs) else None
        except (OSError, ValueError):
            return None

    def queued(self, before: float | None, after: float | None, wall: float, cpu: float) -> float:
        return 0.0 if before is None or after is None else after - before


_ALL: "weakref.WeakSet[SchedulerNotes]" = weakref.WeakSet()


def _forget() -> None:
    """Closes the files in a forked process: they tell of the one that it was forked from."""
    for notes in _ALL:
        notes.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class VoluntarySwitches:
    """For systems that count how often a thread gave its core away by itself.

    One that never did was ready all the time.
    """

    def read(self) -> float | None:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    def queued(self, before: float | None, after: float | None, wall: float, cpu: float) -> float:
        return wall - cpu if before == after else 0.0


class Nothing:
    """For all others: off the core counts as waiting. (A trial of threads shows if it is not.)"""

    def read(self) -> float | None:
        return None

    def queued(self, before: float | None, after: float | None, wall: float, cpu: float) -> float:
        return 0.0


_System = SchedulerNotes | VoluntarySwitches | Nothing
_SYSTEMS: tuple[Callable[[], _System], ...] = (SchedulerNotes, VoluntarySwitches)


@cache
def _system() -> _System:
    """What this system tells."""
    for kind in _SYSTEMS:
        system = kind()
        try:
            told = system.read() is not None
        except (AttributeError, OSError):
            continue  # macOS counts switches of whole processes only.
        if told:
            return system
    return Nothing()
