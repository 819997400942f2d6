"""Which parts of a mixture get the next elements, where weights change all the time.

What each part is due of each element is a number of its own, so it is computed for each. But no
table of them is kept: a thousand parts of ten thousand elements would not fit into the cache of the
processor. Weights are on lines; so they are computed once for the sum of all, and once more for
those parts that an element gets to. All in floating point, in which whole numbers are exact, and
which processors compute several of at a time.
"""

import numpy as np

from bushel.core.positions import Keys
from bushel.order.due import EXACT, ONE_ELEMENT, Ahead, exact_shares, which_fall_due
from bushel.order.line_columns import AT_ONCE, LineColumns, rows_of
from bushel.order.weight_lines import Floats

# Added to a number below it, this leaves the number in the last bits.
_LAST_BITS = 1 << 52
# Shares are computed as two digits.
_DIGIT = 1 << 30
# Sums below this fit into 64 bits.
_LARGEST = 2.0**62
_NONE = np.empty(0, dtype=np.int64)
# Of elements that are given away, as many are passed over before they are left out.
_PASSED_OVER = 1 / 8


def chosen_on_lines(columns: LineColumns, ahead: Ahead) -> tuple[Keys, Ahead] | None:
    """Whose turn it is, and how far the parts are ahead in the end.

    None where numbers are too large for that, or a step has no weights.
    """
    rest = columns.sums()
    if not len(rest) or rest.max() >= EXACT or rest.min() <= 0:
        return None
    if max(columns.low.max(), columns.high.max()) * columns.scale.max() * _DIGIT >= EXACT:
        return None
    which = np.zeros(len(rest), dtype=np.int64)
    places, way, scale = np.arange(len(rest)), columns.way, columns.scale.copy()
    end = list(ahead)
    parts = np.flatnonzero((columns.low > 0) | (columns.high > 0))
    # How many of the places were given away.
    given = first = 0
    while first < len(parts) and given < len(places):
        numbers = parts[first : first + max(1, AT_ONCE // len(places))]
        rows = rows_of(columns.low[numbers], columns.high[numbers], way, scale)
        shares, rest, are_small = _shares(rows, rest, given)
        fall_due = _which_fall_due if are_small else which_fall_due
        for number, (part, share) in enumerate(zip(numbers.tolist(), shares, strict=True)):
            gets, end[part] = fall_due(share, ahead[part])
            if len(gets):
                which[places.take(gets)] = part
                # Nothing of them is due to the others.
                shares[number + 1 :, gets] = 0
                scale[gets] = 0
                given += len(gets)
        first += len(numbers)
        if given > _PASSED_OVER * len(places):
            left = np.flatnonzero(scale)
            places, way = places.take(left), way.take(left)
            scale, rest = scale.take(left), rest.take(left)
            given = 0
    return which, tuple(end)


def _which_fall_due(share: Keys, before: int) -> tuple[Keys, int]:
    """Which of the elements a part gets, and how far it is ahead then; of small sums."""
    due = share.cumsum()
    last = int(due[-1]) - before
    if last <= 0:
        return _NONE, -last
    count = -(-last // ONE_ELEMENT)
    wanted = np.arange(count) * ONE_ELEMENT + before
    return due.searchsorted(wanted, side="right"), count * ONE_ELEMENT - last


def _shares(rows: Floats, rest: Floats, given: int) -> tuple[Keys, Floats, bool]:
    """What some parts are due of each element that gets to them, and what is left after them.

    So many of the elements are `given` away: of those, no part has any. Also says whether what a
    part is due of all of them is small enough to be added up.
    """
    rests = np.empty((len(rows) + 1, len(rest)))
    rests[0] = rest
    for number, row in enumerate(rows):
        np.subtract(rests[number], row, out=rests[number + 1])
    if rests[-2].min() <= 0:
        # Only where elements were given away may there be nothing left.
        np.maximum(rests, 1, out=rests)
    divisors = rests[:-1]
    # Two digits, by two divisions. Each is rounded, by less than half of its last bit. So its whole
    # part is the right one, unless it is a whole number: then it may have been rounded up to that.
    scaled_divisors = divisors * (1 / _DIGIT)
    quotients = rows / scaled_divisors
    largest = float(quotients.max()) * _DIGIT
    high: Floats = np.floor(quotients)
    np.multiply(high, divisors, out=quotients)
    remainders = rows * _DIGIT
    remainders -= quotients
    is_exact = remainders.min() >= 0
    remainders /= scaled_divisors
    low: Floats = np.floor(remainders)
    if not is_exact or np.count_nonzero(low == remainders) != given * len(rows):
        shares = exact_shares(rows.astype(np.int64), divisors.astype(np.int64))
    elif largest < _LAST_BITS:
        high *= _DIGIT
        high += low
        high += _LAST_BITS
        shares = high.view(np.int64)
        shares &= _LAST_BITS - 1
    else:
        shares = high.astype(np.int64) * _DIGIT
        shares += low.astype(np.int64)
    return shares, rests[-1], largest * len(rest) < _LARGEST
