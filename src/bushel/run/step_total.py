"""For statistics: the totals of one step, extrapolated from timed pulls; its slowest calls."""

import operator
import struct
from dataclasses import fields

from bushel.core.frozen import plain
from bushel.core.node import Node

# A worker's report of one step for one task: its number, its records, and the arguments of
# `StepTotal.add` and of `StepTotal.size`. It is sent as bytes, and decoded only when it is needed.
SPENT = struct.Struct("<9q")

# The most long calls that are remembered of a step.
_MOST_SLOWEST = 5


@plain
class StepTotal:
    """The totals of one step."""

    node: Node
    where: str
    # The number of its records; for parts of a mixture, an estimate.
    records: int = 0
    is_estimate: bool = False
    # Its own time for those, and for those that were timed.
    nanoseconds: int = 0
    timed_records: int = 0
    timed_nanoseconds: int = 0
    # Of these, the ones in turns that stand for none but themselves, as the first do, which are
    # small and slow; those in other turns, times the turns that each stands for; the last turn.
    exact_records: int = 0
    exact_nanoseconds: int = 0
    weighted_records: int = 0
    weighted_nanoseconds: int = 0
    last_records: int = 0
    last_nanoseconds: int = 0
    # The longest call that was timed, and the first position or element in it.
    longest_nanoseconds: int = 0
    longest_at: int = -1
    # What is waited for, if the step only waits.
    waits_for: str = ""
    # The longest calls of turns, each as (nanoseconds, place): the longest first, one for a place.
    slowest: tuple[tuple[int, int], ...] = ()
    # How many of the elements that it made were measured, and their bytes.
    sized: int = 0
    sized_bytes: int = 0

    def add(
        self,
        records: int,
        nanoseconds: int,
        longest_nanoseconds: int,
        longest_at: int,
        turns: int = 1,
    ) -> None:
        """Adds records that were timed, their time, and the longest call with its place.

        The call was in one of `turns` turns.
        """
        self.timed_records += records
        self.timed_nanoseconds += nanoseconds
        if turns == 1:
            self.exact_records += records
            self.exact_nanoseconds += nanoseconds
        else:
            self.weighted_records += turns * records
            self.weighted_nanoseconds += turns * nanoseconds
        if records:
            self.last_records, self.last_nanoseconds = records, nanoseconds
        if longest_nanoseconds > self.longest_nanoseconds:
            self.longest_nanoseconds, self.longest_at = longest_nanoseconds, longest_at
        slowest = self.slowest
        if len(slowest) < _MOST_SLOWEST or longest_nanoseconds > slowest[-1][0]:
            self.slowest = _with_another(slowest, longest_nanoseconds, longest_at)

    def size(self, count: int, nbytes: int) -> None:
        """Adds elements that were measured."""
        self.sized += count
        self.sized_bytes += nbytes

    def settle(self, times: float) -> None:
        """Extrapolates the time of all records from that of the timed ones.

        If records were not counted, there were so many times as many.
        """
        if not self.records:
            self.records, self.is_estimate = round(self.timed_records * times), True
        if not self.timed_records:
            self.nanoseconds = round(self.timed_nanoseconds * times)
            return
        others = max(0, self.records - self.exact_records)
        each = self.last_nanoseconds / self.last_records
        if self.weighted_records:
            each = self.weighted_nanoseconds / self.weighted_records
        self.nanoseconds = self.exact_nanoseconds + round(others * each)

    def copied(self) -> "StepTotal":
        """A copy."""
        return StepTotal(*_VALUES(self))


def _with_another(
    slowest: tuple[tuple[int, int], ...], nanoseconds: int, at: int
) -> tuple[tuple[int, int], ...]:
    """The longest calls, including another one.

    >>> _with_another(((9, 0), (5, 8)), 7, 8), _with_another(((9, 0), (5, 8)), 7, -1)
    (((9, 0), (7, 8)), ((9, 0), (5, 8)))
    """
    if at < 0:
        return slowest  # Its place is unknown.
    longest = {place: spent for spent, place in slowest}
    longest[at] = max(nanoseconds, longest.get(at, 0))
    pairs = sorted(((spent, place) for place, spent in longest.items()), reverse=True)
    return tuple(pairs[:_MOST_SLOWEST])


_VALUES = operator.attrgetter(*(one.name for one in fields(StepTotal)))
