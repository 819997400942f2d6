"""The patterns of many mixtures with fixed weights, computed together."""

from collections.abc import Sequence

import numpy as np

from bushel.core.node import ChooseMany
from bushel.core.positions import Keys, Positions, grouped
from bushel.order.pattern import Pattern, pattern_of, places_before


def patterns_together(proportions: Sequence[tuple[int, ...]], firsts: Sequence[int]) -> ChooseMany:
    """Locates positions of mixtures, each of which begins at a given position of its pattern."""
    numbers: dict[tuple[int, ...], int] = {}
    kind_of = np.array([numbers.setdefault(some, len(numbers)) for some in proportions])
    patterns = [pattern_of(some) for some in numbers]
    first_of = np.array(firsts, dtype=np.int64)
    # The number of elements of each part before the beginning, for all mixtures in one array.
    before = [places_before(first, some) for first, some in zip(firsts, proportions, strict=True)]
    given = np.concatenate([np.array(places, dtype=np.int64) for places in before])
    sizes = [len(places) for places in before]
    starts = np.cumsum([0, *sizes[:-1]])

    def locate(which: Keys, positions: Positions) -> tuple[Keys, Positions]:
        places = positions + first_of.take(which)
        if len(patterns) == 1:
            chosen, where = patterns[0].locate(places)
        else:
            chosen, where = _of_each(patterns, kind_of.take(which), places)
        return chosen, where - given.take(starts.take(which) + chosen)

    return locate


def _of_each(patterns: Sequence[Pattern], kinds: Keys, places: Positions) -> tuple[Keys, Positions]:
    chosen, where = np.empty((2, len(places)), dtype=np.int64)
    for kind, mine in grouped(kinds):
        chosen[mine], where[mine] = patterns[kind].locate(places.take(mine))
    return chosen, where
