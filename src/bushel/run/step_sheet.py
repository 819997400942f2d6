"""For statistics: one timed pull, with the records, time and longest call of each step in it."""

import threading
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, TypeVar

from bushel.core.sizes import bytes_of
from bushel.run.call_sizes import NO_ROW, Sized, by_row, bytes_of_one
from bushel.run.spans import Spans

T = TypeVar("T")

# To measure an element takes as long as so many looks at the clock.
_LOOKS_OF_A_SIZE = 4


class Sheet:
    """One turn: by the number of the step, records, time, the longest call and its place."""

    __slots__ = ("_label", "inner", "looks", "sizes", "spans", "spent")

    def __init__(
        self, spans: Spans | None, label: Callable[[int], str], has_sizes: bool = False
    ) -> None:
        """`spans` where a trace is wanted; `label` tells the name of a step by its number."""
        self.spans, self._label = spans, label
        # With sizes, by the number of the step: how many elements were measured, and their bytes.
        self.sizes: dict[int, tuple[int, int]] | None = {} if has_sizes else None
        self.spent: dict[int, list[int]] = {}
        self.looks = 0
        # Time of the calls within the one that is under way.
        self.inner = 0

    def call(self, number: int, function: Callable[..., T], args: Sequence[Any], sized: Sized) -> T:
        """Has a step do its work, and adds what that took, less what steps within it took."""
        outer, self.inner = self.inner, 0
        began = perf_counter_ns()
        made = function(*args)
        elapsed = perf_counter_ns() - began
        records, at = sized(args, made)
        self.add(number, records, elapsed - self.inner, at)
        self.inner = outer + elapsed
        if self.sizes is not None:
            if sized is not by_row:
                self.size(number, bytes_of_one(made))
            elif made is not NO_ROW:
                self.size(number, bytes_of(made))
            self.inner = outer + perf_counter_ns() - began
        if self.spans is not None:
            self.spans.add(self._label(number), began, elapsed, records, at)
        return made

    def size(self, number: int, size: int | None) -> None:
        """Adds the bytes of an element that a step made."""
        if self.sizes is not None and size is not None:
            self.looks += _LOOKS_OF_A_SIZE
            count, nbytes = self.sizes.get(number, (0, 0))
            self.sizes[number] = count + 1, nbytes + size

    def add(self, number: int, records: int, nanoseconds: int, at: int) -> None:
        self.looks += 1
        spent = self.spent.get(number)
        if spent is None:
            self.spent[number] = [records, nanoseconds, nanoseconds, at]
            return
        spent[0] += records
        spent[1] += nanoseconds
        if nanoseconds > spent[2]:
            spent[2:] = nanoseconds, at


class ThreadSheet(threading.local):
    """The sheet of the turn that a thread is at, if that one is timed."""

    sheet: Sheet | None = None
