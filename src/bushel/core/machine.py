"""What this machine, or the container that is all of it to us, has to offer."""

import math
import os
import resource
from contextlib import suppress
from functools import cache


def available_cores() -> int:
    """How many cores this process may use: by its affinity, and by the limit of a container."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # Not on every system.
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _cores_of_container())))


def _cores_of_container() -> float:
    """The share of the CPUs that a control group allows, in cores."""
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
    """How many files one part of the program may keep open: the rest need descriptors, too."""
    return max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


@cache
def memory_limit() -> int:
    """Most of the memory that this process may use, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            total = min(total, int(file.read()))
    return total * 9 // 10


@cache
def boot_id() -> str:
    """Something that is another after the machine was started again; empty where nobody says."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""
