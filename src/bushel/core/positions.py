"""Arrays of positions and of keys: epochs split and joined, ranges, groups, `distinct`.

Positions are 64-bit integers. Later epochs of an endless dataset exceed them; such positions are
arrays of Python integers: slow, rare, and right.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Positions: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[np.int64]

_LAST = np.iinfo(np.int64).max


def positions_of(numbers: Sequence[int]) -> Positions:
    """Makes an array of any integers.

    >>> positions_of([1, 2**70])
    array([1, 1180591620717411303424], dtype=object)
    """
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        return np.array(numbers, dtype=object)


def run_of(start: int, stop: int) -> Positions:
    """Makes the array of the positions from `start` up to `stop`.

    >>> run_of(3, 6)
    array([3, 4, 5])
    """
    if start >= -_LAST and stop <= _LAST:
        return np.arange(start, stop, dtype=np.int64)
    return np.array(range(start, stop), dtype=object)


def split_epochs(positions: Positions, length: int) -> tuple[Any, Positions]:
    """Returns the epochs (one number, if all are the same) and the offsets.

    Blocks nearly always lie within one epoch, and then no division is needed for each position.

    >>> split_epochs(np.array([10, 11]), 10)
    (1, array([0, 1]))
    >>> split_epochs(np.array([9, 10]), 10)
    (array([0, 1]), array([9, 0]))
    """
    count = len(positions)
    if not count:
        return 0, positions
    first = int(positions.item() if count == 1 else positions.min())
    epoch = first // length
    if count == 1 or int(positions.max()) // length == epoch:
        if epoch * length >= -_LAST:
            offsets = positions - epoch * length if epoch else positions
            return epoch, offsets.astype(np.int64, copy=False)
        # The first epoch of all that numpy's integers reach begins before they do.
        return epoch, (positions % length).astype(np.int64, copy=False)
    return positions // length, (positions % length).astype(np.int64, copy=False)


def join_epochs(offsets: Positions, epochs: Any, length: int) -> Positions:
    """Puts offsets back into their epochs: `offsets + epochs * length`, of any size.

    >>> join_epochs(np.array([0, 1]), 1, 10)
    array([10, 11])
    """
    if isinstance(epochs, int) and not epochs:
        return offsets
    furthest = abs(epochs) if isinstance(epochs, int) else int(abs(epochs).max(initial=0))
    if (furthest + 1) * length > _LAST:
        offsets = offsets.astype(object)
        epochs = epochs if isinstance(epochs, int) else epochs.astype(object)
    joined: Positions = offsets + epochs * length
    return joined


def before(places: Positions, stop: int) -> tuple[Positions, Keys]:
    """The places of numbers below `stop`, and these numbers.

    >>> before(np.array([7, 2, 5]), 6)
    (array([2, 5]), array([1, 2]))
    """
    numbers = np.flatnonzero(places < stop)
    return places.take(numbers), numbers


def distinct(numbers: Keys) -> Keys:
    """The distinct numbers, sorted.

    Not by `np.unique`, which imports numpy's masked arrays: 10 ms before the first elements.

    >>> distinct(np.array([7, 3, 7]))
    array([3, 7])
    """
    ordered = np.sort(numbers)
    return ordered[_is_first(ordered)]


def distinct_and_which(numbers: Keys) -> tuple[Keys, Keys]:
    """The distinct numbers, sorted, and the index among them of the number at each place.

    >>> distinct_and_which(np.array([7, 3, 7]))
    (array([3, 7]), array([1, 0, 1]))
    """
    order = numbers.argsort()
    ordered = numbers.take(order)
    is_first = _is_first(ordered)
    which = np.empty(len(numbers), dtype=np.int64)
    which[order] = is_first.cumsum() - 1
    return ordered[is_first], which


def _is_first(ordered: Keys) -> npt.NDArray[np.bool_]:
    is_first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first


def sorted_runs(which: Keys) -> tuple[Keys, list[tuple[int, int, int]]]:
    """The places of numbers in sorted order, and where in these each number begins and ends.

    >>> order, runs = sorted_runs(np.array([7, 3, 7]))
    >>> order.tolist(), runs
    ([1, 0, 2], [(3, 0, 1), (7, 1, 3)])
    >>> sorted_runs(np.array([], dtype=np.int64))[1]
    []
    """
    order = which.argsort(kind="stable")
    if not len(which):
        return order, []
    ordered = which.take(order)
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
    stops = [*starts[1:], len(which)]
    return order, list(zip(ordered.take(starts).tolist(), starts, stops, strict=True))


def occurrences(which: Keys) -> Positions:
    """For each place, how often its number occurs before it.

    >>> occurrences(np.array([7, 3, 7, 7]))
    array([0, 0, 1, 2])
    """
    order = which.argsort(kind="stable")
    ordered = which.take(order)
    places = np.arange(len(which))
    firsts = np.maximum.accumulate(np.where(_is_first(ordered), places, 0))
    counts = np.empty_like(places)
    counts[order] = places - firsts
    return counts


def grouped(which: Keys) -> list[tuple[int, Keys]]:
    """The places of each distinct number, in the order of the numbers.

    >>> grouped(np.array([3, 1, 3]))
    [(1, array([1])), (3, array([0, 2]))]
    """
    order, runs = sorted_runs(which)
    return [(number, order[start:stop]) for number, start, stop in runs]


def group_span(number: int, size: int, length: int, groups: int) -> tuple[int, int]:
    """The positions of the input that make one group of one epoch."""
    epoch, group = divmod(number, groups)
    start = group * size
    return epoch * length + start, epoch * length + min(start + size, length)
