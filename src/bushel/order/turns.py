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
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.frozen import plain
from bushel.core.positions import Keys
from bushel.order.mix import places_before
from bushel.order.pattern import pattern_of
from bushel.order.schedule import Points, Proportions, Table

# How far each part is ahead of its share, in units of 2**-60 elements. Shares are rounded
# down to that. So fixed weights give the order of a `Pattern`, for as many elements as their
# sum goes into 2**60: a weight that never falls due too early falls due in time.
Ahead: TypeAlias = tuple[int, ...]
# With fewer elements at a time, what a step of numpy costs for each part is more than what it
# does. But whoever takes a few does not wait for many, and a table of all weights is in memory.
_FIRST_AT_ONCE, _AT_ONCE = 256, 2048
_MOST_WEIGHTS = 1 << 23
_BITS = np.uint64(60)
_ONE = 1 << 60
_FRACTION = np.uint64(_ONE - 1)

_Counts = npt.NDArray[np.uint64]


@plain
class Choices:
    """Which parts give the next elements, and how far each part is ahead after each of them."""

    which: Keys
    start: Ahead
    # Tells the latter, where there is anything to tell. It is rarely asked.
    behind: Callable[[int], Ahead] | None = None

    def ahead(self, used: int) -> Ahead:
        """How far the parts are ahead after `used` elements."""
        return self.start if not used or self.behind is None else self.behind(used)


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

    def at_once(self, count: int) -> int:
        """How many had better be chosen, where so many are needed and more may be."""
        return count

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
        self._at_once = _FIRST_AT_ONCE

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

    def at_once(self, count: int) -> int:
        # A user's function is only asked for what is needed.
        if not isinstance(self._table, Points):
            return count
        at_once, self._at_once = self._at_once, _AT_ONCE
        return max(count, min(at_once, _MOST_WEIGHTS // self._parts))

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
    which, end = _chosen(table, ahead)
    size = len(which)

    def behind(used: int) -> Ahead:
        return end if used == size else _chosen(table[:, :used], ahead)[1]

    return Choices(which, ahead, behind)


def _chosen(table: Proportions, ahead: Ahead) -> tuple[Keys, Ahead]:
    """Whose turn it is, by columns of proportions, and how far the parts are ahead in the end."""
    size = table.shape[1]
    which = np.zeros(size, dtype=np.int64)
    rest = table.sum(axis=0)
    # The elements that no part before this one gets.
    places = np.arange(size)
    end = list(ahead)
    for part, weights in enumerate(table):
        if not len(places):
            break
        weight = weights if len(places) == size else weights.take(places)
        if not weight.any():  # It has ended, or has no weight for now: it stays where it is.
            continue
        share = _shares(weight, rest)
        # Sums wrap around, and so does the difference: what is left are fractions.
        after = (np.uint64(ahead[part]) - share.cumsum(dtype=np.uint64)) & _FRACTION
        end[part] = int(after[-1])
        after += share
        after &= _FRACTION
        gets = share > after
        which[places[gets]] = part
        others = ~gets
        places, rest = places[others], (rest - weight)[others]
    return which, tuple(end)


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
