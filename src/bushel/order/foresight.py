"""How many elements of each stream of a mixture or zip are read at once, ahead of their turns.

A read from a stream costs some tens of microseconds, however few elements are read. With a thousand
streams, each gives an element now and then: so several elements are read at once, and wait.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.cursor import Cursor
from bushel.core.sizes import bytes_of
from bushel.core.step import EvaluateTogether

# The most elements of a read: with more, the overhead of the read no longer matters.
_MOST = 64
# Elements that take this long together are worth a read. More elements per read would only come
# later, as each of the streams reads ahead.
_SECONDS = 0.0003
# The most seconds of a read, even for records that wait: the other streams wait as well.
_WAIT = 0.005
# The most bytes that wait, of all streams together.
_BYTES = 1 << 25
# The weight of earlier measurements, a read later.
_LATELY = 0.98
_LOOK_AT_BYTES_EVERY = 64


class Foresight:
    """Reads from streams whose next elements will be needed soon."""

    def __init__(
        self, cursors: Sequence[Cursor], evaluate: EvaluateTogether, clock: Callable[[], float]
    ) -> None:
        self._cursors, self._evaluate, self._clock = cursors, evaluate, clock
        # Elements read so far of each stream. A read has at most as many more, so that a user who
        # takes a few elements does not wait for many.
        self._read = [0] * len(cursors)
        self._seconds = self._cpu_seconds = self._gotten = 0.0
        self._by_bytes = _MOST
        self._looks = 0

    def prepare(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Reads from streams, given as (number, count), until each has `count` elements ready."""
        most = self._most()
        asked = [(number, count, min(self._read[number], most)) for number, count in wanted]
        # The first read of a stream may take long (evaluators are made, files opened, an order
        # computed), which says nothing about later ones.
        first = [want for want in asked if not self._read[want[0]]]
        known = [want for want in asked if self._read[want[0]]]
        if first:
            self._prepare(first)
        if not known:
            return
        began, cpu_began = self._clock(), time.thread_time()
        self._gotten = _LATELY * (self._gotten + self._prepare(known))
        self._seconds = _LATELY * (self._seconds + self._clock() - began)
        self._cpu_seconds = _LATELY * (self._cpu_seconds + time.thread_time() - cpu_began)

    def _prepare(self, asked: Sequence[tuple[int, int, int]]) -> int:
        """Reads the needed elements of each stream, and some to have ready; returns the number."""
        self._evaluate([(number, max(count, ahead)) for number, count, ahead in asked])
        gotten = 0
        for number, count, ahead in asked:
            cursor = self._cursors[number]
            before = cursor.ready
            read = cursor.prepare(count, max(0, ahead - count)) - before
            self._read[number] += read
            gotten += read
        return gotten

    def _most(self) -> int:
        if not self._gotten:
            return 0
        # CPU time, so that other programs make no difference.
        by_time = min(_SECONDS / max(self._cpu_seconds, 1e-9), _WAIT / max(self._seconds, 1e-9))
        return int(min(_MOST, self._by_bytes, by_time * self._gotten))

    def look_at(self, element: Any) -> None:
        """Takes note now and then of the size of elements, given one of them."""
        self._looks += 1
        if self._looks <= 4 or not self._looks % _LOOK_AT_BYTES_EVERY:
            each = max(1, bytes_of(element)) * len(self._read)
            self._by_bytes = min(_MOST, _BYTES // each)
