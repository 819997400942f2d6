"""Chooses a mixture's next parts where there are many, whose weights are on a schedule's lines.

What each part is due of each element is a number of its own, so it is computed for each. But no
table of them is kept: a thousand parts of ten thousand elements would not fit into the cache of the
processor. Weights are on lines; so they are computed once for the sum of all, and once more for
those parts that an element gets to. All in floating point, in which whole numbers are exact, and
which processors compute several of at a time; and all in a few arrays that are used again for the
next parts, since fresh memory takes longer than what is computed in it.

A share is two digits. The first is a multiple of 2**bits, and the nearest one, so the second may be
negative. The first ones are added up in whole numbers from element to element, which nearly always
tells where a part falls due; of the second ones the sum of all is enough:

    first digits, added up      41    83   124   165   206       in units of 2**bits
    second ones, at most         1     2     3     4     5
    due at 125: 124 + 3 may be or not, 165 - 4 is                added up exactly, for 124 alone
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys
from bushel.order.exact_shares import EXACT, ONE_ELEMENT, Ahead
from bushel.order.line_columns import AT_ONCE, LineColumns, rows_of
from bushel.order.weight_lines import Floats

# So many steps at the most: the second digits of all of them are added up in floating point.
MOST_STEPS = 1 << 15
# Bits of the second digit: as few as leave room for weights times the first one, and no more than
# can be added up.
_FEWEST_BITS, _MOST_BITS = 20, 38
_NONE = np.empty(0, dtype=np.int64)
# Of elements that are given away, as many are passed over before they are left out.
_PASSED_OVER = 1 / 8


def chosen_on_lines(columns: LineColumns, ahead: Ahead) -> tuple[Keys, Ahead] | None:
    """Whose turn it is, and how far the parts are ahead in the end.

    None where numbers are too large for that, or a step has no weights.
    """
    rest = columns.sums()
    if not 0 < len(rest) <= MOST_STEPS or rest.max() >= EXACT / 2 or rest.min() <= 0:
        return None
    # A weight times the first digit of its share is a whole number below EXACT / 2.
    largest = max(columns.low.max(), columns.high.max()) * columns.scale.max()
    bits = max(_FEWEST_BITS, int(largest * (2 * ONE_ELEMENT / EXACT)).bit_length())
    if bits > _MOST_BITS:
        return None
    which = np.zeros(len(rest), dtype=np.int64)
    places, way, scale = np.arange(len(rest)), columns.way, columns.scale.copy()
    end = list(ahead)
    parts = np.flatnonzero((columns.low > 0) | (columns.high > 0))
    scratch = np.empty((4, max(AT_ONCE, len(rest))))
    # How many of the places were given away.
    given = first = 0
    while first < len(parts) and given < len(places):
        numbers = parts[first : first + max(1, AT_ONCE // len(places))]
        size = len(numbers) * len(places)
        arrays = scratch[:, :size].reshape(4, len(numbers), -1)
        rows, room, *digits = arrays
        rows_of(columns.low[numbers], columns.high[numbers], way, scale, rows)
        high, low = _shares(rows, rest, bits, given, room, digits)
        for number, part in enumerate(numbers.tolist()):
            gets, end[part] = _which_fall_due(high[number], low[number], bits, ahead[part])
            if len(gets):
                which[places.take(gets)] = part
                if number + 1 < len(numbers):
                    # Nothing of them is due to the others: both digits are 0, which are the same
                    # bits in a whole number and in floating point.
                    arrays[2:, number + 1 :, gets] = 0
                scale[gets] = 0
                given += len(gets)
        first += len(numbers)
        if given > _PASSED_OVER * len(places):
            left = np.flatnonzero(scale)
            places, way = places.take(left), way.take(left)
            scale, rest = scale.take(left), rest.take(left)
            given = 0
    return which, tuple(end)


def _shares(
    rows: Floats, rest: Floats, bits: int, given: int, shares: Floats, digits: Sequence[Floats]
) -> tuple[Keys, Floats]:
    """What some parts are due of each element that gets to them, in two digits.

    Takes it off the `rest`. So many of the elements are `given` away: of those, no part has any.
    The digits are written to the arrays for them, and `shares` is overwritten.
    """
    highs, divisors = digits
    is_close = rest.max() >= 2.0 ** (54 - bits)
    # None is 0: all of these parts have a weight at each step, and so has the last of all.
    for row, divisor in zip(rows, divisors, strict=True):
        np.multiply(rest, 1 / ONE_ELEMENT, out=divisor)
        rest -= row
    np.divide(rows, divisors, out=shares)
    # Added to a number far below it, this leaves in the last bits how many units there are in it.
    units = np.float64(1.5 * 2.0 ** (52 + bits))
    shares += units
    high = np.subtract(shares.view(np.int64), units.view(np.int64), out=highs.view(np.int64))
    shares -= units
    shares *= divisors
    np.subtract(rows, shares, out=shares)  # What the first digit leaves: exact.
    shares /= divisors
    # A quotient is rounded, by less than half of its last bit. So its whole part is the right one,
    # unless it is a whole number: then it may have been rounded up to that.
    low = np.floor(shares, out=divisors)
    if is_close and np.count_nonzero(low == shares) != given * len(rows):
        parts, places = np.nonzero(low == shares)
        divided_by = rest + rows[::-1].cumsum(axis=0)[::-1]
        low[parts, places] -= _are_too_large(
            (high[parts, places] << bits) + low[parts, places].astype(np.int64),
            rows[parts, places].astype(np.int64),
            divided_by[parts, places].astype(np.int64),
        )
    return high, low


def _are_too_large(shares: Keys, weights: Keys, rests: Keys) -> npt.NDArray[np.bool_]:
    """Which shares are too large by one."""
    # Of what remains, a 64-bit number holds all that matters.
    return (weights << ONE_ELEMENT.bit_length() - 1) - shares * rests < 0


def _which_fall_due(high: Keys, low: Floats, bits: int, before: int) -> tuple[Keys, int]:
    """Which of the elements a part gets, and how far it is ahead then; adds up the first digits."""
    np.add.accumulate(high, out=high)
    # Not a product with ones, which is faster: BLAS may start threads for it.
    last = (int(high[-1]) << bits) + int(np.add.reduce(low)) - before
    if last <= 0:
        return _NONE, -last
    count = -(-last // ONE_ELEMENT)
    # Element n comes where more than first + n * step has fallen due.
    first, step = before >> bits, ONE_ELEMENT >> bits
    # Second digits are below half of a unit, or hardly above it.
    most = len(high)
    at_least = np.arange(first - most, first - most + count * step, step)
    gets = high.searchsorted(at_least)
    doubtful = high.take(gets) <= at_least + 2 * most
    if np.count_nonzero(doubtful):
        for number in np.flatnonzero(doubtful).tolist():
            wanted = first + number * step
            start, stop = int(gets[number]), int(high.searchsorted(wanted + most, side="right")) + 1
            sums = low[start:stop].cumsum() + low[:start].sum()
            over = ((high[start:stop] - wanted) << bits) + sums.astype(np.int64)
            gets[number] = start + (over > before % (1 << bits)).argmax()
    return gets, count * ONE_ELEMENT - last
