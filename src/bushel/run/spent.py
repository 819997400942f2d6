"""Where a thread's time went: on a core, waiting for something, or in the queue for a core.

A thread that is off its core either waits (for a disk, a network, a lock) or is ready and stands
in the queue because others have the cores. The two look alike to a clock and mean opposite
things: waiting is done side by side by more threads, queueing is not.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

# Nanoseconds on a core, nanoseconds in the queue, and how often it ran. Opened for each reading:
# a descriptor that is kept would tell of another thread after a fork.
_SCHEDULER_NOTES = "/proc/thread-self/schedstat"


class Spent(NamedTuple):
    """The time that some work took its thread, less what it stood in the queue for a core."""

    seconds: float
    cpu_seconds: float


class Stopwatch:
    """Tells what the work of the calling thread took, from when it was made to `read`."""

    __slots__ = ("_before", "_cpu", "_thread", "_wall")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._before = _system().read()
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def read(self) -> Spent:
        wall, cpu = time.perf_counter() - self._wall, time.thread_time() - self._cpu
        if threading.get_ident() != self._thread:
            return Spent(wall, wall)  # Another thread knows nothing of it.
        system = _system()
        queued = system.queued(self._before, system.read(), wall, cpu)
        return Spent(max(cpu, wall - queued), cpu)


class SchedulerNotes:
    """The queue as Linux counts it."""

    def read(self) -> float | None:
        """The seconds that this thread has stood in the queue so far."""
        try:
            notes = os.open(_SCHEDULER_NOTES, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            on_core, queued, _ = os.read(notes, 96).split()
        except (OSError, ValueError):
            return None
        finally:
            os.close(notes)
        # A kernel that keeps no such notes says 0 to everything.
        return int(queued) * 1e-9 if int(on_core) else None

    def queued(self, before: float | None, after: float | None, wall: float, cpu: float) -> float:
        return 0.0 if before is None or after is None else after - before


class VoluntarySwitches:
    """For systems that count how often a thread gave its core away by itself.

    One that never did was ready all the time.
    """

    def read(self) -> float | None:
        import resource

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
        except (ImportError, AttributeError, OSError):
            continue
        if told:
            return system
    return Nothing()
