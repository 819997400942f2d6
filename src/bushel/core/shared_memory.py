"""Shared memory that other processes find by its name.

Python's `SharedMemory` is not used for what has a name. Up to Python 3.12 a process that only
opens such memory has it removed when it ends, under the feet of whoever made it; and its
`close` fails while an array lives on the memory. Here the maker alone tells the resource
tracker, which removes the name after a crash, and a mapping goes away with the last array on
it. Both kinds can open each other's memory.
"""

import _posixshmem  # type: ignore[import-not-found]
import errno
import os
import stat
from multiprocessing import resource_tracker

_KIND = "shared_memory"  # What the resource tracker calls it.


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
    """Opens memory that another process made, without a promise to remove it."""
    flags = os.O_RDWR if writable else os.O_RDONLY
    descriptor: int = _posixshmem.shm_open(f"/{name}", flags, 0o600)
    try:
        _check_ours(descriptor, name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_ours(descriptor: int, name: str) -> None:
    """Refuses memory that another user could have written: anybody may make any name."""
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

    The tracker is told first, although it may know already: it complains about a name that it
    is to forget and has never heard of, and whoever removes may not be the one who made.
    """
    resource_tracker.register(f"/{name}", _KIND)
    try:
        _posixshmem.shm_unlink(f"/{name}")
    finally:
        resource_tracker.unregister(f"/{name}", _KIND)


def _reserved(descriptor: int, size: int) -> int:
    """Gives a file its size, and its memory where the system can do so beforehand.

    Otherwise /dev/shm running full would show as a SIGBUS in the middle of writing. (What has
    no name is not taken from there and has no limit, so to reserve it would be of no use: the
    system would go on until all memory is gone.)
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
