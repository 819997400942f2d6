"""Writes files atomically, and locks them so that one process at a time writes."""

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from bushel.files.private import open_ours


@contextmanager
def written_whole(path: str, mode: int = 0o666, lasting: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which gets its name when the block ends, and is removed after an error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(f"{folder}/a") as out:
    ...         _ = out.write(b"hello")
    ...         print(os.path.exists(f"{folder}/a"))
    ...     print(os.listdir(folder))
    False
    ['a']

    If the file system supports it, the file has no name until then, so that a killed process leaves
    nothing. Otherwise it has a private one, which `remove_leftovers` finds.

    Args: path: its name, in a folder that exists. mode: its permissions, reduced by the process's
    umask. lasting: whether to wait until it is on the disk. Otherwise a crash of the machine may
    leave the name without its contents: for files that are verified when they are read, and can be
    made again.
    """
    nameless = _nameless(os.path.dirname(path), mode)
    if nameless is None:
        with replacing(path, lasting) as private, open(_locked_new(private, mode), "wb") as out:
            yield out
        return
    with open(nameless, "wb") as out:
        yield out
        out.flush()
        if lasting:
            os.fsync(nameless)
        _name(nameless, path)
    if lasting:
        sync_folder(os.path.dirname(path))


def _nameless(folder: str, mode: int) -> int | None:
    """Opens a file without a name; None if the file system has no such files."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder or ".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode)
    except OSError:
        return None  # If something is wrong with the folder, the attempt with a name will show it.


def _name(descriptor: int, path: str) -> None:
    """Gives an unnamed file a name, replacing a file that has the name."""
    if _link(descriptor, path):
        return
    private = _private(path)
    try:
        lock_now(descriptor)
        if not _link(descriptor, private):
            raise FileExistsError(private)
        rename(private, path, lasting=False)
    except BaseException:
        with suppress(OSError):
            os.unlink(private)
        raise


def _link(descriptor: int, path: str) -> bool:
    try:
        # With a folder's descriptor (which is ignored), Python follows the link in /proc.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


def _private(path: str) -> str:
    """A name that no other file has. It contains the original name, as far as that fits."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:50]}.{os.urandom(8).hex()}")


@contextmanager
def replacing(path: str, lasting: bool = True) -> Iterator[str]:
    """The name of a file to write, which is renamed to `path` when the block ends."""
    private = _private(path)
    try:
        yield private
        rename(private, path, lasting)
    except BaseException:
        with suppress(OSError):
            os.unlink(private)
        raise


def rename(private: str, path: str, lasting: bool = True) -> None:
    """Renames a complete file, replacing a file that has the name.

    Args: private: its current name, in the same file system. path: its new name. lasting: whether
    to wait until both the file and its name are on the disk; not needed if the file was synced
    before, and the name soon is.
    """
    if lasting:
        _sync(private)
    os.replace(private, path)
    if lasting:
        sync_folder(os.path.dirname(path))


def _locked_new(path: str, mode: int) -> int:
    """Makes a file, and locks it as long as it is written."""
    while True:
        # No link can be in its place.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, mode)
        with suppress(OSError):  # Some file systems have no locks.
            lock_now(descriptor)
        # In between, another process may have removed it as a leftover.
        if os.path.exists(path):
            return descriptor
        os.close(descriptor)


def remove_leftovers(path: str) -> None:
    """Removes files that killed processes left while they wrote a file of that name.

    A running process has a lock on the file that it writes.
    """
    folder, name = os.path.split(path)
    pattern = re.compile(rf"\.{re.escape(name[:50])}\.[0-9a-f]{{16}}")
    with suppress(OSError):
        for found in filter(pattern.fullmatch, os.listdir(folder or ".")):
            with suppress(OSError):
                _remove_dead(os.path.join(folder, found))


def _remove_dead(path: str) -> None:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if ours and lock_now(descriptor) and os.path.samestat(os.lstat(path), status):
            os.unlink(path)
    finally:
        os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Syncs the names in a folder to the disk; some file systems cannot, and need not."""
    with suppress(OSError):
        _sync(folder or ".")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_now(descriptor: int) -> bool:
    """Takes the lock of an open file; False if another process has it.

    A process releases it at its end, however that comes.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Lets one process at a time into the block, by a file that exists only to be locked.

    If locking is impossible, several processes enter: that must cost only time. It is so if the
    file belongs to another user, who may never release the lock.
    """
    descriptor = _locked(path)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                os.unlink(path)
            # Not left to closing the file: a process that was forked just now has it open, too.
            unlock(descriptor)
            os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Releases the lock of an open file."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _locked(path: str) -> int | None:
    """Opens a file and waits for its lock; None if the file system has no locks."""
    while True:
        try:
            descriptor = open_ours(path, os.O_RDWR | os.O_CREAT)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Otherwise the previous holder has removed the file: the next attempt makes another
            # one.
            if os.path.samestat(os.lstat(path), os.fstat(descriptor)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
