"""How much more than is needed is read of each of many streams that are read side by side.

To read from a stream costs some tens of microseconds, however few elements are read. Where
there are a thousand, each gives an element now and then: so several are read at once, and wait.
"""

from collections.abc import Callable
from typing import Any

from bushel.run.stream import Cursor
from bushel.run.tune import approximate_bytes

# With so many at a time, what a read costs no longer matters.
_MOST = 64
# Elements that take this long together are worth a read of their own. More of them would only
# come later for that: each of the streams reads ahead.
_SECONDS = 0.0003
# What may wait of all streams together.
_BYTES = 1 << 25
# How much of what was measured still counts a read later.
_LATELY = 0.98
_LOOK_AT_BYTES_EVERY = 64


class Foresight:
    """Reads from streams of which the next elements will be needed soon."""

    def __init__(self, streams: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        # How many elements were read of each: so many more are read at a time, at the most. Who
        # takes a few elements does not wait for many.
        self._read = [0] * streams
        self._spent = self._gotten = 0.0
        self._by_bytes = _MOST
        self._looks = 0

    def prepare(self, number: int, cursor: Cursor, count: int) -> int:
        """Sees to it that so many elements of a stream can be shown; says how many can be."""
        before = cursor.ready
        ahead = min(self._read[number], self._most()) - count
        began = self._clock()
        ready = cursor.prepare(count, max(0, ahead))
        self._spent = self._spent * _LATELY + self._clock() - began
        self._gotten = self._gotten * _LATELY + ready - before
        self._read[number] += ready - before
        return ready

    def _most(self) -> int:
        if not self._spent:
            return 0
        return int(min(_MOST, self._by_bytes, _SECONDS * self._gotten / self._spent))

    def look_at(self, element: Any) -> None:
        """Takes note now and then of how large elements are, by one of them."""
        self._looks += 1
        if self._looks <= 4 or not self._looks % _LOOK_AT_BYTES_EVERY:
            each = max(1, approximate_bytes(element)) * len(self._read)
            self._by_bytes = min(_MOST, _BYTES // each)
