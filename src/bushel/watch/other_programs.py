"""For `profile`: measures how much other programs used the cores during a trial.

They need not even take turns with it: cores share caches and the way to memory, and some are two
halves of the same.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from time import perf_counter

from bushel.core.frozen import frozen


@frozen
class CoresUsed:
    """Seconds on cores until a time: of all programs, and of this one with all that it started."""

    at: float
    by_all: float
    by_us: float


def cores_used() -> CoresUsed | None:
    """What was used until now; None where the system does not tell."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _, _, *interrupts = map(int, file.readline().split()[1:8])
        by_all = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
        by_us = sum(map(_on_cores, family(os.getpid())))
    except (OSError, ValueError):
        return None
    return CoresUsed(perf_counter(), by_all, by_us)


def cores_of_others(before: CoresUsed | None, after: CoresUsed | None) -> float:
    """Cores that others used between two looks, on average; 0 if nobody knows.

    >>> cores_of_others(CoresUsed(0.0, 10.0, 4.0), CoresUsed(2.0, 13.0, 6.0))
    0.5
    """
    if before is None or after is None or after.at <= before.at:
        return 0.0
    theirs = after.by_all - before.by_all - (after.by_us - before.by_us)
    return max(0.0, theirs) / (after.at - before.at)


def _on_cores(pid: int) -> float:
    """Seconds of all threads that a process has now."""
    return sum(_on_core(f"/proc/{pid}/task/{thread}") for thread in _entries(f"/proc/{pid}/task"))


def _on_core(task: str) -> float:
    with suppress(OSError, ValueError, IndexError), open(f"{task}/schedstat") as file:
        return int(file.read().split()[0]) * 1e-9
    return 0.0


def _entries(path: str) -> Iterator[str]:
    with suppress(OSError):
        yield from filter(str.isdigit, os.listdir(path))


def family(pid: int) -> set[int]:
    """A process and all that it has started, and those."""
    parents = {}
    for name in _entries("/proc"):
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat") as file:
            parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found
