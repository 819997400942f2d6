"""Reuses memory for batches from other nodes, since fresh pages cost as much as a copy."""

import weakref
from collections import deque
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]

_STEP = 1 << 16
# The most bytes of free memory; more is released.
_MOST_FREE_BYTES = 1 << 28


class WarmMemory:
    """Arrays of bytes; one is reused when nothing refers to it or to a view of it any more."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        # Finalizers append to it, in any thread.
        self._came_back: deque[bytearray] = deque()

    def take(self, size: int) -> Bytes:
        """An array of so many bytes, with arbitrary content.

        >>> warm = WarmMemory()
        >>> first = warm.take(100_000)
        >>> address = first.ctypes.data
        >>> del first
        >>> warm.take(90_000).ctypes.data == address
        True
        """
        while self._came_back:
            self._free.append(self._came_back.popleft())
        fitting = [memory for memory in self._free if size <= len(memory) <= 4 * size + _STEP]
        if fitting:
            memory = min(fitting, key=len)
            # By identity, as comparing bytes would read them all.
            self._free = [other for other in self._free if other is not memory]
        else:
            memory = bytearray(max(_STEP, -(-size // _STEP) * _STEP))
            while sum(map(len, self._free)) > _MOST_FREE_BYTES:
                self._free.pop(0)
        array = np.frombuffer(memory, dtype=np.uint8, count=size)
        weakref.finalize(array, self._came_back.append, memory).atexit = False
        return array
