"""A link: sends values of any kind to another process, their arrays in shared memory.

    ┌──────────────┬──────────────┬─────────┬───────────────┐
    │ array        │ array        │ ...     │ pickle        │   one slot
    └──────────────┴──────────────┴─────────┴───────────────┘

Pickle's protocol 5 gives the memory of arrays separately instead of copying it into the pickle.
An array that was made in the slot already (a batch, stacked there) stays where it is; other
arrays are copied in. The receiver makes arrays that are views of the slot's memory, without a
copy. A small value is part of the message itself, and has no slot.

Both ends of a link are processes of one program and trust each other, so they may send pickles.
"""

import io
import os
import pickle
import resource
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bushel.core.memory_file import aligned
from bushel.transport.arena import Arena
from bushel.transport.channel import Channel
from bushel.transport.exact import ValuePickler
from bushel.transport.own_classes import OwnClasses
from bushel.transport.slots import Bytes, Ring, Slot, SlotReader

# Bytes of a value below which it is sent in the message; larger values have a slot.
_IN_MESSAGE = 1 << 13
# Bytes of an array below which it is part of the pickle: copying it costs less than placing it.
_IN_PICKLE = 1 << 9
# Bytes of a value below which it is copied out of its slot. Otherwise a program that keeps a
# hundred thousand small values would have as many mappings, more than the system allows.
_COPIED = 1 << 18
# Number of leases from which on all values are copied: each mapping takes an open file.
_MOST_LEASED = 256


@cache
def _most_leased() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_LEASED if soft == resource.RLIM_INFINITY else min(_MOST_LEASED, soft // 8)


class _ValueLayout(NamedTuple):
    """The message about a value: where it is, and which slots were dropped."""

    inline: bytes | None
    slot: int
    slot_size: int
    used: int
    # Of each array: start, size, and whether it is writable.
    parts: Sequence[tuple[int, int, bool]]
    pickle_start: int
    dropped: Sequence[int]


class Link:
    """One end of a connection; both ends work in the same way."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = Channel(connection)
        self._ring = Ring()
        # Numbers of released slots, appended by finalizers in any thread.
        self._released: deque[int] = deque()
        self._reader = SlotReader(self._released.append)
        self._sizes: dict[int, int] = {}
        # Bytes of the last value that was sent, the size of the next arena.
        self._usual = 0
        # Bytes of the last value that was received.
        self.last_size = 0

    def fileno(self) -> int:
        return self._channel.fileno()

    def send(self, value: Any, arena: Arena | None = None, by_value: bool = False) -> int:
        """Sends a value and returns its size. Arrays in the arena are not copied.

        `by_value` is for values with objects whose classes the receiver may not find by
        name: those of the user's main module.
        """
        pickled, buffers = dump_apart(value, by_value)
        if arena is not None and not arena.used:
            self.return_arena(arena)
            arena = None
        if arena is None and not buffers and len(pickled) < _IN_MESSAGE:
            self._usual = len(pickled)
            self._send(pickled, None, len(pickled), (), 0)
            return len(pickled)
        slot = arena.slot if arena is not None else None
        placed = _place(buffers, slot, arena.used if arena is not None else 0)
        total = placed.end + len(pickled)
        self._usual = total
        if slot is None and total < _IN_MESSAGE:
            memory = np.empty(total, dtype=np.uint8)
            _write(memory, placed, pickled)
            self._send(memory.tobytes(), None, total, placed.parts, placed.end)
            return total
        if arena is not None and slot is not None and slot.size < total:
            # The value is larger than the arena, which the last one filled: use a larger slot.
            placed = _place(buffers, None, 0)
            total = placed.end + len(pickled)
            larger = self._ring.take(total)
            _write(larger.memory, placed, pickled)
            arena.give_back()
            slot = larger
        else:
            slot = slot or self._ring.take(total)
            _write(slot.memory, placed, pickled)
        self._send(None, slot, total, placed.parts, placed.end)
        return total

    def _send(
        self,
        inline: bytes | None,
        slot: Slot | None,
        used: int,
        parts: Sequence[tuple[int, int, bool]],
        pickle_start: int,
    ) -> None:
        dropped, self._ring.dropped = self._ring.dropped, []
        self._note_released()
        number, size = (-1, 0) if slot is None else (slot.number, slot.size)
        file = None if slot is None else slot.take_descriptor()
        message = (inline, number, size, used, parts, pickle_start, dropped)
        try:
            self._channel.send(pickle.dumps(message, protocol=5), file)
        finally:
            if file is not None:
                os.close(file)

    def _note_released(self) -> None:
        for _ in range(len(self._released)):
            self._sizes.pop(self._released.popleft(), None)

    def receive(self) -> Any:
        """Waits for a value; its large arrays are views of its slot."""
        message, file = self._channel.receive()
        # First, since the value may be in a slot that was released just now.
        self._note_released()
        layout = _ValueLayout(*pickle.loads(message))
        self.last_size = layout.used
        self._reader.forget(list(layout.dropped))
        if layout.inline is not None and not layout.parts:
            return pickle.loads(layout.inline)
        if layout.inline is not None:
            memory: Bytes = np.frombuffer(bytearray(layout.inline), dtype=np.uint8)
        else:
            if file is not None:
                self._reader.open(layout.slot, file, layout.slot_size)
            if layout.used < _COPIED or len(self._sizes) >= _most_leased():
                memory = self._reader.copy(layout.slot, layout.used)
            else:
                memory = self._reader.lease(layout.slot, layout.used)
                self._sizes[layout.slot] = layout.slot_size
        buffers = []
        for start, size, writable in layout.parts:
            view = memory[start : start + size]
            if not writable:
                view.flags.writeable = False
            buffers.append(view)
        pickled = memory[layout.pickle_start : layout.used].tobytes()
        return pickle.loads(pickled, buffers=buffers)

    def send_file(self, number: int, descriptor: int) -> None:
        """Sends an open file, with a number that identifies it."""
        self._channel.send(str(number).encode(), descriptor)

    def receive_file(self) -> tuple[int, int]:
        """Waits for a file that the other end sends by `send_file`."""
        number, descriptor = self._channel.receive()
        assert descriptor is not None
        return int(number), descriptor

    def has_message(self) -> bool:
        """Whether a whole value has been read from the socket."""
        return self._channel.has_message()

    def try_read(self) -> bool:
        """Reads from the socket without waiting; returns whether there is a whole value."""
        return self._channel.try_read()

    def arena(self) -> Arena | None:
        """An arena in which to make the next value, as large as the last value."""
        if self._usual < _IN_MESSAGE:
            return None
        return Arena(self._ring, self._usual)

    def return_arena(self, arena: Arena) -> None:
        """Takes back an arena that was not used."""
        arena.give_back()

    @property
    def leased(self) -> int:
        """Bytes of slots to which this process still refers, or referred until just now."""
        return sum(self._sizes.values())

    def close(self) -> None:
        self._channel.close()


def set_apart(buffers: list[memoryview], least: int) -> Callable[[pickle.PickleBuffer], bool]:
    """A callback for pickle: buffers of at least `least` bytes go to the list."""

    def keep_in(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < least:
            return True
        buffers.append(raw)
        return False

    return keep_in


def dump_apart(value: Any, by_value: bool) -> tuple[bytes, list[memoryview]]:
    """Pickles a value, with its large buffers separate."""
    buffers: list[memoryview] = []
    keep_in = set_apart(buffers, _IN_PICKLE)
    if not by_value:
        file = io.BytesIO()
        try:
            ValuePickler(file, protocol=5, buffer_callback=keep_in).dump(value)
            return file.getvalue(), buffers
        except Exception:
            # The value has a class of the user's main module, which is sent by value.
            buffers.clear()
    file = io.BytesIO()
    OwnClasses(file, protocol=5, buffer_callback=keep_in).dump(value)
    return file.getvalue(), buffers


class _PlacedBuffers(NamedTuple):
    """The places of a value's buffers in a slot."""

    # As in `_ValueLayout`.
    parts: list[tuple[int, int, bool]]
    # Buffers that have to be copied, with their start in the slot.
    elsewhere: list[tuple[int, memoryview]]
    # End of all buffers, where the pickle begins.
    end: int


def _place(buffers: Sequence[memoryview], slot: Slot | None, end: int) -> _PlacedBuffers:
    """Decides the place of each buffer; buffers that are in the slot already stay."""
    parts, elsewhere = [], []
    for buffer in buffers:
        size, writable = buffer.nbytes, not buffer.readonly
        start = -1
        if slot is not None:
            start = np.frombuffer(buffer, dtype=np.uint8).ctypes.data - slot.address
        if slot is None or not 0 <= start <= slot.size - size:
            start, end = end, aligned(end + size)
            elsewhere.append((start, buffer))
        parts.append((start, size, writable))
    return _PlacedBuffers(parts, elsewhere, end)


def _write(memory: Bytes, placed: _PlacedBuffers, pickled: bytes) -> None:
    for start, buffer in placed.elsewhere:
        memory[start : start + buffer.nbytes] = np.frombuffer(buffer, dtype=np.uint8)
    memory.data[placed.end : placed.end + len(pickled)] = pickled
