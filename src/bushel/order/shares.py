"""Chooses a mixture's next parts where weights change, by the best of five computations.

There are five ways, which say the same bit by bit: part after part for each element, where parts
are few; the same on lines, where they are many that change all the time (`order/line_shares.py`);
element after element, where these are few; by arithmetic, where proportions stay the same for long;
and both for all others.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from bushel.core.positions import Keys
from bushel.order.exact_shares import ONE_ELEMENT, Ahead, exact_shares, which_fall_due
from bushel.order.line_shares import MOST_STEPS, chosen_on_lines
from bushel.order.proportions import FEWEST_PARTS, Runs
from bushel.order.weight_lines import SHORT_RUN, Proportions

# Up to this number, elements are gone through one by one, if a run has few of them: to go through
# all parts, once or for each run, takes up to eight times as long.
_FEW_ELEMENTS, _FEW_OF_A_RUN = 64, 32
# The same where weights change all the time: to go through all parts takes up to three times as
# long. Of few parts it does not, nor of many thousands, each of which an element has to look at.
_FEW_ON_LINES, _FEW_OF_A_PART, _MOST_PARTS = 512, 8, 1024
# Up to this number of parts nothing is saved where proportions stay the same.
_FEW_PARTS = 32
# Up to this number, runs are gone through one after the other.
_FEW_RUNS = 32
# Shares are added up in two digits, so that sums of many fit into 64 bits.
_DIGIT = 30
_LOW = (1 << _DIGIT) - 1
# Shares that are computed at a time: they stay in the cache of the processor.
_SHARES_AT_ONCE = 1 << 14
# Proportions in memory at a time: 32 MB.
_MOST_IN_A_TABLE = 1 << 22


def chosen(runs: Runs, ahead: Ahead) -> tuple[Keys, Ahead]:
    """Whose turn it is, and how far the parts are ahead in the end."""
    if runs.lines is not None and runs.steps > _FEW_ELEMENTS:
        few = min(_FEW_ON_LINES, _FEW_OF_A_PART * len(ahead))
        if runs.steps <= few and len(ahead) <= _MOST_PARTS:
            return _few_chosen(runs, ahead)
        on_lines = None if runs.steps > MOST_STEPS else chosen_on_lines(runs.lines, ahead)
        if on_lines is not None:
            return on_lines
        if runs.steps > MOST_STEPS or runs.steps * len(ahead) > _MOST_IN_A_TABLE:
            half = runs.steps // 2
            which, ahead = chosen(runs.part(0, half), ahead)
            rest, ahead = chosen(runs.part(half, runs.steps), ahead)
            return np.concatenate([which, rest]), ahead
        runs = Runs(runs.each(), runs.sizes)
    are_few = runs.steps <= min(_FEW_ELEMENTS, _FEW_OF_A_RUN * len(runs.sizes))
    if are_few and len(ahead) >= FEWEST_PARTS:
        return _few_chosen(runs, ahead)
    if len(ahead) <= _FEW_PARTS:
        return chosen_each(runs.each(), ahead)
    if len(runs.sizes) > _FEW_RUNS:
        if runs.steps <= SHORT_RUN * len(runs.sizes):
            return chosen_each(runs.each(), ahead)
        return chosen_by_runs(runs.columns, runs.sizes, ahead)
    found = [np.empty(0, dtype=np.int64)]
    for column, size in zip(runs.columns.T, runs.sizes.tolist(), strict=True):
        some, ahead = chosen_evenly(column, size, ahead)
        found.append(some)
    return np.concatenate(found), ahead


def _few_chosen(runs: Runs, ahead: Ahead) -> tuple[Keys, Ahead]:
    """The same one by one, so many at a time that their shares stay in the cache."""
    at_once = min(_FEW_ELEMENTS, max(1, _SHARES_AT_ONCE // len(ahead)))
    if runs.steps <= at_once:
        return chosen_one_by_one(runs.each(), ahead)
    made: list[Keys] = []
    for start in range(0, runs.steps, at_once):
        some, ahead = chosen_one_by_one(runs.part(start, start + at_once).each(), ahead)
        made.append(some)
    return np.concatenate(made), ahead


def chosen_each(table: Proportions, ahead: Ahead) -> tuple[Keys, Ahead]:
    """The same by a column of proportions for each element.

    Some parts at a time, for the elements that those before have left.
    """
    size = table.shape[1]
    which = np.zeros(size, dtype=np.int64)
    rest = table.sum(axis=0)
    places = np.arange(size)
    end = list(ahead)
    first = 0
    while first < len(table) and len(places):
        stop = first + max(1, _SHARES_AT_ONCE // len(places))
        some = table[first:stop]
        if len(places) < size:
            some = some.take(places, axis=1)
        shares, rest = _shares_in_turn(some, rest)
        left = np.ones(len(places), dtype=np.bool_)
        for number, share in enumerate(shares):
            part = first + number
            gets, end[part] = which_fall_due(share, ahead[part])
            if len(gets):
                which[places.take(gets)] = part
                left[gets] = False
                # Nothing of them is due to the others.
                shares[number + 1 :, gets] = 0
        places, rest = places[left], rest[left]
        first = stop
    return which, tuple(end)


def _shares_in_turn(some: Proportions, rest: Keys) -> tuple[Keys, Keys]:
    """What some parts are due of each element that gets to them, and what is left after them."""
    rests = np.empty((len(some) + 1, len(rest)), dtype=np.int64)
    rests[0] = rest
    for number, weights in enumerate(some):  # `cumsum` over rows takes thirty times as long.
        np.subtract(rests[number], weights, out=rests[number + 1])
    return exact_shares(some, rests[:-1]), rests[-1]


def chosen_one_by_one(table: Proportions, ahead: Ahead) -> tuple[Keys, Ahead]:
    """The same for few elements of many parts."""
    rests = table[::-1].cumsum(axis=0)[::-1]
    shares = np.ascontiguousarray(exact_shares(table, rests).T)
    end = np.array(ahead, dtype=np.int64)
    which: list[int] = []
    for share in shares:
        part = int((share > end).argmax())  # The last that has a weight is due all that is left.
        which.append(part)
        end[:part] -= share[:part]
        end[part] += ONE_ELEMENT - share[part]
    return np.array(which, dtype=np.int64), tuple(end.tolist())


def chosen_evenly(column: Proportions, size: int, ahead: Ahead) -> tuple[Keys, Ahead]:
    """The same where one column holds for all elements.

    What part n leaves is numbered anew for part n + 1. So all that matters to a part is how many
    are left for it: which of them fall to it is arithmetic.
    """
    rests = column[::-1].cumsum()[::-1]
    end, left = list(ahead), size
    taken: list[tuple[int, list[int]]] = []
    for part, share in enumerate(exact_shares(column, rests).tolist()):
        before = ahead[part]
        due = left * share - before
        gets = -(-due // ONE_ELEMENT)
        end[part] = gets * ONE_ELEMENT - due
        if gets:
            taken.append((part, [(n * ONE_ELEMENT + before) // share for n in range(gets)]))
            left -= gets
            if not left:
                break
    # The last part takes of what the others left, so the order is undone from there.
    which: list[int] = []
    for part, places in reversed(taken):
        if not which:
            which = [part] * len(places)
            continue
        for place in places:
            which.insert(place, part)
    return np.array(which, dtype=np.int64), tuple(end)


def chosen_by_runs(columns: Proportions, sizes: Keys, ahead: Ahead) -> tuple[Keys, Ahead]:
    """The same for many runs, each with a column of its own.

    Part after part, for all runs together. What is left of a run for a part is a number; which of
    them fall to the part are numbers again, and are put in their places in the end.
    """
    left, end = sizes.copy(), list(ahead)
    taken: list[tuple[int, list[int], list[int]]] = []
    rest = columns.sum(axis=0)
    # The runs of which anything is left.
    numbers = np.arange(len(sizes))
    remaining, first = int(left.sum()), 0
    while first < len(columns) and remaining:
        if not left.all():
            there = np.flatnonzero(left)
            numbers, left, rest = numbers[there], left[there], rest[there]
        stop = first + max(1, _SHARES_AT_ONCE // len(left))
        some = columns[first:stop]
        if len(left) < len(sizes):
            some = some.take(numbers, axis=1)
        shares, rest = _shares_in_turn(some, rest)
        high_sum, low_sum = np.empty((2, len(left)), dtype=np.int64)
        highs, lows = shares >> _DIGIT, shares & _LOW
        for part, (high, low) in enumerate(zip(highs, lows, strict=True), first):
            np.multiply(high, left, out=high_sum).cumsum(out=high_sum)
            np.multiply(low, left, out=low_sum).cumsum(out=low_sum)
            before = ahead[part]
            due = (int(high_sum[-1]) << _DIGIT) + int(low_sum[-1]) - before
            gets = -(-due // ONE_ELEMENT)
            end[part] = gets * ONE_ELEMENT - due
            if not gets:
                continue
            runs, places = _fall_due(
                before, gets, remaining, shares[part - first], left, high_sum, low_sum
            )
            taken.append((part, numbers.take(runs).tolist(), places))
            np.subtract.at(left, runs, 1)
            remaining -= gets
            if not remaining:
                break
        first = stop
    return _in_place(taken, len(sizes)), tuple(end)


def _fall_due(
    before: int, gets: int, slack: int, shares: Keys, left: Keys, high_sum: Keys, low_sum: Keys
) -> tuple[list[int], list[int]]:
    """The runs in which a part gets an element, and which of those that are left in them."""
    # Element n comes where more than this has fallen due.
    wanted = range(before, before + gets * ONE_ELEMENT, ONE_ELEMENT)
    # By the high digits alone, which are too little by one for each element at the most.
    first = (before >> _DIGIT) - slack
    high = np.arange(first, first + (gets << _DIGIT), 1 << _DIGIT)
    runs = high_sum.searchsorted(high, side="right")
    after = zip(high_sum.take(runs).tolist(), low_sum.take(runs).tolist(), strict=True)
    until = [(high << _DIGIT) + low for high, low in after]
    found, places = runs.tolist(), []
    there = zip(wanted, shares.take(runs).tolist(), left.take(runs).tolist(), strict=True)
    for number, (due, share, count) in enumerate(there):
        if until[number] <= due:
            # Not certain, and one further on, nearly always.
            run = found[number]
            while until[number] <= due:
                run += 1
                until[number] = (int(high_sum[run]) << _DIGIT) + int(low_sum[run])
            found[number], share, count = run, int(shares[run]), int(left[run])
        places.append((due + count * share - until[number]) // share if count > 1 else 0)
    return found, places


def _in_place(taken: Sequence[tuple[int, Sequence[int], Sequence[int]]], runs: int) -> Keys:
    """The parts of all elements, each in its place among what those before it have left."""
    which: list[list[int]] = [[] for _ in range(runs)]
    for part, numbers, places in reversed(taken):
        for number, place in zip(numbers, places, strict=True):
            which[number].insert(place, part)
    return np.array(list(chain.from_iterable(which)), dtype=np.int64)
