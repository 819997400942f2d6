"""Bounds the size of a folder that many processes fill: evicts the oldest files."""

import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bushel.files.private import make_private, open_ours
from bushel.files.whole import lock_now, unlock

# The folder is emptied down to this share of the limit, so that the next writer need not do so
# again.
_ENOUGH = 0.9
# Seconds to wait for the lock, which is held for the time of a write. A process that holds it
# longer hangs; then nothing is stored.
PATIENCE_SECONDS = 20.0
_LOCK = ".lock"


class FolderLimit:
    """Lets one process at a time write into a folder, as long as there is room.

    The lock file has the total size. It may be too large, if a process was killed before it wrote:
    so a new process counts the files itself, and so does one that finds no room.
    """

    def __init__(
        self,
        folder: str,
        most_bytes: int,
        *,
        in_use_seconds: float | None = None,
        leave_free: float = 0.0,
    ) -> None:
        """Files used in the last `in_use_seconds` are kept, and none are truncated.

        Without it, any file may be removed at any time, and a process that has it open must notice.
        `leave_free` is the share of the disk that other programs need.
        """
        self._folder, self._most_bytes = folder, most_bytes
        self._in_use_seconds, self._leave_free = in_use_seconds, leave_free
        self._lock = threading.Lock()
        self._counted = False

    @contextmanager
    def room(self, need: int) -> Iterator[bool]:
        """Locks out other processes during a write; False if there is no room for it.

        Removes the files that were unused for the longest time. An OSError says that the folder
        cannot be written, a FileError that it belongs to another user.
        """
        with self._lock:
            make_private(self._folder)
            descriptor = open_ours(os.path.join(self._folder, _LOCK), os.O_RDWR | os.O_CREAT)
            try:
                with _locked(descriptor) as alone:
                    yield alone and self._take(descriptor, need)
            finally:
                os.close(descriptor)

    def reserve(self, need: int) -> bool:
        """Makes room for a file that takes long to write, and releases the lock meanwhile."""
        with self.room(need) as room:
            return room

    def _take(self, descriptor: int, need: int) -> bool:
        if self._leave_free:
            import shutil  # With the libraries of all compressions that it knows.

            disk = shutil.disk_usage(self._folder)
            if disk.free - need < self._leave_free * disk.total:
                return False
        said = os.pread(descriptor, 32, 0)
        total = int(said) if self._counted and said.isdigit() else self._most_bytes
        if total + need > self._most_bytes:
            total = self._make_room(need)
        if total + need > self._most_bytes:
            return False
        os.pwrite(descriptor, b"%020d" % (total + need), 0)
        return True

    def _make_room(self, need: int) -> int:
        """Counts the files, and removes the oldest if there are too many bytes."""
        entries = sorted(_entries(self._folder))
        total = sum(size for _, size, _ in entries)
        latest = time.time() - (self._in_use_seconds or 0.0)
        if total + need > self._most_bytes:
            target = int(self._most_bytes * _ENOUGH) - need
            for used, size, path in entries:
                if self._in_use_seconds is not None and used > latest:
                    break
                if total > target and self._give_up(path):
                    total -= size
        self._counted = True
        return total

    def _give_up(self, path: str) -> bool:
        if self._in_use_seconds is None:
            return _empty(path)
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                import shutil

                shutil.rmtree(path)
            else:
                os.unlink(path)
        except OSError:
            return False
        return True


def _entries(folder: str) -> Iterator[tuple[float, int, str]]:
    """Each file's time of use and size on disk; holes take no space.

    Files in a subfolder count together.
    """
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name == _LOCK:
            continue
        with suppress(OSError):
            status = os.lstat(path)
            used, size = status.st_mtime, status.st_blocks * 512
            if stat.S_ISDIR(status.st_mode):
                within = [(when, taken) for when, taken, _ in _entries(path)]
                used = max([when for when, _ in within], default=used)
                size = sum(taken for _, taken in within)
            yield used, size, path


def _empty(path: str) -> bool:
    """Truncates and removes a file: processes that have it open would keep its space.

    Their reads then return too few bytes, which tells them.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        descriptor = -1
    try:
        os.unlink(path)
        if descriptor >= 0 and not os.fstat(descriptor).st_nlink:
            os.ftruncate(descriptor, 0)
        return True
    except OSError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)


@contextmanager
def _locked(descriptor: int) -> Iterator[bool]:
    """Locks out other processes; False if one of them keeps the lock for too long."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (is_ours := lock_now(descriptor)) and time.monotonic() < end:
        time.sleep(0.001)
    try:
        yield is_ours
    finally:
        if is_ours:
            unlock(descriptor)
