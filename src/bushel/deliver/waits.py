"""Measures how long the user's loop waits for elements, in `next`."""

import math
import time

from bushel.deliver.wait_history import WaitColumn, WaitHistory

# An element that was there within this many seconds counts as ready.
READY_SECONDS = 0.001


class Waits:
    """Adds up the times in which elements were waited for.

    Times come from outside, by `time.perf_counter`, so that a test can hand in its own. Elements
    that are taken from those that wait in line take no time worth looking at.
    """

    __slots__ = (
        "_before",
        "_element",
        "_history",
        "_least",
        "_left",
        "_longest",
        "began",
        "first_seconds",
        "longest_at",
        "longest_seconds",
        "ready",
        "refills",
        "seconds",
    )

    def __init__(self) -> None:
        # When somebody asked for the first time; None before.
        self.began: float | None = None
        # How long that took: everything starts in it.
        self.first_seconds = 0.0
        self.refills = 0
        # Refills that were there at once.
        self.ready = 0
        self.seconds = 0.0
        # The longest wait after the first one, in which everything starts; and the element that
        # was waited for.
        self.longest_seconds, self.longest_at = 0.0, -1
        # Of the column of the history that is not full: waits that it lacks, its extremes,
        # `seconds` as it began, and the element of its last wait.
        self._history = WaitHistory()
        self._left, self._least, self._longest, self._before = 1, math.inf, 0.0, 0.0
        self._element = 0

    def add(self, began: float, ended: float, element: int) -> None:
        """Takes note of a refill, for which an element with this number was waited for."""
        seconds = ended - began
        self.refills += 1
        self.seconds += seconds
        if seconds < READY_SECONDS:
            self.ready += 1
        if self.began is None:
            self.began, self.first_seconds = began, seconds
        elif seconds > self.longest_seconds:
            self.longest_seconds, self.longest_at = seconds, element
        self._element = element
        if seconds > self._longest:
            self._longest = seconds
        if seconds < self._least:
            self._least = seconds
        self._left -= 1
        # Below 0 after an interrupt in the midst of this.
        if self._left <= 0:
            self._left = self._history.add(self._column())
            self._least, self._longest, self._before = math.inf, 0.0, self.seconds

    def history(self) -> list[WaitColumn]:
        """All waits in the order of the run, in a few hundred columns at the most."""
        columns = self._history.columns
        return [*columns, self._column()] if self._left < self._history.waits_each else columns[:]

    def _column(self) -> WaitColumn:
        waits = self._history.waits_each - self._left
        total = self.seconds - self._before
        return WaitColumn(waits, self._least, total, self._longest, self._element)

    def elapsed(self) -> float:
        """Seconds since somebody asked for the first time."""
        return 0.0 if self.began is None else time.perf_counter() - self.began
