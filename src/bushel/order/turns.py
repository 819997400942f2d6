"""Whose turn it is: which part of a mixture gives the next element.

Where the weights stay the same, that is a function of the number of the element (see
`order/mix.py`). Where they change, each part is due a share of each element, and gets one
whenever it has been due more than it got:

    share of part 0       .5   .5   .5   .25  .25  .25  .25
    due, all in all       .5   1.   1.5  1.75 2.   2.25 2.5
    gets element           x         x              x
    ahead by              .5   0.   .5   .25  0.   .75  .5

What part 0 does not get is divided among the others in the same way. How far each part is
ahead is all that must be remembered, so a mixture goes on from any place, and with other
weights too: from there on it follows those, and makes up for nothing that was before.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.frozen import plain
from bushel.order.mix import places_before
from bushel.order.pattern import pattern_of
from bushel.order.schedule import Proportions, Table
from bushel.positions import Keys

# How far each part is ahead of its share, in units of 2**-60 elements. Shares are rounded
# down to that. So fixed weights give the order of a `Pattern`, for as many elements as their
# sum goes into 2**60: a weight that never falls due too early falls due in time.
Ahead: TypeAlias = tuple[int, ...]
_BITS = np.uint64(60)
_ONE = 1 << 60
_FRACTION = np.uint64(_ONE - 1)

_Counts = npt.NDArray[np.uint64]


@plain
class Choices:
    """Which parts give the next elements, and how far each part is ahead behind each of them."""

    which: Keys
    start: Ahead
    behind: Sequence[_Counts] = ()

    def ahead(self, used: int) -> Ahead:
        """How far the parts are ahead after `used` elements."""
        if not used or not self.behind:
            return self.start
        return tuple(int(part[used - 1]) for part in self.behind)


class Turns(ABC):
    """Says which parts give the next elements."""

    @abstractmethod
    def beginning(self) -> Ahead:
        """How far each part is ahead before the first element."""

    @abstractmethod
    def choose(self, index: int, count: int, ahead: Ahead, stays: Sequence[bool]) -> Choices:
        """Chooses among the parts that stay, from element number `index` on.

        For fewer than `count` elements where no more is known, and for none where no part that
        stays has a weight. Raises what a user's function raises for the first of them.
        """

    def taken_before(self, index: int) -> list[int] | None:
        """How many of the first elements are of each part, where that is arithmetic."""
        return None


class FixedTurns(Turns):
    """Turns in proportions that stay the same."""

    def __init__(self, proportions: Sequence[int], lane: int) -> None:
        self._proportions = tuple(proportions)
        self._lane = lane
        self._pattern = pattern_of(self._proportions)

    def beginning(self) -> Ahead:
        return ()

    def choose(self, index: int, count: int, ahead: Ahead, stays: Sequence[bool]) -> Choices:
        positions = np.arange(index, index + count, dtype=np.int64) + self._lane
        if all(stays):
            return Choices(self._pattern.locate(positions)[0], ())
        left = np.flatnonzero(stays)
        if not len(left):
            return Choices(left, ())
        some = tuple(self._proportions[part] for part in left)
        return Choices(left.take(pattern_of(some).locate(positions)[0]), ())

    def taken_before(self, index: int) -> list[int]:
        before = places_before(self._lane, self._proportions)
        after = places_before(self._lane + index, self._proportions)
        return [stop - start for start, stop in zip(before, after, strict=True)]


class ScheduledTurns(Turns):
    """Turns in proportions that change."""

    def __init__(self, table: Table, parts: int, lane: tuple[int, int]) -> None:
        self._table, self._parts = table, parts
        self._lane, self._lanes = lane
        # What the table said last, and from which element on: a block that is cut short is
        # asked for once more.
        self._known: Proportions = np.empty((parts, 0), dtype=np.int64)
        self._known_from = 0

    def beginning(self) -> Ahead:
        # Lanes begin at different places: one step of all of them then is mixed as it should.
        ahead: Ahead = (0,) * self._parts
        if not self._lane:
            return ahead
        steps = self._table(np.arange(self._lane, dtype=np.int64))
        return _choose(steps, ahead).ahead(steps.shape[1])

    def choose(self, index: int, count: int, ahead: Ahead, stays: Sequence[bool]) -> Choices:
        table = self._proportions(index, count)
        if not all(stays):
            table = table * np.array(stays, dtype=np.int64)[:, None]
            without = np.flatnonzero(table.sum(axis=0) == 0)
            if len(without):
                table = table[:, : without[0]]
        return _choose(table, ahead)

    def _proportions(self, index: int, count: int) -> Proportions:
        """The proportions at the next elements; of lanes, element n of all is one of each."""
        start = index - self._known_from
        known = self._known[:, start:] if start >= 0 else self._known[:, :0]
        have = known.shape[1]
        if have < count:
            rest = np.arange(index + have, index + count, dtype=np.int64)
            try:
                more = self._table(rest * self._lanes + self._lane)
            except Exception:
                if not have:
                    raise
                more = known[:, :0]  # What is known comes first.
            known = np.concatenate([known, more], axis=1) if have else more
            self._known, self._known_from = known, index
        return known[:, :count]


def _choose(table: Proportions, ahead: Ahead) -> Choices:
    size = table.shape[1]
    which = np.zeros(size, dtype=np.int64)
    waits = np.ones(size, dtype=bool)
    rest = table.sum(axis=0)
    behind = []
    for part, weight in enumerate(table):
        if not weight.any():  # It has ended, or has no weight for now: it stays where it is.
            behind.append(np.full(size, ahead[part], dtype=np.uint64))
            continue
        # Of the elements that no part before this one gets.
        share = np.where(waits, _shares(weight, rest), np.uint64(0))
        # Sums wrap around, and so does the difference: what is left are fractions.
        after = (np.uint64(ahead[part]) - share.cumsum(dtype=np.uint64)) & _FRACTION
        before = (after + share) & _FRACTION
        gets = share > before
        which[gets] = part
        waits &= ~gets
        rest = rest - weight
        behind.append(after)
    return Choices(which, ahead, behind)


def _shares(weight: Proportions, rest: Proportions) -> _Counts:
    """weight / rest in units of 2**-60, rounded down.

    >>> _shares(np.array([1, 3]), np.array([4, 3])) / _ONE
    array([0.25, 1.  ])
    """
    rest = np.maximum(rest, 1)
    # Floating point tells all but the last bits. What these are tells the remainder, of which
    # a 64-bit number holds all that matters.
    share: Proportions = (weight / rest * _ONE).astype(np.int64)
    wrapped: Proportions = (weight.astype(np.uint64) << _BITS).view(np.int64) - share * rest
    return (share + wrapped // rest).view(np.uint64)
