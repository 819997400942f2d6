"""Columns in Arrow's memory, of which numpy reads some rows without copying the rest.

The arrays of a column may be in several record batches. If those are in one stretch of memory, as
the batches of a mapped file are, a row is found by arithmetic in the whole stretch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys


class Rows:
    """Rows of arrays: the number of the array, and the row in it; None if there is one array."""

    __slots__ = ("inner", "which")

    def __init__(self, inner: Keys, which: Keys | None) -> None:
        self.inner, self.which = inner, which

    def __len__(self) -> int:
        return len(self.inner)

    def of(self, starts: Keys) -> Any:
        """The entry of `each` for the array of each row."""
        return starts[0] if self.which is None else starts.take(self.which)


def stretch_of(batches: Sequence[Any]) -> Any:
    """The memory that has all bytes of some batches, as a buffer; None if there are several."""
    stretch = None
    for batch in batches:
        for column in batch.columns:
            for buffer in column.buffers():
                if buffer is None or not buffer.size:
                    continue
                if stretch is None:
                    stretch = _whole(buffer)
                if not stretch.address <= buffer.address < stretch.address + stretch.size:
                    return None
    return stretch


def _whole(buffer: Any) -> Any:
    """The buffer from which a buffer was cut."""
    while buffer.parent is not None:
        buffer = buffer.parent
    return buffer


class Memory:
    """One of the buffers of some arrays, as values of a type; and where those of each begin."""

    __slots__ = ("starts", "values")

    def __init__(self, values: npt.NDArray[Any], starts: Keys) -> None:
        self.values, self.starts = values, starts


def memory_of(
    arrays: Sequence[Any], number: int, dtype: Any, stretch: Any, counts_offset: bool = True
) -> Memory | None:
    """Finds buffer `number` of each array; None if numpy cannot read it in place."""
    dtype = np.dtype(dtype)
    buffers = [array.buffers()[number] for array in arrays]
    offsets = [array.offset if counts_offset else 0 for array in arrays]
    if stretch is None:
        (buffer,) = buffers
        size = 0 if buffer is None else buffer.size // dtype.itemsize
        values = np.frombuffer(buffer, dtype, size) if size else np.empty(0, dtype)
        return Memory(values, np.array(offsets, np.int64))
    size = stretch.size // dtype.itemsize
    there = [stretch.address if not buffer else buffer.address for buffer in buffers]
    starts, rest = np.divmod(np.array(there, np.int64) - stretch.address, dtype.itemsize)
    if rest.any() or starts.min() < 0 or starts.max() > size:
        return None
    return Memory(np.frombuffer(stretch, dtype, size), starts + np.array(offsets, np.int64))
