"""Where the arrays of a batch are allocated: in a worker's shared memory, or aligned for devices.

A worker process sends batches through shared memory. With `made_in` they are made there, which
saves a copy.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from bushel.core.landing import Landing

Make: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]


class _Room(threading.local):
    """State of one thread: several threads of a worker may make a batch each."""

    make: Make | None = None
    # The `Landing` that copies elements into batches as they are made; `stack` looks there.
    landing: "Landing | None" = None
    landed: "Landing | None" = None


# Read by `stack` and `Columns.gather`, which run once for each array of a batch.
room = _Room()


@contextmanager
def made_in(allocate: Make) -> Iterator[None]:
    """Makes `allocate` allocate the arrays of batches within the `with` block.

    >>> import bushel.core.stack
    >>> made = []
    >>> with made_in(lambda shape, dtype: made.append(shape) or np.empty(shape, dtype)):
    ...     bushel.core.stack.stack([np.array([1, 2]), np.array([3, 4])]).tolist(), made
    ([[1, 2], [3, 4]], [(4,)])
    """
    before, room.make = room.make, allocate
    try:
        yield
    finally:
        room.make = before


# The alignment at which XLA on the CPU uses an array without copying it.
_ALIGNMENT = 64
# For smaller arrays, a copy costs less than the search for a place.
_LARGE = 1 << 14


def align_batches() -> None:
    """Makes the arrays of batches, in all threads, begin at addresses that a device can use."""
    _Room.make = staticmethod(aligned_empty)


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Makes an array without values that begins at a multiple of 64 bytes.

    >>> aligned_empty((1000, 3), np.dtype(np.float64)).ctypes.data % 64
    0
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE:
        return np.empty(shape, dtype)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
