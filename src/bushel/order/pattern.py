"""The pattern of a mixture with fixed weights: which part, and its element, at each position.

Parts are served one after the other. The first takes its share of all positions, spread as evenly
as possible; the positions left over are numbered anew, and the next part takes its share of those:

    all positions     0  1  2  3  4  5  6  7
    part 0 of 1:1:2   x           x
    left              .  0  1  2  .  3  4  5
    part 1 of 1:2        x           x
    left                 .  0  1     .  2  3       all of them part 2's

So locating a position takes a division for each part before its own: too many, for each element,
with a thousand parts. But neighbouring positions are neighbours for every part as well, and the
places that a part takes among them follow from arithmetic. And the pattern is periodic. So whole
stretches of it are computed, and cached.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bushel.core.positions import Keys, Positions, grouped, occurrences, split_epochs

# Positions in a stretch. It takes a few numpy calls for each part, however short it is.
_STRETCH = 8192
# The most cached stretches: a million positions, nearly always a whole period.
_MOST_KEPT = 128
# The number of positions for which locating one by one costs as much as their whole stretch.
_AS_MANY = 64
# The number of positions above which it is cheaper to compute part by part than one by one.
_TOGETHER = 160
# The number of parts above which each has so few places in a stretch that plain numbers are faster.
_MANY_PARTS = 512
# Up to this period, all products fit into 64 bits.
_LONGEST = 1 << 48


class Pattern:
    """Locates positions of a mixture. Any number of threads may share a pattern."""

    def __init__(self, proportions: Sequence[int]) -> None:
        shared = math.gcd(*proportions)
        self._weights = [weight // shared for weight in proportions]
        self._period = rest = sum(self._weights)
        # Sums of weights: of each part and all later parts, and of the later parts alone.
        self._rests: list[tuple[int, int]] = []
        for weight in self._weights:
            self._rests.append((rest, rest - weight))
            rest -= weight
        # Cached stretches of the period by number, the latest last; and the number of positions
        # asked for in stretches that are not cached.
        self._kept: dict[int, tuple[Keys, Positions]] = {}
        self._missed: dict[int, int] = {}
        # The number of stretches computed, for tests.
        self.made = 0

    def locate(self, positions: Positions) -> tuple[Keys, Positions]:
        """The part at each position, and the position in that part."""
        if not len(positions):
            return np.empty(0, dtype=np.int64), positions[:0]
        if self._period > _LONGEST:
            return self._by_parts(positions)
        epochs, places = split_epochs(positions, self._period)
        which, where = self._in_period(places)
        if isinstance(epochs, int) and not epochs:
            return which, where
        # A period has as many elements of a part as its weight.
        dtype = object if positions.dtype == object else np.int64
        each = np.array(self._weights, dtype=dtype).take(which)
        return which, where + epochs * each

    def find(self, part: int, places: Positions) -> Positions:
        """The positions at which elements of a part come: the inverse of `locate`."""
        rest, further = self._rests[part]
        here: Any = places
        furthest = int(places.max(initial=0)) + 2
        if furthest * self._period * self._period > np.iinfo(np.int64).max:
            here = places.astype(object)
        here = here * rest // (rest - further)
        for rest, further in reversed(self._rests[:part]):
            # Among the remaining positions, the next one is where the number remaining grows.
            here = -(-(here + 1) * rest // further) - 1
        found: Positions = here
        if here.dtype == object and int(max(here, default=0)) <= np.iinfo(np.int64).max:
            found = here.astype(np.int64)
        return found

    def _in_period(self, places: Positions) -> tuple[Keys, Positions]:
        number = int(places[0]) // _STRETCH
        start = number * _STRETCH
        if int(places.min()) >= start and int(places.max()) < start + _STRETCH:
            stretch = self._stretch(number, len(places))
            if stretch is None:
                return self._directly(places)
            which, where = stretch
            return which.take(places - start), where.take(places - start)
        which, where = np.empty((2, len(places)), dtype=np.int64)
        absent: list[Keys] = []
        for number, mine in grouped(places // _STRETCH):
            stretch = self._stretch(number, len(mine))
            if stretch is None:
                absent.append(mine)
                continue
            offsets = places.take(mine) - number * _STRETCH
            which[mine], where[mine] = stretch[0].take(offsets), stretch[1].take(offsets)
        if absent:
            mine = np.concatenate(absent)
            which[mine], where[mine] = self._directly(places.take(mine))
        return which, where

    def _stretch(self, number: int, count: int) -> tuple[Keys, Positions] | None:
        """The stretch with the `count` positions that are needed; None if it is not worth it."""
        stretch = self._kept.get(number)
        if stretch is not None:
            return stretch
        missed = self._missed.pop(number, 0) + count
        if missed < _AS_MANY:
            if len(self._missed) > 8 * _MOST_KEPT:
                self._missed = {}
            self._missed[number] = missed
            return None
        start = number * _STRETCH
        stretch = self._make(start, min(start + _STRETCH, self._period))
        kept = {**self._kept, number: stretch}
        while len(kept) > _MOST_KEPT:
            del kept[next(iter(kept))]
        self._kept = kept
        return stretch

    def _make(self, start: int, stop: int) -> tuple[Keys, Positions]:
        """A stretch of the pattern: the part of each position, and the position in that part."""
        self.made += 1
        if len(self._weights) >= _MANY_PARTS:
            return self._insert(start, stop)
        which, where = np.empty((2, stop - start), dtype=np.int64)
        # The places that no part has taken yet: for every part, neighbours from `start` on.
        left = np.arange(stop - start)
        for part, (weight, (rest, further)) in enumerate(
            zip(self._weights, self._rests, strict=True)
        ):
            start_left, stop_left = start * further // rest, stop * further // rest
            first, count = start - start_left, stop - stop_left - (start - start_left)
            if count:
                # Element j comes at number j * rest // weight of the places left for it and later
                # parts.
                before, fraction = divmod(first * rest, weight)
                steps = np.arange(count)
                taken = (steps * rest + fraction) // weight + (before - start)
                places = left.take(taken)
                which[places] = part
                where[places] = steps + first
                stays = np.ones(len(left), dtype=bool)
                stays[taken] = False
                left = left[stays]
            if start_left == stop_left:
                break
            start, stop = start_left, stop_left
        return which, where

    def _insert(self, start: int, stop: int) -> tuple[Keys, Positions]:
        """The same for parts that have few places each, with plain numbers."""
        taken: list[tuple[int, list[int]]] = []
        firsts = np.zeros(len(self._weights), dtype=np.int64)
        for part, (weight, (rest, further)) in enumerate(
            zip(self._weights, self._rests, strict=True)
        ):
            start_left, stop_left = start * further // rest, stop * further // rest
            firsts[part] = first = start - start_left
            count = stop - stop_left - first
            if count:
                before, fraction = divmod(first * rest, weight)
                skipped = before - start
                places = [(n * rest + fraction) // weight + skipped for n in range(count)]
                taken.append((part, places))
            if start_left == stop_left:
                break
            start, stop = start_left, stop_left
        # A later part takes places left by earlier ones, so the order is undone from the last one.
        part, places = taken.pop()
        made = [part] * len(places)
        for part, places in reversed(taken):
            for place in places:
                made.insert(place, part)
        which = np.array(made, dtype=np.int64)
        return which, firsts.take(which) + occurrences(which)

    def _directly(self, places: Positions) -> tuple[Keys, Positions]:
        if len(places) >= _TOGETHER:
            return self._by_parts(places)
        located = np.array([self._locate_one(place) for place in places.tolist()], dtype=np.int64)
        return located[:, 0], located[:, 1]

    def _locate_one(self, place: int) -> tuple[int, int]:
        for part, (rest, further) in enumerate(self._rests):
            left = place * further // rest
            if left == (place + 1) * further // rest:
                return part, place - left
            place = left
        raise AssertionError("the last part takes what the others leave")

    def _by_parts(self, positions: Positions) -> tuple[Keys, Positions]:
        """Locates any positions, part by part."""
        count = len(positions)
        which = np.zeros(count, dtype=np.int64)
        where = np.zeros(count, dtype=positions.dtype)
        # How many of the first k, and of the first k + 1, positions are left from this part on. A
        # part takes position k when its share grows by one there.
        before: Any = positions
        if self._period * (int(abs(positions).max()) + 1) > np.iinfo(np.int64).max:
            before = positions.astype(object)
        after = before + 1
        open_places = np.arange(count)
        for part, (rest, further) in enumerate(self._rests):
            left_before = before * further // rest
            left_after = after * further // rest
            mine = np.asarray(left_before == left_after, dtype=bool)
            taken = open_places[mine]
            which[taken] = part
            where[taken] = (before - left_before)[mine]
            others = ~mine
            open_places = open_places[others]
            before, after = left_before[others], left_after[others]
            if not len(open_places):
                break
        return which, where


@lru_cache(maxsize=16)
def pattern_of(proportions: tuple[int, ...]) -> Pattern:
    """The pattern of a mixture; the same object for all mixtures with these proportions."""
    return Pattern(proportions)


def places_before(position: int, proportions: Sequence[int]) -> list[int]:
    """The number of positions of each part before a position.

    >>> places_before(5, (1, 2))
    [2, 3]
    """
    rest, before, places = sum(proportions), position, []
    for weight in proportions:
        left = before * (rest - weight) // rest
        places.append(before - left)
        before, rest = left, rest - weight
    return places
