"""Measures how long the user's loop waits in `next`, and which elements count as ready."""

import math
import time

from bushel.deliver.wait_history import WaitColumn, WaitHistory

# An element that came within this many seconds counts as ready.
READY_SECONDS = 0.001


class Waits:
    """Sums the times that elements were waited for.

    The caller measures times, by `time.perf_counter`, so that a test can pass its own. Taking an
    element that is ready takes no time worth measuring.
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
        # When the first element was asked for; None before.
        self.began: float | None = None
        # The wait for the first element, which includes all starts.
        self.first_seconds = 0.0
        self.refills = 0
        # Refills that were ready at once.
        self.ready = 0
        self.seconds = 0.0
        # The longest wait after the first one; and the element that was waited for.
        self.longest_seconds, self.longest_at = 0.0, -1
        # Of the column of the history that is not full: waits that it lacks, its extremes,
        # `seconds` as it began, and the element of its last wait.
        self._history = WaitHistory()
        self._left, self._least, self._longest, self._before = 1, math.inf, 0.0, 0.0
        self._element = 0

    def add(self, began: float, ended: float, element: int) -> None:
        """Takes note of a refill, given the number of the element that was waited for."""
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
        # Below 0 after an interrupt within this method.
        if self._left <= 0:
            self._left = self._history.add(self._column())
            self._least, self._longest, self._before = math.inf, 0.0, self.seconds

    def history(self) -> list[WaitColumn]:
        """All waits in the order of the run, in at most a few hundred columns."""
        columns = self._history.columns
        return [*columns, self._column()] if self._left < self._history.waits_each else columns[:]

    def _column(self) -> WaitColumn:
        waits = self._history.waits_each - self._left
        total = self.seconds - self._before
        return WaitColumn(waits, self._least, total, self._longest, self._element)

    def elapsed(self) -> float:
        """Seconds since the first element was asked for."""
        return 0.0 if self.began is None else time.perf_counter() - self.began
