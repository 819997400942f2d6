"""Slots: shared memory that one process fills and the other reads, given back and reused.

    sender                                    receiver
    ring.take(size) -> slot
    slot.memory[...] = values
    slot number, and its file once   ──────>  reader.lease(number, size) -> one array
                                              (what users get are views of it)
    the slot is free                 <──────  a mark in it, when the last view dies

A slot is an unnamed file in memory, mapped by both sides: nothing to clean up after a kill,
and no limit on /dev/shm. Slots are used again because a fresh page costs more than copying
into it. There are as many as are out at a time: a user who keeps every batch makes the ring
grow, since whoever would have to let go of a slot may be the one who waits for it.

The mark lies after the slot's bytes, in the same memory. So the sender sees at once that a
slot is free, without a message, and takes the one that was used last: as few as can be go
round, and those stay in the processor's cache. Large ones have large pages (`huge_pages.py`).
"""

import os
import weakref
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.memory_file import create_unnamed
from bushel.transport.huge_pages import file_size, join_pages, map_aligned

Bytes: TypeAlias = npt.NDArray[np.uint8]

# Sizes are rounded up so that values of nearly one size share slots.
_STEP = 1 << 16
# Room for the mark, after the bytes: in a cache line of its own.
_MARK = 64


class Slot:
    """Shared memory at the sender; `memory` is all of it as bytes."""

    __slots__ = ("_mapped", "_mark", "address", "descriptor", "memory", "number", "size", "used")

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        # When it was taken last, for comparing.
        self.used = 0
        self.descriptor: int | None = create_unnamed(file_size(size + _MARK))
        self._mapped = map_aligned(self.descriptor, size + _MARK)
        self.memory = np.frombuffer(self._mapped, dtype=np.uint8, count=size)
        self._mark = self._mapped[size : size + _MARK]
        self.address: int = self.memory.ctypes.data

    def join_pages(self) -> bool:
        """Gives it large pages, before it is used; tells whether others should be asked for."""
        return join_pages(self._mapped, self.size + _MARK)

    def came_back(self) -> bool:
        """Whether the receiver has let go of it since this was last asked."""
        if not self._mark[0]:
            return False
        self._mark[0] = 0
        return True

    def take_descriptor(self) -> int | None:
        """Returns the file to be sent along, the first time; the mapping needs it no more."""
        descriptor, self.descriptor = self.descriptor, None
        return descriptor


class Ring:
    """The sender's slots: the free ones are taken again."""

    def __init__(self) -> None:
        # Slots in use, in the order in which they were taken; and free slots.
        self._out: dict[int, Slot] = {}
        self._free: list[Slot] = []
        self._next = self._taken = 0
        # Whether new slots are given large pages.
        self._large_pages = True
        # Numbers that the receiver may forget.
        self.dropped: list[int] = []

    def take(self, size: int) -> Slot:
        """Returns a slot of at least `size` bytes, a new one if none is free."""
        for slot in [slot for slot in self._out.values() if slot.came_back()]:
            self.give_back(slot.number)
        fitting = [slot for slot in self._free if slot.size >= size]
        if fitting:
            # The smallest, and of those the one that was used last: it is the warmest.
            slot = min(fitting, key=lambda slot: (slot.size, -slot.used))
            self._free.remove(slot)
        else:
            slot = Slot(self._next, max(_STEP, -(-size // _STEP) * _STEP))
            self._next += 1
            self._large_pages = self._large_pages and slot.join_pages()
            # What is too small for this one will be for the next ones.
            self._drop_free()
        self._taken += 1
        slot.used = self._taken
        self._out[slot.number] = slot
        return slot

    def _drop_free(self) -> None:
        for small in self._free:
            self.dropped.append(small.number)
            unsent = small.take_descriptor()
            if unsent is not None:
                os.close(unsent)
        self._free.clear()

    def give_back(self, number: int) -> None:
        """Makes a slot free that was not sent, or that the receiver has let go of."""
        self._free.append(self._out.pop(number))


class SlotReader:
    """The receiver's view of the sender's slots."""

    def __init__(self, release: Callable[[int], None]) -> None:
        self._release = release
        # Each with the place of its mark.
        self._mapped: dict[int, tuple[memoryview, int]] = {}

    def open(self, number: int, descriptor: int, size: int) -> None:
        """Maps a slot whose file has just arrived."""
        try:
            self._mapped[number] = map_aligned(descriptor, size + _MARK), size
        finally:
            os.close(descriptor)

    def lease(self, number: int, size: int) -> Bytes:
        """Returns the slot as one array; when nothing refers to it, the slot is given back.

        numpy makes every view of a view refer to this very array, so one finalizer watches
        over all of them, whoever holds them (a JAX array without a copy included).
        """
        mapped, mark = self._mapped[number]
        array = np.frombuffer(mapped, dtype=np.uint8, count=size)
        weakref.finalize(array, self._let_go, number, mapped, mark, os.getpid()).atexit = False
        return array

    def copy(self, number: int, size: int) -> Bytes:
        """Returns a copy of the slot's bytes, and gives the slot back at once."""
        mapped, mark = self._mapped[number]
        copied = np.frombuffer(mapped, dtype=np.uint8, count=size).copy()
        self._let_go(number, mapped, mark, os.getpid())
        return copied

    def _let_go(self, number: int, mapped: memoryview, mark: int, process: int) -> None:
        # A process that was forked has the arrays too, and says nothing about the slots.
        if os.getpid() == process:
            self._release(number)
            mapped[mark] = 1

    def forget(self, numbers: list[int]) -> None:
        """Lets go of slots that the sender will not use again; views of them stay valid."""
        for number in numbers:
            self._mapped.pop(number, None)
