"""Chooses the bin of each sequence for `pack`, by first fit or best fit, as loops over numbers.

Everything here is numbers. Many sequences are placed at once, as packing spends its time in the
loop over them.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import add, gt, lshift

from bushel.core.frozen import plain

# The number of bins in a block; one comparison tells whether any of them has room.
_BLOCK = 8


@plain
class Limits:
    """The properties of all bins: length and alignment of each feature."""

    bins: int
    lengths: list[int]
    alignments: list[int]
    most_in_bin: int | None


class Fit(ABC):
    """Bins, how full they are, and their sequences."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # The start of the next sequence in each bin.
        self.starts = [0] * limits.bins
        self.counts = [0] * limits.bins
        # For each sequence: its bin, its number in the bin from 1, and its start.
        self.chosen: list[int] = []
        self.numbers: list[int] = []
        self.begins: list[int] = []

    @abstractmethod
    def lay(self, sizes: Sequence[Sequence[int]], start: int) -> int:
        """Places sequences from `start` on, as many as find room, and returns their number."""

    def begins_of(self, feature: int) -> list[int]:
        """The starts of a feature's sequences in their bins."""
        return self.begins  # All features have the same length here.


class FirstOfOne(Fit):
    """First fit with one feature."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        # The fill of the emptiest bin in each block.
        self._lows = [0] * -(-limits.bins // _BLOCK)

    def lay(self, sizes: Sequence[Sequence[int]], start: int) -> int:
        length, alignment = self.limits.lengths[0], self.limits.alignments[0]
        most, starts, counts, lows = (
            self.limits.most_in_bin,
            self.starts,
            self.counts,
            self._lows,
        )
        chosen, numbers, begins = self.chosen, self.numbers, self.begins
        before = len(chosen)
        for size in islice(sizes[0], start, None):
            last = length - size
            block = 0
            for low in lows:
                if low <= last:
                    break
                block += 1
            else:
                break
            number = first = block * _BLOCK
            while starts[number] > last:
                number += 1
            begin = starts[number]
            end = begin + size
            if alignment > 1:
                end = -(-end // alignment) * alignment
            count = counts[number] = counts[number] + 1
            if count == most:
                end = length + 1  # Nothing fits any more, not even an empty sequence.
            starts[number] = end
            if begin == low:
                lows[block] = min(starts[first : first + _BLOCK])
            chosen.append(number)
            numbers.append(count)
            begins.append(begin)
        return len(chosen) - before


class BestOfOne(Fit):
    """Best fit with one feature."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        # Bins by fill; of equally full ones the first comes last.
        self._order = list(range(limits.bins))

    def lay(self, sizes: Sequence[Sequence[int]], start: int) -> int:
        length, alignment = self.limits.lengths[0], self.limits.alignments[0]
        most, starts, counts, order = (
            self.limits.most_in_bin,
            self.starts,
            self.counts,
            self._order,
        )
        chosen, numbers, begins = self.chosen, self.numbers, self.begins
        before, bins, highest = len(chosen), self.limits.bins, self.limits.bins - 1
        for size in islice(sizes[0], start, None):
            place = bisect_right(order, (length - size) * bins + highest) - 1
            if place < 0:
                break
            number = highest - order.pop(place) % bins
            begin = starts[number]
            end = begin + size
            if alignment > 1:
                end = -(-end // alignment) * alignment
            count = counts[number] = counts[number] + 1
            if count == most:
                end = length + 1
            starts[number] = end
            insort(order, end * bins + highest - number)
            chosen.append(number)
            numbers.append(count)
            begins.append(begin)
        return len(chosen) - before


class OfMany(Fit):
    """Bins of several features.

    The starts in all features are one number: each feature has some bits of it, with a free bit
    above them. So one subtraction compares all features: a free bit, set before, is cleared by a
    borrow if that feature has too little room.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        # Beyond any possible start, alignment included.
        most = max(map(add, limits.lengths, limits.alignments)) + 1
        width = most.bit_length() + 1
        self._shifts = [number * width for number in range(len(limits.lengths))]
        self._mask = (1 << width - 1) - 1
        self._free = self._packed([1 << width - 1] * len(limits.lengths))
        # The room beside an empty sequence.
        self._room = self._packed(limits.lengths) + self._free
        self._aligns = set(limits.alignments) != {1}
        self._look()

    def _packed(self, values: Iterable[int]) -> int:
        return sum(map(lshift, values, self._shifts))

    def _unpacked(self, packed: int) -> list[int]:
        return [packed >> shift & self._mask for shift in self._shifts]

    def begins_of(self, feature: int) -> list[int]:
        shift, mask = self._shifts[feature], self._mask
        return [begin >> shift & mask for begin in self.begins]

    def go_on(self, one: Fit) -> None:
        """Continues after elements whose features were equally long, with some that are not."""
        self.counts, self.chosen, self.numbers = one.counts, one.chosen, one.numbers
        each = self._packed([1] * len(self._shifts))
        self.starts = [start * each for start in one.starts]
        self.begins = [begin * each for begin in one.begins]
        self._look()

    @abstractmethod
    def _find(self, room: int, lengths: Sequence[int]) -> int:
        """The bin for a sequence that leaves this room beside it; -1 if there is none."""

    def _look(self) -> None:
        """Reads the fill of the bins, if they are kept in order."""

    def _note(self, number: int) -> None:
        """Notes that a bin was filled further."""

    def lay(self, sizes: Sequence[Sequence[int]], start: int) -> int:
        limits, starts, before = self.limits, self.starts, len(self.chosen)
        for lengths in islice(zip(*sizes, strict=True), start, None):
            if any(map(gt, lengths, limits.lengths)):
                break
            size = self._packed(lengths)
            number = self._find(self._room - size, lengths)
            if number < 0:
                break
            begin = starts[number]
            starts[number] = begin + size
            count = self.counts[number] = self.counts[number] + 1
            if self._aligns or count == limits.most_in_bin:
                starts[number] = self._end(begin + size, count == limits.most_in_bin)
            self.chosen.append(number)
            self.numbers.append(count)
            self.begins.append(begin)
            self._note(number)
        return len(self.chosen) - before

    def _end(self, packed: int, is_full: bool) -> int:
        """The start of the next sequence, after the last one."""
        limits = self.limits
        if is_full:
            return self._packed(length + 1 for length in limits.lengths)  # Nothing fits any more.
        return self._packed(
            -(-end // step) * step
            for end, step in zip(self._unpacked(packed), limits.alignments, strict=True)
        )


class FirstOfMany(OfMany):
    """First fit with several features."""

    def _find(self, room: int, lengths: Sequence[int]) -> int:
        free = self._free
        for number, start in enumerate(self.starts):
            if (room - start) & free == free:
                return number
        return -1


class BestOfMany(OfMany):
    """Best fit with several features: their remaining room is summed."""

    def _look(self) -> None:
        # Bins by fill; of equally full ones the first comes last.
        self._keys = [self._key(number) for number in range(self.limits.bins)]
        self._order = sorted(self._keys)
        self._all = sum(self.limits.lengths)

    def _key(self, number: int) -> int:
        full = sum(self._unpacked(self.starts[number]))
        return full * self.limits.bins + self.limits.bins - 1 - number

    def _find(self, room: int, lengths: Sequence[int]) -> int:
        order, bins, free = self._order, self.limits.bins, self._free
        last = self._all - sum(lengths)
        # A bin whose sum is larger than this is too full in some feature.
        for place in range(bisect_right(order, last * bins + bins - 1) - 1, -1, -1):
            number = bins - 1 - order[place] % bins
            if (room - self.starts[number]) & free == free:
                return number
        return -1

    def _note(self, number: int) -> None:
        order = self._order
        del order[bisect_left(order, self._keys[number])]
        self._keys[number] = self._key(number)
        insort(order, self._keys[number])
