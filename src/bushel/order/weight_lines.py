"""The weights at steps between the points of a `WeightSchedule`, and as whole numbers."""

from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from bushel.core.frozen import plain
from bushel.core.positions import Positions

# Whole numbers in proportion to the weights: one row for each part, one column for each step.
Proportions: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

# What the smallest weight of a step becomes, as in a mixture of fixed weights.
_SMALLEST = 100
# A weight that is smaller than the largest one by more than this counts as 0: it would get
# its first element after more of them than any job reads.
_LEAST = 1e-12
# Weights below this are multiplied, which changes no bit of them, before they are divided by.
_TINY, _TIMES = 2.0**-500, 2.0**500
# Up to this number of steps with the same proportions, nothing is saved by looking for them.
SHORT_RUN = 2
# The same where each step is computed by itself without a table of proportions.
_SHORT_OF_A_LINE = 16
# So many steps are looked at to see that.
_LOOKED_AT = 128
# Weights that stay in the cache of the processor, with what is computed of them.
_AT_ONCE = 1 << 14


@plain
class Lines:
    """Points, their steps in growing order; one row of weights for each part."""

    steps: Positions
    weights: Floats
    is_linear: bool

    def points_before(self, steps: Positions) -> Positions:
        """The point whose weights hold from it on, or which is the last one before each step."""
        last = len(self.steps) - 1
        return np.clip(self.steps.searchsorted(steps, side="right") - 1, 0, last)

    def at(self, steps: Positions, parts: Positions | None = None) -> Floats:
        """The weights at these steps, of all parts or some."""
        weights = self.weights if parts is None else self.weights.take(parts, axis=0)
        before, after, way = self._between(steps)
        if not self.is_linear:
            return weights[:, before]
        if before[0] == before[-1]:  # They grow: so all are between the same two points.
            before, after = before[:1], after[:1]
        return _part_way(weights[:, before], weights[:, after], way)

    def _between(self, steps: Positions) -> tuple[Positions, Positions, Floats]:
        """The points before and after each step, and which part of the way it is at."""
        before = self.points_before(steps)
        after = np.minimum(before + 1, len(self.steps) - 1)
        start, stop = self.steps[before], self.steps[after]
        return before, after, np.clip(steps - start, 0, stop - start) / np.maximum(stop - start, 1)

    def proportions(self, steps: Positions) -> tuple[Proportions, Positions]:
        """The proportions at these steps, which grow and have no point in between.

        A column for each run of steps where they are the same, and the sizes of these runs.
        """
        bounds = self._bounds(steps)
        if bounds is None:
            return to_proportions(self.at(steps)), np.ones(len(steps), dtype=np.int64)
        least, most, smallest = bounds
        # Most parts are where they were.
        changing = np.flatnonzero(least != most)
        if not len(changing):
            return least[:, None], np.array([len(steps)])
        some = self._scaled(steps, changing, smallest)
        is_new = (some[:, 1:] != some[:, :-1]).any(axis=0)
        starts = np.concatenate([[0], np.flatnonzero(is_new) + 1])
        columns = np.empty((len(least), len(starts)), dtype=np.int64)
        columns[:] = least[:, None]
        columns[changing] = some.take(starts, axis=1)
        return columns, np.diff(starts, append=len(steps))

    def changes_soon(self, steps: Positions, at_once: int) -> bool:
        """Whether some proportion changes every few steps; of so many, it is looked at each."""
        bounds = self._bounds(steps)
        if bounds is None:
            return False
        # Parts that are alike change together.
        kinds = np.unique(np.stack(bounds[:2]), axis=1)
        if _SHORT_OF_A_LINE * float((kinds[1] - kinds[0]).sum()) >= len(steps):
            return True
        # By rounding, one may go back and forth.
        some = steps[: min(at_once, _LOOKED_AT)]
        return _SHORT_OF_A_LINE * len(self.proportions(some)[1]) >= len(some)

    def ends(self, steps: Positions) -> tuple[Floats, Floats, Floats, Floats] | None:
        """What tells the proportions at each step, where no part comes or goes in between.

        The weights of each part at the points before and after, 0 if it counts as none; how far
        each step is on the way between, and what weights are multiplied by at each.
        """
        bounds = self._bounds(steps)
        if bounds is None:
            return None
        _, most, smallest = bounds
        scale = _SMALLEST / self.at(steps, smallest).min(axis=0)
        before, after, way = self._between(steps)
        used = most > 0
        low = np.where(used, self.weights[:, before[0]], 0)
        high = np.where(used, self.weights[:, after[0]], 0)
        return low, high, way, scale

    def _scaled(self, steps: Positions, parts: Positions, smallest: Positions) -> Proportions:
        """The proportions of some parts, where it is known who may have the least weight."""
        scale = _SMALLEST / self.at(steps, smallest).min(axis=0)
        before, after, way = self._between(steps)
        low, high = self.weights[parts, before[0]], self.weights[parts, after[0]]
        made = np.empty((len(parts), len(steps)), dtype=np.int64)
        at_once = max(1, _AT_ONCE // len(steps))
        for start in range(0, len(parts), at_once):
            some = slice(start, start + at_once)
            weights = _part_way(low[some, None], high[some, None], way)
            weights *= scale
            made[some] = weights
        return made

    def _bounds(self, steps: Positions) -> tuple[Positions, Positions, Positions] | None:
        """The least and the greatest proportion of each part, and who may have the least weight.

        Weights between two points only grow, or only shrink, rounded or not. So what is between
        those at both ends lies between what comes of these. None where that tells nothing.
        """
        ends = self.at(steps[[0, -1]])
        low, high = ends.min(axis=1), ends.max(axis=1)
        least_top, most_top = low.max(), high.max()
        if least_top < _TINY:
            return None
        used, unused = low > most_top * _LEAST, high <= least_top * _LEAST
        if not (used | unused).all():
            return None
        least_smallest, most_smallest = low[used].min(), high[used].min()
        least = np.where(used, low, 0) * (_SMALLEST / most_smallest)
        most = np.where(used, high, 0) * (_SMALLEST / least_smallest)
        smallest = np.flatnonzero(used & (low <= most_smallest))
        return least.astype(np.int64), most.astype(np.int64), smallest


def _part_way(low: Floats, high: Floats, way: Floats) -> Floats:
    # Between equal weights nothing may change, not even by rounding: so this form.
    weights: Floats = (high - low) * way
    weights += low
    return weights


def to_proportions(weights: Floats) -> Proportions:
    """Columns of weights as whole numbers, as those of a mixture of fixed ones are made.

    >>> to_proportions(np.array([[0.5], [1.25]]))
    array([[100],
           [250]])
    """
    if weights.max(axis=0).min() < _TINY:
        weights = weights * np.where(weights.max(axis=0) < _TINY, _TIMES, 1)
    used = weights > weights.max(axis=0) * _LEAST
    smallest = np.where(used, weights, np.inf).min(axis=0)
    scaled = np.where(used, weights, 0) * (_SMALLEST / smallest)
    return cast(Proportions, scaled.astype(np.int64))
