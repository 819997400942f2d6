"""Shared memory with a name: made, opened by other processes, checked, removed.

Python's `SharedMemory` is not used for named memory, for two reasons. Up to Python 3.12, a process
that only opens such memory removes it at its end, while the process that made it may still use it.
And its `close` fails while an array uses the memory. Here only the maker registers the name with
the resource tracker, which removes it after a crash, and a mapping ends with the last array on it.
Both kinds can open each other's memory.
"""

import _posixshmem  # type: ignore[import-not-found]
import errno
import os
import stat
from multiprocessing import resource_tracker

_KIND = "shared_memory"  # The kind by which the resource tracker knows it.


def create_named(size: int, name: str | None = None) -> tuple[int, str]:
    """Makes memory under a name, a new one if none is given; returns descriptor and name."""
    if name is None:
        name = f"bushel-{os.urandom(8).hex()}"  # macOS allows no more than 30 letters.
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
    descriptor: int = _posixshmem.shm_open(f"/{name}", flags, 0o600)
    resource_tracker.register(f"/{name}", _KIND)
    try:
        return _reserved(descriptor, size), name
    except BaseException:
        remove_named(name)
        raise


def open_named(name: str, *, writable: bool) -> int:
    """Opens memory that another process made; that process remains the one to remove it."""
    flags = os.O_RDWR if writable else os.O_RDONLY
    descriptor: int = _posixshmem.shm_open(f"/{name}", flags, 0o600)
    try:
        _check_ours(descriptor, name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_ours(descriptor: int, name: str) -> None:
    """Refuses memory that another user could have written: any user may create any name."""
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, and this process runs as {os.geteuid()}"
    elif status.st_mode & 0o022:
        problem = f"may be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
    elif not stat.S_ISREG(status.st_mode):
        problem = "is no memory"
    else:
        return
    raise PermissionError(
        errno.EACCES,
        f"the shared memory {name!r} {problem}. Memory is shared by the processes of one user: "
        "make it as that user, and give it another name",
    )


def remove_named(name: str) -> None:
    """Removes a name; the memory ends with the last mapping of it.

    The tracker is told first, although it may know the name already: it complains when it is to
    forget an unknown name, and the process that removes memory need not be its maker.
    """
    resource_tracker.register(f"/{name}", _KIND)
    try:
        _posixshmem.shm_unlink(f"/{name}")
    finally:
        resource_tracker.unregister(f"/{name}", _KIND)


def _reserved(descriptor: int, size: int) -> int:
    """Gives a file its size, and reserves its memory where the system can do that.

    Otherwise a full /dev/shm would raise SIGBUS in the middle of writing. (Unnamed memory is not in
    /dev/shm and has no limit, so reserving it would not help: the system would go on until all
    memory is used.)
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise OSError(
            error.errno,
            f"there is no room for {size:,} bytes of shared memory ({error.strerror}). In a "
            "container, /dev/shm may be small (`--shm-size`); memory without a name is not "
            "taken from there",
        ) from error
    return descriptor
