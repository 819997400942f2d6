"""The format of files of checksummed pieces: indexes, positions, cached streams, parts of tables.

    BUSHELC1  piece  piece  ...  footer (JSON)  length and checksum of the footer  BUSHELCE

Pieces follow one another. The footer has the beginning, the count and the checksum of each piece,
and further data about them. It is last, so that a file is written from its beginning to its end,
and a truncated file has none.
"""

import json
import struct
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

MAGIC, _END = b"BUSHELC1", b"BUSHELCE"
_TAIL = struct.Struct("<QL8s")
_BLOCKS = "blocks"

# Reads the bytes of a file from one place up to another.
Read: TypeAlias = Callable[[int, int], "bytes | memoryview"]
Data: TypeAlias = "bytes | memoryview"


class ForeignError(ValueError):
    """The file is not a file of pieces."""


class DamagedError(ValueError):
    """Bytes have changed since they were written; says from which byte on."""

    def __init__(self, start: int) -> None:
        super().__init__(f"from byte {start:,} on")


class PieceReader:
    """The pieces of a file, and the footer.

    Raises a ForeignError, or a DamagedError, here and where a piece is read.
    """

    def __init__(self, read: Read, size: int) -> None:
        if size < len(MAGIC) or read(0, len(MAGIC)) != MAGIC:
            raise ForeignError("no file of pieces")
        if size < len(MAGIC) + _TAIL.size:
            raise DamagedError(size)
        self._read = read
        length, check, end = _TAIL.unpack(read(size - _TAIL.size, size))
        start = size - _TAIL.size - length
        if end != _END or start < len(MAGIC):
            raise DamagedError(size - _TAIL.size)
        written = read(start, start + length)
        if zlib.crc32(written) != check:
            raise DamagedError(start)
        try:
            self.footer: dict[str, Any] = json.loads(bytes(written))
            blocks = [_checked(*block) for block in self.footer.pop(_BLOCKS)]
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise DamagedError(start) from None
        self.offsets = [offset for offset, _, _ in blocks] + [start]
        self.counts = [count for _, count, _ in blocks]
        self.checks = [check for _, _, check in blocks]
        if any(stop < begin for begin, stop in pairwise([len(MAGIC), *self.offsets])):
            raise DamagedError(start)

    def __len__(self) -> int:
        return len(self.counts)

    def read(self, number: int) -> Data:
        """The bytes of a piece, verified."""
        data = self._read(self.offsets[number], self.offsets[number + 1])
        self.check(number, data)
        return data

    def check(self, number: int, data: Any) -> None:
        if zlib.crc32(data) != self.checks[number]:
            raise DamagedError(self.offsets[number])


def _checked(offset: Any, count: Any, check: Any) -> tuple[int, int, int]:
    if type(offset) is not int or type(count) is not int or type(check) is not int or count <= 0:
        raise ValueError(f"no piece begins at {offset!r} that has {count!r} things")
    return offset, count, check


class PieceWriter:
    """Writes a file of pieces, from its beginning to its end, by calls of a function."""

    def __init__(self, write: Callable[[Any], object]) -> None:
        self._write = write
        self._blocks: list[tuple[int, int, int]] = []
        self.written = 0
        self._put(MAGIC)

    def add(self, count: int, data: Any) -> None:
        """Writes a piece with `count` things."""
        self._blocks.append((self.written, count, zlib.crc32(data)))
        self._put(data)

    def finish(self, footer: dict[str, Any]) -> None:
        text = json.dumps({**footer, _BLOCKS: self._blocks}).encode()
        self._put(text + _TAIL.pack(len(text), zlib.crc32(text), _END))

    def _put(self, data: Any) -> None:
        self.written += memoryview(data).nbytes
        self._write(data)
