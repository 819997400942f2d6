"""Columns of 64-bit integers in a file of pieces: mapped, and verified when they are read.

Opening takes no time however long the file is, and processes share its memory. A piece is verified
when this process first reads a number in it.
"""

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.per_process import ProcessLock
from bushel.files.container import MAGIC, DamagedError, ForeignError, PieceReader, PieceWriter

Numbers: TypeAlias = npt.NDArray[np.int64]

# A piece has a megabyte, which is verified in half a millisecond.
_BITS = 17
# Shorter columns are not mapped, as the mappings of a process are limited, and sources have files
# by the thousand.
_WORTH_A_MAP = 1 << 16
assert not len(MAGIC) % 8, "numbers lie at multiples of eight, or are slow"


def write_numbers(
    write: Callable[[Any], object], footer: dict[str, Any], columns: Mapping[str, Numbers]
) -> None:
    """Writes columns, with further data about them."""
    writer = PieceWriter(write)
    for column in columns.values():
        for start in range(0, len(column), 1 << _BITS):
            some = column[start : start + (1 << _BITS)]
            writer.add(len(some), np.ascontiguousarray(some, dtype="<i8").view(np.uint8).data)
    counts = {name: len(column) for name, column in columns.items()}
    writer.finish({**footer, "columns": counts})


def _pieces_of(count: int) -> int:
    return (count + (1 << _BITS) - 1) >> _BITS


class NumberColumn:
    """Numbers in a mapped file, read by position like those of an array.

    If a piece is damaged, `renew` returns the numbers once more; so it does if the file was
    truncated meanwhile, as reading beyond its end would crash the process.
    """

    def __init__(
        self,
        values: Numbers,
        pieces: PieceReader,
        first: int,
        mapped: mmap.mmap,
        renew: Callable[[DamagedError], Any],
    ) -> None:
        """`first` is the number of the column's first piece."""
        self._values: Any = values
        self._pieces, self._first, self._renew = pieces, first, renew
        self._mapped: mmap.mmap | None = mapped
        self._ready: npt.NDArray[np.bool_] = np.zeros(_pieces_of(len(values)), dtype=np.bool_)
        self._all_ready = False
        self._lock = ProcessLock()

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: Any) -> Any:
        mapped = self._mapped
        if mapped is not None and mapped.size() < len(mapped):
            with self._lock:
                self._replace(DamagedError(mapped.size()))
        if not self._all_ready:
            self._check(key)
        return self._values[key]

    def _replace(self, error: DamagedError) -> None:
        if self._mapped is not None:
            self._values = self._renew(error)
            self._mapped, self._all_ready = None, True

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self[:], dtype=dtype, copy=bool(copy) or None)

    def tolist(self) -> list[int]:
        return list(self[:].tolist())

    def searchsorted(self, value: Any, side: Any = "left") -> Any:
        """The positions at which values belong in a column that rises."""
        return self[:].searchsorted(value, side)

    def _check(self, key: Any) -> None:
        """Verifies the pieces that have the numbers at these positions."""
        ready, length = self._ready, len(self)
        if isinstance(key, np.ndarray) and key.dtype.kind in "iu":
            wanted = np.where(key < 0, key + length, key) >> _BITS
            # Invalid positions are left to the code that reads there.
            missing = np.unique(wanted[~ready.take(wanted, mode="clip")]).tolist()
        elif isinstance(key, slice):
            places = range(length)[key]
            ends = (places[0], places[-1]) if places else (0, -1)
            missing = range(min(ends) >> _BITS, (max(ends) >> _BITS) + 1)
        else:
            missing = [(key + length if key < 0 else key) >> _BITS]
        for piece in missing:
            if piece < len(ready) and not ready[piece]:
                self._look_at(piece)

    def _look_at(self, piece: int) -> None:
        with self._lock:
            if self._all_ready:
                return
            numbers = self._values[piece << _BITS : (piece + 1) << _BITS]
            try:
                self._pieces.check(self._first + piece, numbers.view(np.uint8).data)
            except DamagedError as error:
                self._replace(error)
            self._ready[piece] = True
            self._all_ready = self._all_ready or bool(self._ready.all())


def read_numbers(
    descriptor: int, names: Sequence[str], renew: Callable[[str, DamagedError], Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data about columns, and the columns; raises ForeignError or DamagedError.

    Short ones are read and verified at once, long ones are mapped.
    """
    size = os.fstat(descriptor).st_size
    data: bytes | mmap.mmap
    if size < _WORTH_A_MAP:
        data = os.pread(descriptor, size, 0)
    else:
        data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    pieces = PieceReader(lambda start, stop: data[start:stop], len(data))
    counts = pieces.footer.pop("columns", None)
    whole = isinstance(counts, dict) and all(
        type(count) is int and 0 <= count < 1 << 60 for count in counts.values()
    )
    if not whole or list(counts) != list(names):
        raise ForeignError("other columns")
    firsts = list(accumulate((_pieces_of(count) for count in counts.values()), initial=0))
    starts = list(accumulate((8 * count for count in counts.values()), initial=len(MAGIC)))
    if len(pieces) != firsts[-1] or pieces.offsets[-1] != starts[-1]:
        raise DamagedError(len(MAGIC))
    columns: dict[str, Any] = {}
    for name, first, last, start in zip(names, firsts, firsts[1:], starts, strict=False):
        expected = range(start, start + 8 * counts[name], 8 << _BITS)
        if pieces.offsets[first:last] != list(expected):
            raise DamagedError(start)
        read = np.frombuffer(data, dtype="<i8", count=counts[name], offset=start)
        values = np.require(read, np.int64, "A")
        if isinstance(data, bytes):
            for number in range(first, last):
                pieces.read(number)
        columns[name] = values
        if isinstance(data, mmap.mmap) and last > first:
            columns[name] = NumberColumn(values, pieces, first, data, partial(renew, name))
    return pieces.footer, columns
