"""The cache of remote files: pieces on a local disk, shared by all processes of the user.

A remote file is divided into segments, and a segment into pieces. The cache has one file for each
segment, in which each piece has its place; missing pieces are holes.

    BUSHELPC  whose it is (SHA-256)  checksum and length of each piece  pieces

A piece is written first and its checksum after it, and is valid only if that is right. So a process
that is killed while it writes leaves nothing that would be trusted.
"""

import hashlib
import os
import struct
import threading
import time
import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys
from bushel.files.evict import FolderLimit
from bushel.files.private import cache_bytes, kept_folder, open_ours

# The unit of requests: it takes no longer than a few bytes if the latency is 20 ms.
_PIECE_BITS = 18
PIECE = 1 << _PIECE_BITS
_MAGIC = b"BUSHELPC"
_ENTRY = struct.Struct("<II")
_PAGE = 4096
# A segment is the unit of removal, and takes one descriptor. Its size is part of its name, so it
# should not depend on the limit: between 1 GB and 16 GB, it is 64 MiB.
_SEGMENT = 1 << 26
_FEWEST_SEGMENTS = 16
_MOST_SEGMENTS = 256
_TOUCH_SECONDS = 60.0


class GoneError(Exception):
    """A segment was removed meanwhile."""


class Cache:
    """A folder for pieces that never takes more than `most_bytes` of the disk."""

    def __init__(self, folder: str, most_bytes: int) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        wanted = max(min(_SEGMENT, most_bytes // _FEWEST_SEGMENTS), most_bytes // _MOST_SEGMENTS)
        self.segment_bytes = PIECE << (max(1, wanted // PIECE).bit_length() - 1)
        self.limit = FolderLimit(folder, most_bytes)
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()

    def keep(self, path: str, stamp: str, size: int) -> "CachedFile | None":
        """The cached pieces of a file, or None for a file that does not fit.

        Files that do not fit together do not take turns, which would help none of them: the first
        ones are stored, and of the others only the needed bytes are read.
        """
        with self._lock:
            others = sum(self._sizes.values()) - self._sizes.get(path, 0)
            if not size or others + size > self.most_bytes:
                return None
            self._sizes[path] = size
        return CachedFile(self, path, stamp, size)


def cache_here() -> Cache | None:
    """The cache according to the environment: BUSHEL_CACHE, and BUSHEL_CACHE_BYTES as its limit."""
    most_bytes = cache_bytes()
    return None if most_bytes < PIECE else _cache_of(kept_folder("remote"), most_bytes)


@lru_cache
def _cache_of(folder: str, most_bytes: int) -> Cache:
    return Cache(folder, most_bytes)


# Another thread may have held a lock in it when this process was forked.
os.register_at_fork(after_in_child=_cache_of.cache_clear)


class CachedFile:
    """The cached pieces of one file. Any thread may use it.

    It examines each segment once. When a segment is gone, it raises GoneError and must be replaced.
    """

    def __init__(self, cache: Cache, path: str, stamp: str, size: int) -> None:
        self._cache, self._size = cache, size
        self._segment_bytes = cache.segment_bytes
        self._whose = f"1\n{path}\n{stamp}\n{size}\n{self._segment_bytes}"
        self._lock = threading.Lock()
        self._segments: dict[int, _Segment] = {}
        # Redundant, but `read` is called for every record: the descriptors and beginnings of
        # segments.
        self._shift = self._segment_bytes.bit_length() - 1
        self._places = [(-1, 0)] * (-(-size // self._segment_bytes))
        # Pieces that this process knows to be present and right. The entry after the last piece is
        # True, as an empty range may begin there.
        self._ready: npt.NDArray[np.bool_] = np.zeros(-(-size // PIECE) + 1, dtype=np.bool_)
        self._ready[-1] = True
        self._touched = time.monotonic()

    @property
    def folder(self) -> str:
        """The folder of its segments."""
        return self._cache.folder

    def missing(self, starts: Keys, stops: Keys) -> list[int]:
        """The missing pieces of these ranges."""
        first = starts >> _PIECE_BITS
        last = np.maximum(first, (stops - 1) >> _PIECE_BITS)
        longest = int((last - first).max())
        if longest <= 1 and self._ready[first].all() and self._ready[last].all():
            return []
        every = [np.minimum(first + further, last) for further in range(longest + 1)]
        wanted = np.unique(np.concatenate(every))
        return [piece for piece in wanted[~self._ready[wanted]].tolist() if not self._find(piece)]

    def read(self, start: int, stop: int) -> bytes:
        """Reads bytes of which no piece is missing."""
        length = stop - start
        if not length:
            return b""  # It may be at the end of the file, where there is no segment.
        descriptor, begin = self._places[start >> self._shift]
        data = os.pread(descriptor, length, start - begin)
        if len(data) < length:
            # A range that ends in the next segment is incomplete, too: this segment ends before.
            end = (start // self._segment_bytes + 1) * self._segment_bytes
            if stop <= end:
                raise GoneError
            return self.read(start, end) + self.read(end, stop)
        return data

    def put(self, piece: int, data: bytes | memoryview) -> bool:
        """Stores a piece; False if there is no room for it, an OSError if the disk fails."""
        number, place = divmod(piece * PIECE, self._segment_bytes)
        with self._lock, self._cache.limit.room(PIECE + 2 * _PAGE) as room:
            if not room:
                return False
            descriptor = open_ours(self._path(number), os.O_RDWR | os.O_CREAT)
            try:
                identity = self._write(descriptor, number, place, data)
            finally:
                os.close(descriptor)
            segment = self._segments.get(number) or self._open(number)
            if segment is None or segment.identity != identity:
                raise GoneError
            self._ready[piece] = True
        return True

    def _write(
        self, descriptor: int, number: int, place: int, data: bytes | memoryview
    ) -> tuple[int, int]:
        """Writes a piece into the file of its segment, and returns its path."""
        status = os.fstat(descriptor)
        header = _MAGIC + self._digest(number)
        if not status.st_size:
            _write(descriptor, header, 0)
        elif os.pread(descriptor, len(header), 0) != header:
            # It is damaged, and then must not be written to: processes that have it open would take
            # a hole for data.
            os.unlink(self._path(number))
            os.ftruncate(descriptor, 0)
            raise GoneError
        _write(descriptor, data, self._data + place)
        entry = _ENTRY.pack(zlib.crc32(data), len(data))
        _write(descriptor, entry, len(header) + place // PIECE * _ENTRY.size)
        return status.st_dev, status.st_ino

    def touch(self) -> None:
        """Marks the segments as used, now and then."""
        now = time.monotonic()
        if now - self._touched > _TOUCH_SECONDS:
            self._touched = now
            for segment in list(self._segments.values()):
                segment.touch()

    def _find(self, piece: int) -> bool:
        """Looks for a piece on the disk, where another process may have stored it."""
        number, place = divmod(piece * PIECE, self._segment_bytes)
        with self._lock:
            segment = self._segments.get(number) or self._open(number)
            if segment is None:
                return False
            start = piece * PIECE
            entry = len(_MAGIC) + 32 + place // PIECE * _ENTRY.size
            if segment.has(start, min(start + PIECE, self._size), entry):
                self._ready[piece] = True
            return bool(self._ready[piece])

    def _open(self, number: int) -> "_Segment | None":
        try:
            segment = _Segment(self._path(number), number * self._segment_bytes - self._data)
        except OSError:
            return None
        if not segment.belongs_to(self._digest(number)):
            return None
        segment.touch()
        self._segments[number] = segment
        self._places[number] = segment.descriptor, segment.begin
        return segment

    def _digest(self, number: int) -> bytes:
        return hashlib.sha256(f"{self._whose}\n{number}".encode()).digest()

    def _path(self, number: int) -> str:
        return os.path.join(self._cache.folder, self._digest(number).hex())

    @property
    def _data(self) -> int:
        """The place of the first piece in the file of a segment."""
        header = len(_MAGIC) + 32 + self._segment_bytes // PIECE * _ENTRY.size
        # After a hole, and aligned: the system then caches a piece as a whole.
        return -(-header // PIECE) * PIECE


class _Segment:
    """The file of a segment, open for reading."""

    def __init__(self, path: str, begin: int) -> None:
        # The byte of the remote file at which the segment would begin if the header were part of
        # it.
        self.begin = begin
        self.descriptor = -1
        self.descriptor = open_ours(path, os.O_RDONLY)
        status = os.fstat(self.descriptor)
        self.identity = status.st_dev, status.st_ino

    def belongs_to(self, digest: bytes) -> bool:
        return os.pread(self.descriptor, len(_MAGIC) + 32, 0) == _MAGIC + digest

    def has(self, start: int, stop: int, at: int) -> bool:
        """Whether a piece is present, complete and right; its entry is `at`."""
        entry = os.pread(self.descriptor, _ENTRY.size, at)
        if len(entry) < _ENTRY.size:
            return False
        checksum, length = _ENTRY.unpack(entry)
        if length != stop - start:
            return False
        data = os.pread(self.descriptor, length, start - self.begin)
        return len(data) == length and zlib.crc32(data) == int(checksum)

    def touch(self) -> None:
        """Marks the segment as used: those unused for the longest time are removed first."""
        try:
            os.utime(self.descriptor)
        except OSError:
            return  # It was removed, or the disk is read-only.

    def __del__(self) -> None:
        # (At the end of the program `os` may be gone: the system closes open files.)
        if self.descriptor >= 0 and os is not None:
            os.close(self.descriptor)


def _write(descriptor: int, data: bytes | memoryview, at: int) -> None:
    written = os.pwrite(descriptor, data, at)
    if written < len(data):
        _write(descriptor, data[written:], at + written)
