"""A folder that many processes fill, and that never takes more of the disk than it may."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bushel.files.whole import lock_now, unlock

# Down to this share of the limit, so that the next one to write need not begin again.
_ENOUGH = 0.9
# The lock is held for the time of a write. One that is not given back after this belongs to a
# process that hangs, and we do without what we wanted to keep.
PATIENCE_SECONDS = 20.0
_LOCK = ".lock"


class Limit:
    """Lets one at a time write into a folder, as long as there is room.

    The file of the lock says how much there is. It may say too much, where a process was killed
    before it wrote: then, and when a process comes anew, it is counted.
    """

    def __init__(self, folder: str, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._lock = threading.Lock()
        self._counted = False

    @contextmanager
    def room(self, need: int) -> Iterator[bool]:
        """Keeps others out while something is written; False where there is no room for it.

        Gives up what was not used for the longest time. An OSError says that the folder cannot
        be written.
        """
        with self._lock:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            path = os.path.join(self._folder, _LOCK)
            try:
                descriptor = os.open(path, flags, 0o600)
            except FileNotFoundError:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                descriptor = os.open(path, flags, 0o600)
            try:
                with _locked(descriptor) as alone:
                    yield alone and self._take(descriptor, need)
            finally:
                os.close(descriptor)

    def _take(self, descriptor: int, need: int) -> bool:
        said = os.pread(descriptor, 32, 0)
        total = int(said) if self._counted and said.isdigit() else self._most_bytes
        if total + need > self._most_bytes:
            total = self._make_room(need)
        if total + need > self._most_bytes:
            return False
        os.pwrite(descriptor, b"%020d" % (total + need), 0)
        return True

    def _make_room(self, need: int) -> int:
        """Counts what is there, and gives up the oldest if it is too much."""
        os.chmod(self._folder, 0o700)  # An error, where it is not ours.
        files = sorted(_files(self._folder))
        total = sum(size for _, size, _ in files)
        if total + need > self._most_bytes:
            target = int(self._most_bytes * _ENOUGH) - need
            for _, size, path in files:
                if total > target and _give_up(path):
                    total -= size
        self._counted = True
        return total


def _files(folder: str) -> Iterator[tuple[float, int, str]]:
    """When each file was last used, and the bytes it takes; holes in it take none."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == _LOCK:
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                yield status.st_mtime, status.st_blocks * 512, entry.path


def _give_up(path: str) -> bool:
    """Removes a file. It is emptied too: others have it open, and would hold the room it takes.

    What they read then comes short, which tells them.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        descriptor = -1
    try:
        os.unlink(path)
        if descriptor >= 0:
            os.ftruncate(descriptor, 0)
        return True
    except OSError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)


@contextmanager
def _locked(descriptor: int) -> Iterator[bool]:
    """Keeps other processes out; False where one of them does not let us in."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (is_ours := lock_now(descriptor)) and time.monotonic() < end:
        time.sleep(0.001)
    try:
        yield is_ours
    finally:
        if is_ours:
            unlock(descriptor)
