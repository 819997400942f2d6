"""The cache of remote files: pieces on a local disk, shared by all processes of the user.

A remote file is cut into segments, and a segment into pieces. What is kept of a segment is one
file, in which each piece has its place; it has holes where a piece is not there.

    BUSHELPC  whose it is (SHA-256)  checksum and length of each piece  pieces

A piece is written first and its checksum after it, and counts only if that is right. So a
process that is killed while it writes leaves nothing that anybody would believe.
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

# What is asked for at once: no slower to get than a few bytes, where an answer takes 20 ms.
_PIECE_BITS = 18
PIECE = 1 << _PIECE_BITS
_MAGIC = b"BUSHELPC"
_ENTRY = struct.Struct("<II")
_PAGE = 4096
# A segment is what is given up at once, and what a descriptor is open for. Its size is in its
# name, so it should be the same whatever the limit is: from 1 GB to 16 GB, 64 MiB.
_SEGMENT = 1 << 26
_FEWEST_SEGMENTS = 16
_MOST_SEGMENTS = 256
_TOUCH_SECONDS = 60.0


class GoneError(Exception):
    """What was kept is not there any more."""


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
        """Where pieces of a file are kept, or None for a file that does not fit.

        Files that do not fit together are not kept in turns, which would help nobody: those
        that came first are kept, and of the others only the bytes that are wanted are read.
        """
        with self._lock:
            others = sum(self._sizes.values()) - self._sizes.get(path, 0)
            if not size or others + size > self.most_bytes:
                return None
            self._sizes[path] = size
        return CachedFile(self, path, stamp, size)


def cache_here() -> Cache | None:
    """The cache that the environment asks for: BUSHEL_CACHE, and BUSHEL_CACHE_BYTES of it."""
    most_bytes = cache_bytes()
    return None if most_bytes < PIECE else _cache_of(kept_folder("remote"), most_bytes)


@lru_cache
def _cache_of(folder: str, most_bytes: int) -> Cache:
    return Cache(folder, most_bytes)


# Another thread may have held a lock in it when this process was forked.
os.register_at_fork(after_in_child=_cache_of.cache_clear)


class CachedFile:
    """The pieces of one file that are in the cache. Any thread may ask.

    It looks at each segment once. When one of them is gone it says so, and from then on it is
    of no use: whoever has it makes another.
    """

    def __init__(self, cache: Cache, path: str, stamp: str, size: int) -> None:
        self._cache, self._size = cache, size
        self._segment_bytes = cache.segment_bytes
        self._whose = f"1\n{path}\n{stamp}\n{size}\n{self._segment_bytes}"
        self._lock = threading.Lock()
        self._segments: dict[int, _Segment] = {}
        # Their descriptors and beginnings once more: `read` is called for every record.
        self._shift = self._segment_bytes.bit_length() - 1
        self._places = [(-1, 0)] * (-(-size // self._segment_bytes))
        # Pieces of which this process knows that they are there and right. After the last one
        # nothing is missing: an empty range may begin there.
        self._ready: npt.NDArray[np.bool_] = np.zeros(-(-size // PIECE) + 1, dtype=np.bool_)
        self._ready[-1] = True
        self._touched = time.monotonic()

    @property
    def folder(self) -> str:
        """Where pieces are kept."""
        return self._cache.folder

    def missing(self, starts: Keys, stops: Keys) -> list[int]:
        """The pieces that these ranges need, and that are not kept."""
        first = starts >> _PIECE_BITS
        last = np.maximum(first, (stops - 1) >> _PIECE_BITS)
        longest = int((last - first).max())
        if longest <= 1 and self._ready[first].all() and self._ready[last].all():
            return []
        every = [np.minimum(first + further, last) for further in range(longest + 1)]
        wanted = np.unique(np.concatenate(every))
        return [piece for piece in wanted[~self._ready[wanted]].tolist() if not self._find(piece)]

    def read(self, start: int, stop: int) -> bytes:
        """Reads bytes of pieces of which none is missing."""
        length = stop - start
        if not length:
            return b""  # Perhaps of the end of the file, where no segment is.
        descriptor, begin = self._places[start >> self._shift]
        data = os.pread(descriptor, length, start - begin)
        if len(data) < length:
            # A range that ends in the next segment comes short too: this one ends before.
            end = (start // self._segment_bytes + 1) * self._segment_bytes
            if stop <= end:
                raise GoneError
            return self.read(start, end) + self.read(end, stop)
        return data

    def put(self, piece: int, data: bytes | memoryview) -> bool:
        """Keeps a piece; False where there is no room for it, an OSError if the disk has one."""
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
        """Writes a piece into the file of its segment, and says which file that was."""
        status = os.fstat(descriptor)
        header = _MAGIC + self._digest(number)
        if not status.st_size:
            _write(descriptor, header, 0)
        elif os.pread(descriptor, len(header), 0) != header:
            # Damaged, and then nobody shall write to it: to those who have it open, a hole in it
            # would look like bytes.
            os.unlink(self._path(number))
            os.ftruncate(descriptor, 0)
            raise GoneError
        _write(descriptor, data, self._data + place)
        entry = _ENTRY.pack(zlib.crc32(data), len(data))
        _write(descriptor, entry, len(header) + place // PIECE * _ENTRY.size)
        return status.st_dev, status.st_ino

    def touch(self) -> None:
        """Says now and then that the segments are still in use."""
        now = time.monotonic()
        if now - self._touched > _TOUCH_SECONDS:
            self._touched = now
            for segment in list(self._segments.values()):
                segment.touch()

    def _find(self, piece: int) -> bool:
        """Looks for a piece on the disk, where another process may have put it."""
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
        """Where the pieces begin in the file of a segment."""
        header = len(_MAGIC) + 32 + self._segment_bytes // PIECE * _ENTRY.size
        # After a hole, and aligned: the system then keeps a piece in memory as a whole.
        return -(-header // PIECE) * PIECE


class _Segment:
    """The file of a segment, open for reading."""

    def __init__(self, path: str, begin: int) -> None:
        # The byte of the remote file that the first byte of this one would be.
        self.begin = begin
        self.descriptor = -1
        self.descriptor = open_ours(path, os.O_RDONLY)
        status = os.fstat(self.descriptor)
        self.identity = status.st_dev, status.st_ino

    def belongs_to(self, digest: bytes) -> bool:
        return os.pread(self.descriptor, len(_MAGIC) + 32, 0) == _MAGIC + digest

    def has(self, start: int, stop: int, at: int) -> bool:
        """Whether a piece is there, as long as it should be, and right; its entry is `at`."""
        entry = os.pread(self.descriptor, _ENTRY.size, at)
        if len(entry) < _ENTRY.size:
            return False
        checksum, length = _ENTRY.unpack(entry)
        if length != stop - start:
            return False
        data = os.pread(self.descriptor, length, start - self.begin)
        return len(data) == length and zlib.crc32(data) == int(checksum)

    def touch(self) -> None:
        """The segments that were not used for the longest time are given up first."""
        try:
            os.utime(self.descriptor)
        except OSError:
            return  # It is gone, or the disk may only be read.

    def __del__(self) -> None:
        # (At the end of the program `os` may be gone: the system closes what is open.)
        if self.descriptor >= 0 and os is not None:
            os.close(self.descriptor)


def _write(descriptor: int, data: bytes | memoryview, at: int) -> None:
    written = os.pwrite(descriptor, data, at)
    if written < len(data):
        _write(descriptor, data[written:], at + written)
