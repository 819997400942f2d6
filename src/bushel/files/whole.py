"""Files that are there as a whole or not at all, and one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


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

    Args:
        path: its name, in a folder that exists.
        mode: who may do what with it, less what the process always withholds.
        lasting: whether to wait until the disk has it. Without, a crash of the machine may leave
            the name without its contents: for what is checked when read, and can be made again.
    """
    with replacing(path, lasting) as private:
        # Nobody else can have put a link there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(private, flags, mode), "wb") as out:
            yield out


@contextmanager
def replacing(path: str, lasting: bool = True) -> Iterator[str]:
    """The name of a file to write, which gets the name `path` when the block ends."""
    folder, name = os.path.split(path)
    # Nobody else's. It tells whose it is, as far as there is room in the longest name.
    private = os.path.join(folder, f".{name[:50]}.{os.urandom(8).hex()}")
    try:
        yield private
        if lasting:
            _sync(private)
        os.replace(private, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(private)
        raise
    if lasting:
        sync_folder(folder)


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

    Where that cannot be, several come in: what they do must then cost time and nothing else.
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
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Who had it before has removed it: whoever comes next makes another one.
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
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
