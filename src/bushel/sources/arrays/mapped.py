"""Memory maps of files, whose pages are read when they are used."""

import mmap
import os
import stat
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from bushel.core.limits import refusal
from bushel.core.machine import descriptors_to_keep
from bushel.core.per_process import PerProcess
from bushel.errors import FileError, MissingFileError, replaced_file
from bushel.files.copies import local_path, stamp_here
from bushel.files.local import check_same, written_to


class MappedFile:
    """A mapped file: every byte is an entry of `bytes`, without a copy.

    It is read-only. Other processes that map the same file share its memory. A remote file is
    copied first.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._local = local_path(path)
        self.bytes, self._map, self._status = _mapped(self._local)

    @property
    def stamp(self) -> str:
        """A text that changes when the file changes."""
        return stamp_here(self.path, self._local, self._status)

    def check(self) -> None:
        """Raises if the file was written to: access beyond its end would crash the process.

        A new file under its name does not matter.
        """
        if self._map is not None and self._map.size() < len(self.bytes):
            raise written_to(self.path, len(self.bytes), self._map.size())
        check_unchanged(self._local, self._status)


def check_unchanged(path: str, before: os.stat_result) -> None:
    """Raises if a file is still the same one, and was written to."""
    try:
        now = os.stat(path)
    except OSError:
        return  # It was removed; its bytes exist as long as it is open.
    if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino):
        check_same(path, before, now)


def _mapped(path: str) -> tuple[npt.NDArray[np.uint8], mmap.mmap | None, os.stat_result]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {path!r}.") from None
    except OSError as error:
        raise FileError(f"{path!r} cannot be read: {refusal(error, path)}.") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise FileError(f"{path!r} is {what}, and a file was expected.")
        if not status.st_size:  # An empty file cannot be mapped.
            return np.empty(0, dtype=np.uint8), None, status
        mapped = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype=np.uint8), mapped, status
    finally:
        os.close(descriptor)


class MappedFiles(PerProcess[str, MappedFile]):
    """The files of a source, each mapped at its first read, in each process anew.

    A file that has changed since its first read is an error.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"hello")
    ...     file.flush()
    ...     MappedFiles([file.name]).get(file.name).bytes[1:3].tobytes()
    b'el'
    """

    def __init__(self, paths: Iterable[str]) -> None:
        # A mapping keeps a descriptor. It ends with the last array on it.
        super().__init__(most=descriptors_to_keep())
        self._stamps: dict[str, str | None] = dict.fromkeys(paths)

    @property
    def paths(self) -> list[str]:
        """The files, each once."""
        return list(self._stamps)

    def _make(self, key: str) -> MappedFile:
        file = MappedFile(key)
        before = self._stamps[key]
        if before is not None and file.stamp != before:
            raise replaced_file(key)
        self._stamps[key] = file.stamp
        return file
