"""Files that lie in memory as they are: read where they stand, page by page."""

import mmap
import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.errors import FileError, MissingFileError, replaced_file
from bushel.files.copies import local_path


class MappedFile:
    """A file of which every byte is an entry of `bytes`, without a copy.

    It cannot be written to. Other processes that map the same file share its memory. Of a file
    that is far away, it is a copy.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._local = local_path(path)
        self.bytes, self._map, self._status = _mapped(self._local)

    @property
    def stamp(self) -> str:
        """Something that is another when the file is."""
        if self._local != self.path:
            # Each machine has a copy of its own; its name is that of what was copied.
            return os.path.basename(self._local)
        return f"{self._status.st_size}-{self._status.st_mtime_ns}"

    def check(self) -> None:
        """Raises where the file was written to: what is beyond its end must not be touched.

        A file that was put in its place does not disturb us.
        """
        if self._map is not None and self._map.size() < len(self.bytes):
            raise written_to(self.path, len(self.bytes), self._map.size())
        check_unchanged(self._local, self._status)


def check_unchanged(path: str, before: os.stat_result) -> None:
    """Raises where a file is still the one that it was, and was written to."""
    try:
        now = os.stat(path)
    except OSError:
        return  # Removed; its bytes are there as long as somebody has it open.
    if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
        return
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise written_to(path, before.st_size, now.st_size)


def written_to(path: str, before: int, now: int) -> FileError:
    return FileError(
        f"{path!r} was written to while it was being read: it had {before:,} bytes and now has "
        f"{now:,}. Make the source anew."
    )


def _mapped(path: str) -> tuple[npt.NDArray[np.uint8], mmap.mmap | None, os.stat_result]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {path!r}.") from None
    except OSError as error:
        raise FileError(f"{path!r} cannot be read: {error.strerror}.") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise FileError(f"{path!r} is {what}, and a file was expected.")
        if not status.st_size:  # Nothing cannot be mapped.
            return np.empty(0, dtype=np.uint8), None, status
        mapped = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype=np.uint8), mapped, status
    finally:
        os.close(descriptor)


class MappedFiles:
    """The files of a source, mapped when they are first read, in each process anew.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"hello")
    ...     file.flush()
    ...     MappedFiles([file.name]).get(file.name).bytes[1:3].tobytes()
    b'el'
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._stamps: dict[str, str | None] = dict.fromkeys(paths)
        self._begin()

    @property
    def paths(self) -> list[str]:
        """The files, each once."""
        return list(self._stamps)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, MappedFile] = OrderedDict()
        # A map keeps a descriptor, and others need some too.
        self._most = max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def get(self, path: str) -> MappedFile:
        """The file of this name; an error where it is not the one that was there at first."""
        if self._pid != os.getpid():
            self._begin()  # Forked, perhaps while another thread held the lock.
        with self._lock:
            file = self._opened.get(path)
            if file is not None:
                self._opened.move_to_end(path)
                return file
            # Mapping takes no longer than asking who does it; and a copy is made once.
            file = MappedFile(path)
            before = self._stamps[path]
            if before is not None and file.stamp != before:
                raise replaced_file(path)
            self._stamps[path] = file.stamp
            self._opened[path] = file
            while len(self._opened) > self._most:
                # Unmapped when the last array on it is gone.
                self._opened.popitem(last=False)
        return file

    def __getstate__(self) -> dict[str, Any]:
        return {"_stamps": self._stamps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()
