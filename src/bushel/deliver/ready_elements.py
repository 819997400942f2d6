"""Elements of the current chunk that are not delivered yet, and their states."""

import operator
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from bushel.core.block import Failure
from bushel.core.state import State
from bushel.core.stream import Marks

NOTHING: Iterator[Any] = iter(())


class Ready:
    """Elements ready for delivery, then perhaps one that failed.

    Elements are taken from an iterator written in C, which gives each to one thread only. And
    interrupts strike at calls: there is no call between taking an element, or a failure, and
    delivering it.
    """

    __slots__ = ("_elements", "_rows_left", "_size", "failures", "marks", "rows")

    def __init__(
        self,
        rows: list[Any],
        marks: Marks,
        failure: Failure | None = None,
        one_by_one: bool = False,
    ) -> None:
        """`one_by_one` removes each element when it is taken: its memory serves the next."""
        self._elements = len(rows)
        self._size = self._elements + (failure is not None)
        self.rows: Iterator[Any]
        if one_by_one:
            rows.reverse()
            self.rows, self._rows_left = map(rows.pop, repeat(-1, len(rows))), rows.__len__
        else:
            listed: Any = iter(rows)
            self.rows, self._rows_left = listed, listed.__length_hint__
        self.failures: Iterator[Failure] = NOTHING if failure is None else iter((failure,))
        self.marks = marks

    def state(self) -> State:
        """The state after the delivered elements."""
        return self.marks.at(self._used())

    def before(self) -> State | None:
        """The state before the element delivered last; None if there was none."""
        used = self._used()
        return self.marks.at(used - 1) if used else None

    def _used(self) -> int:
        left = self._rows_left() + operator.length_hint(self.failures)
        return self._size - left

    @property
    def used(self) -> int:
        """The number of delivered elements."""
        return self._elements - self._rows_left()
