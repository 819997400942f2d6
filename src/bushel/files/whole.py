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
    """A file to write, which gets its name when the block ends, and is removed if it fails.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(f"{folder}/a") as out:
    ...         _ = out.write(b"hello")
    ...         print(os.path.exists(f"{folder}/a"))
    ...     print(os.listdir(folder))
    False
    ['a']

    Where the file system can, the file has no name until then, so that a process that is killed
    leaves nothing. Otherwise it has a private one, which `remove_leftovers` finds.

    Args:
        path: its name, in a folder that exists.
        mode: who may do what with it, less what the process always withholds.
        lasting: whether to wait until the disk has it. Without, a crash of the machine may leave
            the name without its contents: for what is checked when read, and can be made again.
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
    """Opens a file without a name; None where there are none."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder or ".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode)
    except OSError:
        return None  # What is wrong with the folder, if anything is, shows with a name, too.


def _name(descriptor: int, path: str) -> None:
    """Gives a file without a name one, in place of a file that has it."""
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
        # With a folder's descriptor, which is not looked at, Python follows the link of /proc.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


def _private(path: str) -> str:
    """A name that is nobody else's. It tells whose it is, as far as there is room for that."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:50]}.{os.urandom(8).hex()}")


@contextmanager
def replacing(path: str, lasting: bool = True) -> Iterator[str]:
    """The name of a file to write, which gets the name `path` when the block ends."""
    private = _private(path)
    try:
        yield private
        rename(private, path, lasting)
    except BaseException:
        with suppress(OSError):
            os.unlink(private)
        raise


def rename(private: str, path: str, lasting: bool = True) -> None:
    """Gives a file that is whole its name, in place of a file that has it.

    Args:
        private: its name until now, in the same file system.
        path: its name from now on.
        lasting: whether to wait until the disk has both the file and its name; not where the
            file was waited for before, and the name is before long.
    """
    if lasting:
        _sync(private)
    os.replace(private, path)
    if lasting:
        sync_folder(os.path.dirname(path))


def _locked_new(path: str, mode: int) -> int:
    """Makes a file, and locks it for as long as somebody writes to it."""
    while True:
        # Nobody else can have put a link there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, mode)
        with suppress(OSError):  # There are file systems without locks.
            lock_now(descriptor)
        # In between, somebody may have taken it for what a dead process left.
        if os.path.exists(path):
            return descriptor
        os.close(descriptor)


def remove_leftovers(path: str) -> None:
    """Removes what processes left that were killed while they wrote a file of that name.

    A process that is alive has a lock on what it writes.
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
    """Makes names in a folder last; some file systems cannot, and do it by themselves."""
    with suppress(OSError):
        _sync(folder or ".")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_now(descriptor: int) -> bool:
    """Takes the lock of an open file; False where another process has it.

    A process that ends gives it back, however it ends.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Lets one process at a time into the block, by a file that is there only to be locked.

    Where that cannot be, several come in: what they do must then cost time and nothing else. So
    it is where the file is somebody else's, who may never give the lock back.
    """
    descriptor = _locked(path)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                os.unlink(path)
            # Not left to the closing of it: a process that was forked just now has it open too.
            unlock(descriptor)
            os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Gives back the lock of an open file."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _locked(path: str) -> int | None:
    """Opens a file and waits for its lock; None where the file system has none."""
    while True:
        try:
            descriptor = open_ours(path, os.O_RDWR | os.O_CREAT)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # If not, the previous holder has removed the file: the next attempt makes another one.
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
