"""Slots: shared memory that one side fills and the other reads, again and again.

    sender                                    receiver
    ring.take(size) -> slot
    slot.memory[...] = values
    slot number, and its file once   ──────>  reader.lease(number, size) -> one array
                                              (what users get are views of it)
    ring.give_back(number)           <──────  when the last view dies

A slot is an unnamed file in memory, mapped by both sides: nothing to clean up after a kill,
and no limit on /dev/shm. Slots are used again because a fresh page costs more than copying
into it. There are as many as are out at a time: a user who keeps every batch makes the ring
grow, since whoever would have to let go of a slot may be the one who waits for it.
"""

import mmap
import os
import weakref
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.memory_file import create_unnamed, map_file

Bytes: TypeAlias = npt.NDArray[np.uint8]

# Sizes are rounded up so that values of nearly one size share slots.
_STEP = 1 << 16


class Slot:
    """Shared memory at the sender; `memory` is all of it as bytes."""

    __slots__ = ("address", "descriptor", "memory", "number", "size")

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.descriptor: int | None = create_unnamed(size)
        self.memory = map_file(self.descriptor, writable=True)
        self.address: int = self.memory.ctypes.data

    def take_descriptor(self) -> int | None:
        """Returns the file to be sent along, the first time; the mapping needs it no more."""
        descriptor, self.descriptor = self.descriptor, None
        return descriptor


class Ring:
    """The sender's slots: the free ones are taken again."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._free: list[Slot] = []
        self._next = 0
        # Numbers that the receiver may forget.
        self.dropped: list[int] = []

    def take(self, size: int) -> Slot:
        """Returns a slot of at least `size` bytes, a new one if none is free."""
        fitting = [slot for slot in self._free if slot.size >= size]
        if fitting:
            # The smallest, and of those the one that was used last: it is the warmest.
            best = min(reversed(fitting), key=lambda slot: slot.size)
            self._free.remove(best)
            return best
        slot = Slot(self._next, max(_STEP, -(-size // _STEP) * _STEP))
        self._next += 1
        self._slots[slot.number] = slot
        # What is too small for this one will be for the next ones.
        for small in self._free:
            del self._slots[small.number]
            self.dropped.append(small.number)
            unsent = small.take_descriptor()
            if unsent is not None:
                os.close(unsent)
        self._free.clear()
        return slot

    def give_back(self, number: int) -> None:
        """Makes a slot free; called when the receiver has let go of it."""
        slot = self._slots.get(number)
        if slot is not None:
            self._free.append(slot)


class SlotReader:
    """The receiver's view of the sender's slots."""

    def __init__(self, release: Callable[[int], None]) -> None:
        self._release = release
        self._mapped: dict[int, mmap.mmap] = {}

    def open(self, number: int, descriptor: int, size: int) -> None:
        """Maps a slot whose file has just arrived."""
        try:
            self._mapped[number] = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def lease(self, number: int, size: int) -> Bytes:
        """Returns the slot as one array; when nothing refers to it, the slot is given back.

        numpy makes every view of a view refer to this very array, so one finalizer watches
        over all of them, whoever holds them (a JAX array without a copy included).
        """
        array = np.frombuffer(self._mapped[number], dtype=np.uint8, count=size)
        weakref.finalize(array, self._release, number).atexit = False
        return array

    def copy(self, number: int, size: int) -> Bytes:
        """Returns a copy of the slot's bytes, and gives the slot back at once."""
        copied = np.frombuffer(self._mapped[number], dtype=np.uint8, count=size).copy()
        self._release(number)
        return copied

    def forget(self, numbers: list[int]) -> None:
        """Lets go of slots that the sender will not use again; views of them stay valid."""
        for number in numbers:
            self._mapped.pop(number, None)
