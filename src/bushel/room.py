"""Where the arrays of a batch are made: anywhere, unless a worker says otherwise.

A worker process sends batches through shared memory. It has them made there, by `made_in`,
and so saves a copy.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Make: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]


class _Room(threading.local):
    """Of this thread: several of a worker's may make a batch each."""

    make: Make | None = None


# Read by `stack` and `Columns.gather`, which run once for each array of a batch.
room = _Room()


@contextmanager
def made_in(allocate: Make) -> Iterator[None]:
    """Has the arrays of batches made by `allocate` meanwhile.

    >>> import bushel.stack
    >>> made = []
    >>> with made_in(lambda shape, dtype: made.append(shape) or np.empty(shape, dtype)):
    ...     bushel.stack.stack([np.array([1, 2]), np.array([3, 4])]).tolist(), made
    ([[1, 2], [3, 4]], [(4,)])
    """
    before, room.make = room.make, allocate
    try:
        yield
    finally:
        room.make = before
