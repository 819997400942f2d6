"""Exact integer arithmetic for mixtures: which elements fall due to a part, by its share."""

from typing import TypeAlias

import numpy as np

from bushel.core.positions import Keys
from bushel.order.weight_lines import Proportions

# How far each part is ahead of its share, in units of 2**-60 elements. Shares are rounded
# down to that. So fixed weights give the order of a `Pattern`, for as many elements as their
# sum goes into 2**60: a weight that never falls due too early falls due in time.
Ahead: TypeAlias = tuple[int, ...]
_BITS = 60
ONE_ELEMENT = 1 << _BITS
_FRACTION = np.uint64(ONE_ELEMENT - 1)
# Whole numbers below this are exact in floating point.
EXACT = 1 << 53


def which_fall_due(share: Keys, before: int) -> tuple[Keys, int]:
    """Which of the elements a part gets, and how far it is ahead then."""
    # Sums wrap around, and so does the difference: what is left are fractions.
    after = (np.uint64(before) - share.view(np.uint64).cumsum()) & _FRACTION
    end = int(after[-1])
    after += share.view(np.uint64)
    return np.flatnonzero(after >= ONE_ELEMENT), end


def exact_shares(weight: Proportions, rest: Proportions) -> Keys:
    """weight / rest in units of 2**-60, rounded down.

    >>> exact_shares(np.array([1, 3]), np.array([4, 3])) / ONE_ELEMENT
    array([0.25, 1.  ])
    """
    rest = np.maximum(rest, 1)
    # Floating point tells all but the last bits. What these are tells the remainder, of which
    # a 64-bit number holds all that matters.
    quotient = weight / rest
    quotient *= ONE_ELEMENT
    share: Proportions = quotient.astype(np.int64)
    remainder: Proportions = weight << _BITS
    remainder -= share * rest
    if quotient.max(initial=0) < EXACT and rest.max(initial=0) < EXACT:
        remainder >>= 63  # Rounded up at the most, so it is one too many where this is negative.
    else:
        remainder //= rest
    share += remainder
    return share
