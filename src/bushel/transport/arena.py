"""A slot of shared memory in which a batch is made before it is sent."""

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.memory_file import aligned
from bushel.transport.slots import Ring, Slot


class Arena:
    """Hands out the memory of one slot, piece by piece.

    The slot is taken when the first array is allocated: while elements are read and transformed,
    the receiver may release a slot that is still in the cache.
    """

    def __init__(self, ring: Ring, size: int) -> None:
        self.slot: Slot | None = None
        self.used = 0
        self._ring, self._size = ring, size
        self._lock = threading.Lock()

    def allocate(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> npt.NDArray[Any]:
        """Makes an array without values: in the slot if it fits, or in ordinary memory."""
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            slot = self.slot
            if slot is None:
                slot = self.slot = self._ring.take(self._size)
            start = self.used
            if start + size > slot.size:
                return np.empty(shape, dtype=dtype)
            self.used = aligned(start + size)
        piece = slot.memory[start : start + size]
        return piece.view(dtype).reshape(shape)

    def give_back(self) -> None:
        """Returns the slot, unsent."""
        slot, self.slot = self.slot, None
        if slot is not None:
            self._ring.give_back(slot.number)
