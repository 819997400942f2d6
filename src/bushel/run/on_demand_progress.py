"""Counts and states of elements that are made one by one, when they are taken."""

from typing import Any

import numpy as np

from bushel.core.state import State
from bushel.core.stream import Marks
from bushel.run.quota import DropQuota


class OnDemandMarks(Marks):
    """The states between elements that were made one by one."""

    __slots__ = ("_before", "_ends", "_position")

    def __init__(self, before: int, ends: list[int], position: int) -> None:
        self._before, self._ends, self._position = before, ends, position

    def at(self, used: int) -> State:
        if used > len(self._ends):
            return {"next_index": self._position + 1}
        return {"next_index": self._ends[used - 1] if used else self._before}


class OnDemandProgress:
    """Separates elements from dropped ones, and counts both."""

    def __init__(self, quota: DropQuota | None, behind: int, start: int) -> None:
        # None if dropped elements are handed out, too.
        self._quota = quota
        # The position of the next element, and the position after the last element (not a dropped
        # one) when marks were taken.
        self.position, self._before = start, behind
        # The position after each element since then.
        self._ends: list[int] = []
        self._uncounted = start

    @property
    def behind(self) -> int:
        """The position after the last element that was not dropped."""
        return self._ends[-1] if self._ends else self._before

    def __call__(self, row: Any) -> bool:
        if row is not None or self._quota is None:
            self.position = end = self.position + 1
            self._ends.append(end)
            return True
        self.settle(dropped=1)
        self.position += 1
        self._uncounted += 1
        return False

    def settle(self, dropped: int = 0) -> None:
        """Reports the counts to the watch; raises its error."""
        kept = self.position - self._uncounted
        self._uncounted += kept
        if self._quota is not None:
            over = self._quota.count(np.repeat([True, False], [kept, dropped]))
            if over is not None:
                raise over[1]

    def take_marks(self) -> Marks:
        """The states between the elements since the last call."""
        marks = OnDemandMarks(self._before, self._ends, self.position)
        self._before, self._ends = self.behind, []
        return marks
