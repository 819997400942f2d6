"""A link: sends values of any kind to another process, their arrays in shared memory.

    ┌──────────────┬──────────────┬─────────┬───────────────┐
    │ array        │ array        │ ...     │ pickle        │   one slot
    └──────────────┴──────────────┴─────────┴───────────────┘

Pickle's protocol 5 hands out the memory of arrays instead of copying it into the pickle. An
array that was made in the slot already (a batch, stacked there) stays where it is; others are
copied in. On the other side arrays are made on the slot's memory, without a copy. What is
small goes with the message itself, and has no slot.

Both ends of a link are processes of one program and trust each other, so pickles may travel.
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

# Below this a message carries the value itself; above, a slot does.
_IN_MESSAGE = 1 << 13
# Arrays below this are part of the pickle: to place them costs more than to copy them.
_IN_PICKLE = 1 << 9
# Below this a value is copied out of its slot: a program that keeps a hundred thousand of them
# should not have that many mappings, of which the system allows only some.
_COPIED = 1 << 18
# So is one that comes when this many are kept: a mapping takes an open file.
_MOST_LEASED = 256


@cache
def _most_leased() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_LEASED if soft == resource.RLIM_INFINITY else min(_MOST_LEASED, soft // 8)


class _ValueLayout(NamedTuple):
    """Where a value is, and what else the other side should know."""

    inline: bytes | None
    slot: int
    slot_size: int
    used: int
    # Start, size and whether it may be written to, of each array.
    parts: Sequence[tuple[int, int, bool]]
    pickle_start: int
    dropped: Sequence[int]


class Link:
    """One end of a connection, which both sides use in the same way."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = Channel(connection)
        self._ring = Ring()
        # Appended to by finalizers, wherever they happen to run.
        self._released: deque[int] = deque()
        self._reader = SlotReader(self._released.append)
        self._sizes: dict[int, int] = {}
        # How large the last value was: the next one is given that much room to be made in.
        self._usual = 0
        # How large the last value was that came.
        self.last_size = 0

    def fileno(self) -> int:
        return self._channel.fileno()

    def send(self, value: Any, arena: Arena | None = None, by_value: bool = False) -> int:
        """Sends a value; what was made in the arena is there already. Returns its size.

        `by_value` is for values with objects whose classes the other side may not find by
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
            # More came than before. A larger slot takes all of it.
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
        """Waits for a value; its large arrays are views of the slot it came in."""
        message, file = self._channel.receive()
        # First: it may come in a slot that was let go of just now.
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
        """Sends an open file, with a number to know it by."""
        self._channel.send(str(number).encode(), descriptor)

    def receive_file(self) -> tuple[int, int]:
        """Waits for a file that the other side sends now."""
        number, descriptor = self._channel.receive()
        assert descriptor is not None
        return int(number), descriptor

    def has_message(self) -> bool:
        """Whether a value is here already."""
        return self._channel.has_message()

    def try_read(self) -> bool:
        """Reads what has arrived, without waiting; tells whether there is a value."""
        return self._channel.try_read()

    def arena(self) -> Arena | None:
        """Room for the next value to be made in, as much as the last one needed."""
        if self._usual < _IN_MESSAGE:
            return None
        return Arena(self._ring, self._usual)

    def return_arena(self, arena: Arena) -> None:
        """Takes back room of which no use was made."""
        arena.give_back()

    @property
    def leased(self) -> int:
        """How many bytes of slots somebody here still refers to, or did until just now."""
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
    """Pickles a value, its large buffers apart."""
    buffers: list[memoryview] = []
    keep_in = set_apart(buffers, _IN_PICKLE)
    if not by_value:
        file = io.BytesIO()
        try:
            ValuePickler(file, protocol=5, buffer_callback=keep_in).dump(value)
            return file.getvalue(), buffers
        except Exception:
            # A class of the user's main module, which a worker has by value only.
            buffers.clear()
    file = io.BytesIO()
    OwnClasses(file, protocol=5, buffer_callback=keep_in).dump(value)
    return file.getvalue(), buffers


class _PlacedBuffers(NamedTuple):
    """Where the buffers of a value go."""

    parts: list[tuple[int, int, bool]]
    # Those that are elsewhere, and where to copy them to.
    elsewhere: list[tuple[int, memoryview]]
    # After all of them: the place for the pickle.
    end: int


def _place(buffers: Sequence[memoryview], slot: Slot | None, end: int) -> _PlacedBuffers:
    """Decides where each buffer goes; those that lie in the slot stay."""
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
