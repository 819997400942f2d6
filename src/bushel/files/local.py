"""Local files: read by ranges, few open at once; the error about a file that has changed."""

import errno
import os
import stat
from itertools import pairwise
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from bushel.core.limits import refusal
from bushel.core.machine import descriptors_to_keep
from bushel.core.per_process import PerProcess
from bushel.core.positions import Keys
from bushel.errors import FileError, MissingFileError
from bushel.files.paths import is_remote

# Ranges with a smaller gap between them are read together: another call would cost as much.
_GAP = 4096
# Longer ranges are read alone: cutting a range out of a joint read takes another copy, which takes
# longer than a call.
LONG = 1 << 15
# The most bytes of a joint read, however many ranges are neighbours.
_MOST_AT_ONCE = 1 << 23


class ByteFile(Protocol):
    """A file of which any number of threads read ranges."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def stamp(self) -> str:
        """A text that changes when the file changes."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to `stop`; an error if the file ends before."""
        ...

    def read_many(self, starts: Keys, stops: Keys) -> list[bytes]:
        """The bytes of many ranges, in the order asked."""
        ...

    def check(self) -> None:
        """Raises if the file has changed since it was opened, as far as that is cheap to check."""
        ...


class Ranges(Protocol):
    """The part of a file's interface that reads ranges."""

    def read(self, start: int, stop: int) -> bytes: ...


class LocalFile:
    """A file that is open for reading; another process opens it anew."""

    _descriptor = -1  # For `close`, if opening has failed.

    def __init__(self, path: str) -> None:
        self.path = path
        self._pid, self._descriptor, self._status = _opened(path)

    @property
    def size(self) -> int:
        return self._status.st_size

    @property
    def stamp(self) -> str:
        return stamp_of(self._status)

    def read(self, start: int, stop: int) -> bytes:
        # `pread`, not a mapping: reading a truncated file is then an error, and does not crash the
        # process.
        data = os.pread(self._descriptor, stop - start, start)
        if len(data) < stop - start:
            data = self._rest_of(data, start, stop)
        return data

    def _rest_of(self, data: bytes, start: int, stop: int) -> bytes:
        while len(data) < stop - start:
            more = os.pread(self._descriptor, stop - start - len(data), start + len(data))
            if not more:
                raise FileError(
                    f"{self.path!r} ends at byte {start + len(data):,}, and bytes {start:,} to "
                    f"{stop:,} were wanted. Was it cut short, or replaced by a shorter one?"
                )
            data += more
        return data

    def read_into(self, start: int, buffer: npt.NDArray[np.uint8]) -> None:
        """Fills a buffer, which may be used again and again."""
        done = os.preadv(self._descriptor, [buffer.data], start)
        if done < len(buffer):
            buffer[done:] = np.frombuffer(self.read(start + done, start + len(buffer)), np.uint8)

    def read_many(self, starts: Keys, stops: Keys) -> list[bytes]:
        return read_merged(self, starts, stops, _GAP, _MOST_AT_ONCE, LONG)

    def check(self) -> None:
        # Of the open file: a new file under its name does not matter.
        check_same(self.path, self._status, os.fstat(self._descriptor))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0 and self._pid == os.getpid():
            os.close(descriptor)

    def __del__(self) -> None:
        # (At the end of the program `os` may be gone: the system closes open files.)
        if os is not None:
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalFile, (self.path,)


def stamp_of(status: os.stat_result) -> str:
    """A text that changes when a file changes: its size and modification time."""
    return f"{status.st_size}-{status.st_mtime_ns}"


def check_same(path: str, before: os.stat_result, now: os.stat_result) -> None:
    """Raises if a file was changed between two checks."""
    if stamp_of(before) != stamp_of(now):
        raise written_to(path, before.st_size, now.st_size)


def written_to(path: str, before: int, now: int) -> FileError:
    """The error about a file whose size or modification time has changed since it was opened."""
    return FileError(
        f"{path!r} was written to while it was being read: it had {before:,} bytes and now has "
        f"{now:,}. Make the source anew."
    )


def read_merged(
    file: Ranges, starts: Keys, stops: Keys, gap: int, most_at_once: int, long: int | None = None
) -> list[bytes]:
    """Reads ranges in the order of the file, neighbours in one call, except `long` ones."""
    order = starts.argsort(kind="stable")
    begins, ends = starts[order], stops[order]
    # A new call begins after a gap that is too wide, or if the read would be too long.
    apart = begins[1:] > np.maximum.accumulate(ends)[:-1] + gap
    if long is not None:
        is_long = ends - begins >= long
        apart |= is_long[1:] | is_long[:-1]
    breaks = np.flatnonzero(apart) + 1
    records: list[bytes] = [b""] * len(order)
    places, firsts, lasts = order.tolist(), begins.tolist(), ends.tolist()
    bounds = [0, *breaks.tolist(), len(places)]
    for first, last in pairwise(bounds):
        while first < last:
            base = firsts[first]
            upto, furthest = first + 1, lasts[first]
            while upto < last and max(furthest, lasts[upto]) - base <= most_at_once:
                furthest = max(furthest, lasts[upto])
                upto += 1
            if upto == first + 1:
                records[places[first]] = file.read(base, furthest)
            else:
                data = file.read(base, furthest)
                for index in range(first, upto):
                    records[places[index]] = data[firsts[index] - base : lasts[index] - base]
            first = upto
    return records


def _opened(path: str) -> tuple[int, int, os.stat_result]:
    # Non-blocking: opening a pipe would wait until some process writes to it.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            _make_room()
            descriptor = os.open(path, flags)
    except FileNotFoundError:
        start = "" if os.path.isabs(path) else f" (Relative paths start from {os.getcwd()!r}.)"
        raise MissingFileError(f"there is no file {path!r}.{start}") from None
    except OSError as error:
        raise FileError(f"{path!r} cannot be read: {refusal(error, path)}.") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise FileError(f"{path!r} is {what}, and a file was expected.")
    return os.getpid(), descriptor, status


class OpenFiles(PerProcess[str, ByteFile]):
    """Files of which ranges are read: each is opened at its first read, and few are open at once.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"hello")
    ...     file.flush()
    ...     OpenFiles().get(file.name).read(1, 3)
    b'el'
    """

    def __init__(self, most: int = 256) -> None:
        super().__init__(min(most, descriptors_to_keep()))

    def _begin(self) -> None:
        super()._begin()
        _every.add(self)
        # Links of all remote files that were ever open. Without them, a source of more files than
        # may be open would request the size of a file at nearly every read.
        self._backends: dict[str, Any] = {}

    def _make(self, key: str) -> ByteFile:
        if not is_remote(key):
            return LocalFile(key)
        from bushel.files.remote import RemoteFile

        file = RemoteFile(key, self._backends.get(key))
        self._backends[key] = file.backend
        return file


# The open files of all sources, whose total may exceed the limit of the process.
_every: "WeakSet[OpenFiles]" = WeakSet()


def _make_room() -> None:
    """Closes files that can be opened again."""
    for files in list(_every):
        files.let_go()


def open_file(path: str) -> ByteFile:
    """Opens a file, local or remote."""
    if is_remote(path):
        from bushel.files.remote import RemoteFile

        return RemoteFile(path)
    return LocalFile(path)
