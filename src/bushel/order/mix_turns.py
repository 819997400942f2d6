"""Which part of a mixture gives the next element: by a fixed pattern, or by changing weights.

If the weights stay the same, the part is a function of the element's number (see
`order/pattern.py`). If they change, each part is due a share of each element, and gets one as soon
as its shares add up to more than the elements that it got:

    share of part 0       .5   .5   .5   .25  .25  .25  .25
    due, all in all       .5   1.   1.5  1.75 2.   2.25 2.5
    gets element           x         x              x
    ahead by              .5   0.   .5   .25  0.   .75  .5

The share of elements that part 0 does not get is divided among the others in the same way. All the
memory needed is how far each part is ahead. So a mixture can continue from any place, and with
other weights, too: from there on it follows the new weights, and does not make up for earlier
elements.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from bushel.core.frozen import plain
from bushel.core.positions import Keys
from bushel.order.exact_shares import Ahead
from bushel.order.pattern import pattern_of, places_before
from bushel.order.proportions import ProportionTable, Runs, joined, on_lines
from bushel.order.shares import chosen

# Elements chosen at once: few at first, as a user who takes a few should not wait for many; later
# so many that the overhead of numpy's calls for each part no longer matters.
_FIRST_AT_ONCE, _AT_ONCE, _AT_ONCE_OF_MANY = 256, 8192, 16384
_MANY_PARTS = 256


@plain
class Choices:
    """The parts of the next elements, and how far each part is ahead after each of them."""

    which: Keys
    start: Ahead
    # Computes the latter, if there is anything to compute. It is rarely needed.
    behind: Callable[[int], Ahead] | None = None

    def ahead(self, used: int) -> Ahead:
        """How far the parts are ahead after `used` elements."""
        return self.start if not used or self.behind is None else self.behind(used)


class Turns(ABC):
    """Chooses the parts of the next elements."""

    @abstractmethod
    def beginning(self) -> Ahead:
        """How far each part is ahead before the first element."""

    @abstractmethod
    def choose(self, index: int, count: int, ahead: Ahead, stays: Sequence[bool]) -> Choices:
        """Chooses among the parts that stay, from element number `index` on.

        For fewer than `count` elements if no more are known, and for none if no remaining part has
        a weight. Raises the error of a user's function if that is for the first of them.
        """

    def at_once(self, count: int) -> int:
        """The best number to choose at once, if `count` are needed and more are allowed."""
        return count

    def taken_before(self, index: int) -> list[int] | None:
        """The number of elements of each part among the first `count`, if that is arithmetic."""
        return None


class FixedTurns(Turns):
    """Turns in constant proportions."""

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

    def __init__(self, table: ProportionTable, parts: int, lane: tuple[int, int]) -> None:
        self._table, self._parts = table, parts
        self._lane, self._lanes = lane
        # The last answer of the table, and its first element: a block that is cut short is asked
        # for once more.
        self._known: Runs | None = None
        self._known_from = 0
        self._at_once = _FIRST_AT_ONCE

    def beginning(self) -> Ahead:
        # Lanes begin at different places, so that one step of all of them has the right
        # proportions.
        ahead: Ahead = (0,) * self._parts
        if not self._lane:
            return ahead
        steps = self._table.at(np.arange(self._lane, dtype=np.int64))
        return _choose(steps, ahead).ahead(steps.steps)

    def choose(self, index: int, count: int, ahead: Ahead, stays: Sequence[bool]) -> Choices:
        runs = self._runs(index, count)
        if not all(stays):
            runs = _without(runs, stays)
        return _choose(runs, ahead)

    def at_once(self, count: int) -> int:
        # A user's function is only called for the elements that are needed.
        if not self._table.eager:
            return count
        most = _AT_ONCE if self._parts < _MANY_PARTS else _AT_ONCE_OF_MANY
        at_once, self._at_once = self._at_once, min(4 * self._at_once, most)
        return max(count, at_once)

    def _runs(self, index: int, count: int) -> Runs:
        """The proportions of the next elements; element n of all lanes counts as one step."""
        known, have = self._known, 0
        if known is not None and self._known_from <= index:
            known = known.part(index - self._known_from, sys.maxsize)
            have = known.steps
        if have < count:
            rest = np.arange(index + have, index + count, dtype=np.int64)
            try:
                more = self._table.at(rest * self._lanes + self._lane)
            except Exception:
                if not have:
                    raise  # Otherwise the known elements come first.
            else:
                known = joined([known, more]) if known is not None and have else more
            self._known, self._known_from = known, index
        assert known is not None
        return known.part(0, count)


def _without(runs: Runs, stays: Sequence[bool]) -> Runs:
    """The same without some parts, up to an element at which no other part has a weight."""
    if runs.lines is not None:
        left = runs.lines.without(stays)
        empty = np.flatnonzero(left.sums() == 0)
        return on_lines(left.part(0, int(empty[0]) if len(empty) else runs.steps))
    columns = runs.columns * np.array(stays, dtype=np.int64)[:, None]
    without = np.flatnonzero(columns.sum(axis=0) == 0)
    end = int(without[0]) if len(without) else len(runs.sizes)
    return Runs(columns[:, :end], runs.sizes[:end])


def _choose(runs: Runs, ahead: Ahead) -> Choices:
    which, end = chosen(runs, ahead)
    size = len(which)
    # The last place that was asked for: who asks again nearly always asks for a later one.
    known = (0, ahead)

    def behind(used: int) -> Ahead:
        nonlocal known
        if used == size:
            return end
        last = known  # Another thread may ask meanwhile.
        start, before = last if last[0] <= used else (0, ahead)
        if start < used:
            before = chosen(runs.part(start, used), before)[1]
        known = (used, before)
        return before

    return Choices(which, ahead, behind)
