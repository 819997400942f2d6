"""What this machine or its container has: cores, memory, file descriptors."""

import math
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache


def available_cores() -> int:
    """How many cores this process may use: by its affinity, and by the limit of a container."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # Not on every system.
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _cores_of_container(), _most_cores)))


# The most cores that this process may use, as other processes beside it use the rest.
_most_cores = math.inf


@contextmanager
def at_most_cores(most: float) -> Iterator[None]:
    """Limits the number of cores that this process counts on, within a `with` block.

    >>> with at_most_cores(0.5):
    ...     available_cores()
    1
    """
    global _most_cores
    before, _most_cores = _most_cores, most
    try:
        yield
    finally:
        _most_cores = before


# The container's limit as last read, and when: every iterator asks for it, and short iterators
# should not spend their few milliseconds on it.
_READ_AGAIN_SECONDS = 1.0
_limit: tuple[float, float] = (math.inf, -math.inf)


def _cores_of_container() -> float:
    """The share of the CPUs that a control group allows, in cores, as of a second ago."""
    global _limit
    (cores, at), now = _limit, time.monotonic()
    if now - at >= _READ_AGAIN_SECONDS:
        _limit = cores, _ = _read_cores_of_container(), now
    return cores


def _read_cores_of_container() -> float:
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max") as file:
        quota, period = file.read().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    folder = "/sys/fs/cgroup/cpu/cpu.cfs_"
    with (
        suppress(OSError, ValueError),
        open(folder + "quota_us") as quota_file,
        open(folder + "period_us") as period_file,
    ):
        allowed = int(quota_file.read())
        return allowed / int(period_file.read()) if allowed > 0 else math.inf
    return math.inf


def descriptors_to_keep() -> int:
    """How many files one part of the program may keep open: the rest needs descriptors, too."""
    return max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


@cache
def memory_limit() -> int:
    """Most of the memory that this process may use, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            total = min(total, int(file.read()))
    return total * 9 // 10


def available_memory() -> int:
    """Memory that is still free, on this machine or in its container, in bytes."""
    free = memory_limit()
    with suppress(OSError, ValueError, StopIteration), open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
        free = min(free, int(line.split()[1]) * 1024)
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        folder = "/sys/fs/cgroup/"
        with (
            suppress(OSError, ValueError),
            open(folder + limit) as limit_file,
            open(folder + used) as used_file,
        ):
            free = min(free, max(0, int(limit_file.read()) - int(used_file.read())))
    return free


def used_core_seconds() -> float | None:
    """How long the cores that this process may use were busy for any program; None if unknown.

    In a container with a share of the cores, the time that the container used.
    """
    try:
        if _cores_of_container() < math.inf:
            return _container_core_seconds()
        ours, is_nice = os.sched_getaffinity(0), os.nice(0) > 0
        ticks = 0
        with open("/proc/stat") as file:
            for line in file:
                if not line.startswith("cpu"):
                    break
                name, *figures = line.split()
                if name != "cpu" and int(name[3:]) in ours:
                    # All figures except idling, waiting for a disk, and guests (which the first two
                    # figures include). Programs with low priority leave the cores to us, unless
                    # this one has low priority itself.
                    user, nice, system, _, _, *interrupts = map(int, figures[:8])
                    ticks += user + nice * is_nice + system + sum(interrupts)
        return ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None


def _container_core_seconds() -> float | None:
    with open("/sys/fs/cgroup/cpu.stat") as file:
        for line in file:
            if line.startswith("usage_usec "):
                return int(line.split()[1]) / 1e6
    return None


@cache
def boot_id() -> str:
    """An identifier that changes when the machine is restarted; empty where there is none."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""
