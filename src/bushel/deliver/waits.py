"""How long the user's loop waited for elements, measured where it does: at `next`."""

import time

# An element that was there within this many seconds counts as ready.
READY_SECONDS = 0.001


class Waits:
    """Adds up the times in which elements were waited for.

    Times come from outside, by `time.perf_counter`, so that a test can hand in its own. Elements
    that are taken from those that wait in line take no time worth looking at.
    """

    __slots__ = (
        "began",
        "longest_at",
        "longest_seconds",
        "ready",
        "refills",
        "seconds",
    )

    def __init__(self) -> None:
        # When somebody asked for the first time; None before.
        self.began: float | None = None
        self.refills = 0
        # Refills that were there at once.
        self.ready = 0
        self.seconds = 0.0
        # The longest wait after the first one, in which everything starts; and the element that
        # was waited for.
        self.longest_seconds, self.longest_at = 0.0, -1

    def add(self, began: float, ended: float, element: int) -> None:
        """Takes note of a refill, for which an element with this number was waited for."""
        seconds = ended - began
        self.refills += 1
        self.seconds += seconds
        if seconds < READY_SECONDS:
            self.ready += 1
        if self.began is None:
            self.began = began
        elif seconds > self.longest_seconds:
            self.longest_seconds, self.longest_at = seconds, element

    def elapsed(self) -> float:
        """Seconds since somebody asked for the first time."""
        return 0.0 if self.began is None else time.perf_counter() - self.began
