"""The proportions of a mixture at its steps, from a schedule or a function, as runs of equal ones.

Most schedules change slowly: for thousands of elements proportions, which are whole numbers, stay
what they are. Then one column stands for all of them, and little is computed for each element.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bushel.core.frozen import plain
from bushel.core.naming import name_of
from bushel.core.positions import Positions
from bushel.order.line_columns import LineColumns
from bushel.order.schedule import Weights, WeightSchedule, in_order
from bushel.order.weight_lines import Lines, Proportions, to_proportions

# With fewer parts than this, to look at each step costs less than to see where they are alike.
FEWEST_PARTS = 16
# Weights that fit into the cache of the processor, with what is computed of them.
_WEIGHTS_AT_ONCE = 1 << 18
# Proportions in memory at a time: 32 MB.
_MOST = 1 << 22

_PLAIN = frozenset((int, float))


@plain
class Runs:
    """Proportions at the steps of runs: a column for each run, and how many steps it has."""

    columns: Proportions
    sizes: Positions
    # In the place of columns, one for each step, where these are on lines and change all the time.
    lines: LineColumns | None = None

    @property
    def steps(self) -> int:
        """How many steps there are in all."""
        return int(self.sizes.sum())

    def part(self, start: int, stop: int) -> "Runs":
        """The same for some of the steps."""
        if self.lines is not None:
            return on_lines(self.lines.part(start, stop))
        ends = self.sizes.cumsum()
        begins = ends - self.sizes
        sizes = np.minimum(ends, stop) - np.maximum(begins, start)
        there = np.flatnonzero(sizes > 0)
        if not len(there):
            return Runs(self.columns[:, :0], sizes[:0])
        some = slice(int(there[0]), int(there[-1]) + 1)
        return Runs(self.columns[:, some], sizes[some])

    def each(self) -> Proportions:
        """A column for each step."""
        if self.lines is not None:
            return self.lines.table()
        if len(self.sizes) == self.steps:
            return self.columns
        return self.columns.repeat(self.sizes, axis=1)


def joined(runs: Sequence[Runs]) -> Runs:
    """Some runs after others; those that meet and are alike become one."""
    if len(runs) == 1:
        return runs[0]
    lines = runs[0].lines
    for more in runs[1:]:
        lines = None if lines is None or more.lines is None else lines.followed_by(more.lines)
    if lines is not None:
        return on_lines(lines)
    runs = [_with_columns(some) for some in runs]
    columns, sizes = [runs[0].columns], [runs[0].sizes]
    for more in runs[1:]:
        if np.array_equal(columns[-1][:, -1:], more.columns[:, :1]):
            sizes[-1] = sizes[-1].copy()
            sizes[-1][-1] += more.sizes[0]
            more = Runs(more.columns[:, 1:], more.sizes[1:])
        if len(more.sizes):
            columns.append(more.columns)
            sizes.append(more.sizes)
    if len(columns) == 1:
        return Runs(columns[0], sizes[0])
    return Runs(np.concatenate(columns, axis=1), np.concatenate(sizes))


def on_lines(lines: LineColumns) -> Runs:
    """Runs of one step each."""
    parts, steps = lines.shape
    return Runs(np.empty((parts, 0), dtype=np.int64), np.ones(steps, dtype=np.int64), lines)


def _with_columns(runs: Runs) -> Runs:
    return runs if runs.lines is None else Runs(runs.each(), runs.sizes)


class ProportionTable(ABC):
    """Tells the proportions of a mixture."""

    # Whether those at later steps may be asked for ahead of time.
    eager = True

    @abstractmethod
    def at(self, steps: Positions) -> Runs:
        """The proportions at these steps, which grow.

        Perhaps of fewer: where it fails, or what is known would be too much memory.
        """


def table_of(weights: Any, names: Sequence[str] | None, count: int) -> ProportionTable:
    """What a schedule, or a function of the step, says for the parts of a mixture.

    >>> table_of(lambda step: [1, step], None, 2).at(np.arange(3)).columns
    array([[100, 100, 100],
           [  0, 100, 200]])
    """
    if isinstance(weights, WeightSchedule):
        return _Points(weights, names, count)
    return _Called(weights, names, count)


class _Points(ProportionTable):
    """The proportions of a schedule, for the parts of one mixture."""

    def __init__(self, schedule: WeightSchedule, names: Sequence[str] | None, count: int) -> None:
        rows = []
        for step, weights in schedule.points:
            what = f"`mix`: the weights at step {step} of the schedule"
            rows.append(in_order(weights, names, count, what))
        steps = np.array([step for step, _ in schedule.points], dtype=np.int64)
        self._lines = Lines(steps, np.array(rows, dtype=np.float64).T, schedule.is_linear)
        self._parts = count

    def at(self, steps: Positions) -> Runs:
        # No run goes beyond a point.
        ends = np.flatnonzero(np.diff(self._lines.points_before(steps))) + 1
        found: list[Runs] = []
        room = _MOST // self._parts
        for some in np.split(steps, ends):
            for runs in self._between_points(some):
                found.append(runs)
                room -= runs.columns.shape[1]
                if room <= 0:
                    return joined(found)
        return joined(found)

    def _between_points(self, steps: Positions) -> Iterator[Runs]:
        lines = self._lines
        if not lines.is_linear or steps[0] >= lines.steps[-1] or steps[-1] <= lines.steps[0]:
            yield Runs(to_proportions(lines.at(steps[:1])), np.array([len(steps)]))
            return
        at_once = max(1, _WEIGHTS_AT_ONCE // self._parts)
        if self._parts >= FEWEST_PARTS and lines.changes_soon(steps, at_once):
            ends = lines.ends(steps)
            if ends is not None:
                yield on_lines(LineColumns(*ends))
                return
        for start in range(0, len(steps), at_once):
            some = steps[start : start + at_once]
            if self._parts >= FEWEST_PARTS:
                yield Runs(*lines.proportions(some))
            else:
                columns = to_proportions(lines.at(some))
                yield Runs(columns, np.ones(len(some), dtype=np.int64))


class _Called(ProportionTable):
    """The proportions that a user's function says, which is asked once for each step."""

    eager = False

    def __init__(
        self, function: Callable[[int], Weights], names: Sequence[str] | None, count: int
    ) -> None:
        self._function, self._names, self._count = function, names, count

    def at(self, steps: Positions) -> Runs:
        rows: list[list[float]] = []
        # How many steps each of the rows is for.
        sizes: list[int] = []
        for step in steps.tolist():
            try:
                weights = self._function(step)
                row = self._checked(weights, step, rows[-1] if rows else None)
            except Exception:
                if not rows:
                    raise
                break  # The elements before it come first.
            if rows and row is rows[-1]:
                sizes[-1] += 1
            else:
                rows.append(row)
                sizes.append(1)
        columns = to_proportions(np.array(rows, dtype=np.float64).T)
        return Runs(columns, np.array(sizes, dtype=np.int64))

    def _checked(self, weights: Any, step: int, last: list[float] | None) -> list[float]:
        """The weights in the order of the parts; the last ones, where they are the same."""
        row: Any = weights
        if self._names is not None and type(row) is dict and row.keys() == set(self._names):
            row = [row[name] for name in self._names]
        elif type(row) is np.ndarray and row.ndim == 1 and row.dtype.kind in "iuf":
            row = row.tolist()
        # Nearly always all is well, and this runs for each element.
        if type(row) in (list, tuple) and len(row) == self._count:
            own: list[float] = list(row)  # The function may change its list, and return it again.
            if last is not None and _are_same(own, last):
                return last
            if _are_plain(own):
                return own
        what = f"`mix`: the weights that `{name_of(self._function)}` returned for step {step}"
        return in_order(weights, self._names, self._count, what)


def _are_plain(weights: Sequence[Any]) -> bool:
    """Whether these are certainly weights as they should be."""
    return (
        _PLAIN.issuperset(map(type, weights))
        and min(weights) >= 0
        and 0 < sum(weights) < sys.float_info.max
    )


def _are_same(weights: list[float], last: list[float]) -> bool:
    try:
        return weights == last
    except Exception:  # Of whatever is in it; what is wrong with that is said elsewhere.
        return False
