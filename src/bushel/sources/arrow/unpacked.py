"""The cache of decoded row groups on disk, memory-mapped.

The files are in bushel's cache folder, where all processes of a user find them, as files of pieces
(`files/container.py`). A process verifies all of a part when it first opens it: ten times as fast
as decoding it. The files may be removed at any time: a file that is in use remains readable.
"""

import hashlib
import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from bushel.core.machine import boot_id
from bushel.errors import FileError
from bushel.files.container import MAGIC, DamagedError, PieceReader, PieceWriter
from bushel.files.evict import FolderLimit
from bushel.files.private import kept_folder, open_ours, warn_once
from bushel.files.whole import written_whole
from bushel.sources.arrow.package import arrow

_ENDING = ".unpacked"
_FOLDER = "parts"
# Files that were unused for so long make room for others.
_STALE_SECONDS = 3600.0
# The share of the disk that is left to other programs.
_LEAVE_FREE = 0.1
# Columns begin at boundaries that suit vector instructions.
_ALIGNMENT = 64
_PIECE = 1 << 20

# Files whose bytes this process has verified: device, number, size. They are written once.
_checked: set[tuple[int, int, int]] = set()
_MOST_CHECKED = 1 << 16


class UnpackedPart(NamedTuple):
    """The record batches of a part, and the file that has them."""

    batches: list[Any]
    mapped: mmap.mmap


class Unpacked:
    """The parts of some files, in bushel's cache folder.

    Args: of: a text for the origin of the parts, with everything that they depend on. most_bytes:
    the limit of the folder, over all origins.
    """

    def __init__(self, of: str, most_bytes: int) -> None:
        # Files written shortly before a power cut may be incomplete; none are used after a restart
        # of the machine.
        self._name = hashlib.sha256(f"2\n{of}\n{boot_id()}".encode()).hexdigest()[:32]
        self._most_bytes = most_bytes

    def open(self, number: int) -> UnpackedPart | None:
        """The record batches of a part, if it is there."""
        if not self._most_bytes:
            return None
        path = self._path(number)
        try:
            descriptor = open_ours(path, os.O_RDONLY)
            try:
                os.utime(descriptor)
                whole = _arrow_bytes(descriptor)
            finally:
                os.close(descriptor)
            reader = arrow().ipc.open_file(arrow().py_buffer(whole))
            batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
            return UnpackedPart(batches, whole.obj)  # type: ignore[arg-type]
        except DamagedError as error:
            warn_once(f"The unpacked part {path!r} is damaged {error}, and made again.")
            with suppress(OSError):
                os.unlink(path)
        except FileError as error:
            warn_once(f"Parts of tables are decoded again: {error}")
        except (OSError, ValueError):
            pass
        return None

    def keep(
        self, number: int, schema: Any, tables: Iterable[Any], size: int
    ) -> UnpackedPart | None:
        """Writes a part of about `size` bytes if there is room, and returns its batches."""
        limit = FolderLimit(
            kept_folder(_FOLDER),
            self._most_bytes,
            in_use_seconds=_STALE_SECONDS,
            leave_free=_LEAVE_FREE,
        )
        try:
            if not limit.reserve(size):
                return None
            # Parts from before a restart of the machine are never used, so none need to be synced.
            with written_whole(self._path(number), mode=0o600, lasting=False) as out:
                pieces = PieceWriter(out.write)
                pieces.add(1, bytes(_ALIGNMENT - len(MAGIC)))
                cut = _Cut(pieces)
                with arrow().ipc.new_file(arrow().PythonFile(cut, "w"), schema) as writer:
                    for table in tables:
                        writer.write(table)
                cut.end()
                pieces.finish({})
        except FileError as error:
            warn_once(f"Parts of tables are not kept: {error}")
            return None
        except (OSError, arrow().ArrowException):
            return None  # The disk is full, or a type cannot be written.
        return self.open(number)

    def _path(self, number: int) -> str:
        return os.path.join(kept_folder(_FOLDER), f"{self._name}-{number}{_ENDING}")


class _Cut:
    """A file to write to, which cuts its input into pieces."""

    closed = False

    def __init__(self, pieces: PieceWriter) -> None:
        self._pieces = pieces
        self._waiting = bytearray()

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if not self._waiting and size >= _PIECE:
            self._pieces.add(1, data)
            return size
        self._waiting += data
        if len(self._waiting) >= _PIECE:
            self.end()
        return size

    def end(self) -> None:
        if self._waiting:
            self._pieces.add(1, self._waiting)
            self._waiting = bytearray()

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _arrow_bytes(descriptor: int) -> memoryview:
    """The bytes of an Arrow file within a mapped file of pieces, verified."""
    status = os.fstat(descriptor)
    mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    pieces = PieceReader(lambda start, stop: mapped[start:stop], len(mapped))
    identity = status.st_dev, status.st_ino, status.st_size
    if identity not in _checked:
        for number in range(len(pieces)):
            pieces.read(number)
        if len(_checked) >= _MOST_CHECKED:
            _checked.clear()
        _checked.add(identity)
    return mapped[_ALIGNMENT : pieces.offsets[-1]]
