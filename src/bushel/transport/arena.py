"""Room in a slot, in which a batch is made where it will be sent from."""

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.memory_file import aligned
from bushel.transport.slots import Slot


class Arena:
    """Hands out the memory of one slot, piece by piece."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.used = 0
        self._lock = threading.Lock()

    def allocate(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> npt.NDArray[Any]:
        """Makes an array without values: in the slot if it fits, or anywhere."""
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            start = self.used
            if start + size > self.slot.size:
                return np.empty(shape, dtype=dtype)
            self.used = aligned(start + size)
        piece = self.slot.memory[start : start + size]
        return piece.view(dtype).reshape(shape)
