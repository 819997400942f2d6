"""Messages for limits of the system (files, disk, processes): which limit, and what to do."""

import errno
import os
import resource


def refusal(error: OSError, path: str) -> str:
    """Says why something failed at a path; a system limit by its name.

    >>> refusal(OSError(errno.EMFILE, "Too many open files"), "a.txt")
    'this process may have ... files open (`ulimit -n`), and has: raise that limit'
    >>> refusal(PermissionError(errno.EACCES, "Permission denied"), "a.txt")
    'Permission denied'
    """
    if error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"this process may have {most:,} files open (`ulimit -n`), and has: raise that limit"
    if error.errno == errno.ENFILE:
        return "this machine has as many files open as it may (/proc/sys/fs/file-max)"
    if error.errno == errno.EFBIG:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if most == resource.RLIM_INFINITY:
            return "the file system has no files so large: write to another one"
        return f"this process may write files of {most:,} bytes (`ulimit -f`): raise that limit"
    if error.errno == errno.ENOSPC:
        return f"the disk of {_folder_of(path)!r} is full: make room on it"
    if error.errno == errno.EDQUOT:
        return f"the quota on the disk of {_folder_of(path)!r} is used up: make room on it"
    return error.strerror or str(error)


def lacks_files(wanted: int) -> str | None:
    """Says that fewer than so many files can still be opened, if that is so and is known."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        opened = len(os.listdir("/proc/self/fd"))
    except OSError:
        return None
    if most == resource.RLIM_INFINITY or most - opened >= wanted:
        return None
    return (
        f"this process may have {most:,} files open (`ulimit -n`), has {opened:,}, and should have "
        f"room for {wanted}: raise that limit"
    )


def limit_of(error: BaseException) -> str | None:
    """Says which limit refused memory, a file in memory or a process.

    None if it was no limit. (Not for non-blocking reads and writes, where EAGAIN means something
    else.)

    >>> limit_of(OSError(errno.EAGAIN, "Resource temporarily unavailable"))
    'this user may have ... processes and threads (`ulimit -u`)...'
    >>> limit_of(ValueError("something else")) is None
    True
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return refusal(OSError(number, ""), "")
    if number == errno.EFBIG:
        said = refusal(OSError(number, ""), "")
        return f"{said} (memory that is shared with workers counts as a file)"
    if number == errno.EAGAIN or "start new thread" in str(error):
        most = _limit(resource.RLIMIT_NPROC)
        return (
            f"this user may have {most} processes and threads (`ulimit -u`), including those of "
            "other programs, and the container or the machine has limits, too (pids.max, "
            f"threads-max): raise that limit, or use fewer workers.{limits_told()}".rstrip(".")
        )
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return (
            f"there is no more memory: a process may have {_limit(resource.RLIMIT_AS)} bytes "
            "(`ulimit -v`), and all processes together as much as the machine or the container "
            "has. Raise that limit, or use fewer workers and smaller batches"
        )
    return None


def limits_told() -> str:
    """Lists the limits of processes that are set here; empty without any.

    For a process that ends so early that it cannot report the limit itself.
    """
    kinds = {
        resource.RLIMIT_AS: "bytes of memory each (`ulimit -v`)",
        resource.RLIMIT_DATA: "bytes of data each (`ulimit -d`)",
        resource.RLIMIT_NOFILE: "open files each (`ulimit -n`)",
    }
    finite = [kind for kind in kinds if resource.getrlimit(kind)[0] != resource.RLIM_INFINITY]
    told = [f"{_limit(kind)} {kinds[kind]}" for kind in finite]
    return f" Processes may have {', '.join(told)} here." if told else ""


def _limit(kind: int) -> str:
    most = resource.getrlimit(kind)[0]
    return "any number of" if most == resource.RLIM_INFINITY else f"{most:,}"


def _folder_of(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))
