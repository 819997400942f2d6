"""The status page that a worker shares with the trainer: what the worker is doing.

It outlives the worker, so the trainer can tell what killed it; and it can be read while the worker
hangs and cannot answer.
"""

import struct
from typing import Any

from bushel.core.memory_file import map_file

# The number of notes, the task, the operation, the position, the key's length.
_HEAD = struct.Struct("<qqqqq")
_MOST_KEY = 256


class Status:
    """The page, for both sides."""

    def __init__(self, descriptor: int) -> None:
        self._memory = memoryview(map_file(descriptor, writable=True))  # type: ignore[arg-type]
        self._count = 0
        self._task = -1

    def begin(self, task: int) -> None:
        """Notes that a task was begun."""
        self._task = task
        self.note(-1)

    def note(self, operation: int, position: int = -1, key: str = "", made: Any = None) -> None:
        """Notes the next operation, and perhaps its one element."""
        self._count += 1
        encoded = key.encode(errors="replace")[:_MOST_KEY]
        _HEAD.pack_into(self._memory, 0, self._count, self._task, operation, position, len(encoded))
        if encoded:
            self._memory[_HEAD.size : _HEAD.size + len(encoded)] = encoded

    def read(self) -> "tuple[int, int, int, int, str]":
        """The last note: count, task, operation, position and key."""
        count, task, operation, position, length = _HEAD.unpack_from(self._memory)
        key = bytes(self._memory[_HEAD.size : _HEAD.size + min(length, _MOST_KEY)])
        return count, task, operation, position, key.decode(errors="replace")
