"""Weights of a mixture that change on the way: the same at the same element in every run."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from bushel.core.frozen import frozen
from bushel.core.naming import name_of
from bushel.core.positions import Positions
from bushel.errors import PlanError

Weights: TypeAlias = Sequence[float] | Mapping[str, float]
# Whole numbers in proportion to the weights: one row for each part, one column for each step.
Proportions: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]

# What the smallest weight of a step becomes, as in a mixture of fixed weights.
_SMALLEST = 100
# A weight that is smaller than the largest one by more than this counts as 0: it would get
# its first element after more of them than any job reads.
_LEAST = 1e-12
# Weights below this are multiplied, which changes no bit of them, before they are divided by.
_TINY, _TIMES = 2.0**-500, 2.0**500
# So many weights, and what is computed of them, are in the cache together.
_WEIGHTS_AT_ONCE = 1 << 16

_PLAIN = frozenset((int, float))


@frozen
class WeightSchedule:
    """Weights that depend on how many elements a mixture has given: by points in between.

    Weights are lists, one number for each part, or dicts by the names of the parts. A part may
    have the weight 0 for a while. Before the first point the weights are those of the first
    one, and after the last point those of the last one.

    >>> ramp = WeightSchedule.linear([(0, [1, 0]), (10_000, [1, 3])])
    >>> ramp.at(5_000)
    [1.0, 1.5]
    >>> WeightSchedule.steps([(0, {"web": 9, "books": 1}), (50_000, {"web": 1, "books": 1})])
    WeightSchedule.steps([(0, {'web': 9, 'books': 1}), (50000, {'web': 1, 'books': 1})])
    """

    points: tuple[tuple[int, Weights], ...]
    is_linear: bool

    @staticmethod
    def linear(points: Sequence[tuple[int, Weights]]) -> "WeightSchedule":
        """Weights that change evenly from each point, a step and its weights, to the next."""
        return WeightSchedule(_check_points(points, "linear"), True)

    @staticmethod
    def steps(points: Sequence[tuple[int, Weights]]) -> "WeightSchedule":
        """Weights that stay as they are from each point, a step and its weights, to the next."""
        return WeightSchedule(_check_points(points, "steps"), False)

    def at(self, step: int) -> list[float] | dict[str, float]:
        """The weights for element number `step` of the mixture."""
        first = self.points[0][1]
        names = list(first) if isinstance(first, Mapping) else None
        column = Points(self, names, len(first)).weights(np.array([step]))[:, 0].tolist()
        return column if names is None else dict(zip(names, column, strict=True))

    def __repr__(self) -> str:
        how = "linear" if self.is_linear else "steps"
        return f"WeightSchedule.{how}({list(self.points)!r})"


def _check_points(points: Any, how: str) -> tuple[tuple[int, Weights], ...]:
    call = f"`WeightSchedule.{how}`"
    made: list[tuple[int, Weights]] = []
    if not hasattr(points, "__iter__") or isinstance(points, (Mapping, str)):
        raise TypeError(f"{call} takes a list of points, as in `[(0, [1, 2])]`, not {points!r}.")
    for point in points:
        if not isinstance(point, (tuple, list)) or len(point) != 2:
            raise PlanError(f"{call} takes pairs of a step and its weights, and got {point!r}.")
        step, weights = point
        whole = isinstance(step, (int, np.integer)) and not isinstance(step, bool)
        if not whole or not 0 <= step <= sys.maxsize:
            raise PlanError(
                f"{call}: a step is the number of an element of the mixture, and got {step!r}."
            )
        if made and step <= made[-1][0]:
            raise PlanError(
                f"{call}: steps must go up, and {step} comes after {made[-1][0]}. Sort the points."
            )
        names = list(weights) if isinstance(weights, Mapping) else None
        count = len(weights) if hasattr(weights, "__len__") else 0
        in_order(weights, names, count, f"{call}: the weights at step {step}")
        if made:
            _check_alike(made[0], (int(step), weights), call)
        plain: Weights = dict(weights) if isinstance(weights, Mapping) else list(weights)
        made.append((int(step), plain))
    if not made:
        raise PlanError(f"{call} needs at least one point, as in `[(0, [1, 2])]`, and got none.")
    return tuple(made)


def _check_alike(first: tuple[int, Weights], other: tuple[int, Weights], call: str) -> None:
    shapes = [
        sorted(weights) if isinstance(weights, Mapping) else len(weights)
        for _, weights in (first, other)
    ]
    if shapes[0] != shapes[1]:
        raise PlanError(
            f"{call}: all points must have weights for the same parts, and those at step "
            f"{first[0]} are {first[1]!r}, those at step {other[0]} are {other[1]!r}."
        )


def in_order(weights: Any, names: Sequence[str] | None, count: int, what: str) -> list[float]:
    """Returns weights in the order of the parts, or says what is wrong with them.

    >>> in_order({"b": 2, "a": 1}, ["a", "b"], 2, "the weights")
    [1.0, 2.0]
    """
    if isinstance(weights, Mapping):
        if names is None:
            raise PlanError(
                f"{what} are by name, and the parts of this mixture have none: {weights!r:.200}. "
                "Give `mix` a dict of datasets, or give the weights as a list."
            )
        if set(weights) != set(names):
            raise PlanError(f"{what} are for {sorted(weights)}, and the parts are {list(names)}.")
        weights = [weights[name] for name in names]
    if isinstance(weights, str) or not hasattr(weights, "__len__"):
        raise TypeError(f"{what} must be a list, one for each part, and are {weights!r:.200}.")
    numbers = list(weights)
    if len(numbers) != count:
        raise PlanError(f"{what} are {numbers}, and there are {count} parts.")
    for number in numbers:
        if not isinstance(number, (int, float, np.number)) or isinstance(number, bool):
            raise TypeError(f"{what} must be numbers, and are {numbers}.")
    try:
        floats = [float(number) for number in numbers]
    except OverflowError:
        floats = [float("inf")]
    if not all(0 <= number < float("inf") for number in floats):
        raise PlanError(f"{what} must be finite and not negative, and are {numbers}.")
    if not any(floats):
        raise PlanError(
            f"{what} are all 0, so no part could give the element. Give one a positive weight."
        )
    return floats


def _to_proportions(weights: _Floats) -> Proportions:
    """Columns of weights as whole numbers, as `to_proportions` makes them of fixed ones."""
    if weights.max(axis=0).min() < _TINY:
        weights = weights * np.where(weights.max(axis=0) < _TINY, _TIMES, 1)
    used = weights > weights.max(axis=0) * _LEAST
    smallest = np.where(used, weights, np.inf).min(axis=0)
    scaled = np.where(used, weights, 0) * (_SMALLEST / smallest)
    return cast(Proportions, scaled.astype(np.int64))


class Points:
    """The proportions of a schedule, for the parts of one mixture."""

    def __init__(self, schedule: WeightSchedule, names: Sequence[str] | None, count: int) -> None:
        rows = []
        for step, weights in schedule.points:
            what = f"`mix`: the weights at step {step} of the schedule"
            rows.append(in_order(weights, names, count, what))
        self._steps = np.array([step for step, _ in schedule.points], dtype=np.int64)
        self._weights = np.array(rows, dtype=np.float64).T
        self._proportions = _to_proportions(self._weights)
        self._is_linear = schedule.is_linear

    def weights(self, steps: Positions) -> _Floats:
        last = len(self._steps) - 1
        before = np.clip(self._steps.searchsorted(steps, side="right") - 1, 0, last)
        if not self._is_linear:
            return self._weights[:, before]
        after = np.minimum(before + 1, last)
        start, stop = self._steps[before], self._steps[after]
        # Between equal weights nothing may change, not even by rounding: so this form.
        way = np.clip(steps - start, 0, stop - start) / np.maximum(stop - start, 1)
        low = self._weights[:, before]
        return cast(_Floats, low + (self._weights[:, after] - low) * way)

    def __call__(self, steps: Positions) -> Proportions:
        if not self._is_linear or steps[0] >= self._steps[-1]:
            before = self._steps.searchsorted(steps, side="right") - 1
            return self._proportions[:, np.maximum(before, 0)]
        # Steps by steps, so that what is computed on the way stays in the cache.
        at_once = max(1, _WEIGHTS_AT_ONCE // len(self._weights))
        made = [
            _to_proportions(self.weights(steps[start : start + at_once]))
            for start in range(0, len(steps), at_once)
        ]
        return made[0] if len(made) == 1 else np.concatenate(made, axis=1)


class _Called:
    """The proportions that a user's function says, which is asked once for each step."""

    def __init__(
        self, function: Callable[[int], Weights], names: Sequence[str] | None, count: int
    ) -> None:
        self._function, self._names, self._count = function, names, count

    def __call__(self, steps: Positions) -> Proportions:
        columns: list[Sequence[float]] = []
        for step in steps.tolist():
            try:
                columns.append(self._ask(step))
            except Exception:
                if not columns:
                    raise
                break  # The elements before it come first.
        return _to_proportions(np.array(columns, dtype=np.float64).T)

    def _ask(self, step: int) -> Sequence[float]:
        weights = self._function(step)
        row: Any = weights
        if self._names is not None and type(row) is dict and row.keys() == set(self._names):
            row = [row[name] for name in self._names]
        # Nearly always all is well, and this runs for each element.
        if type(row) in (list, tuple) and len(row) == self._count and _are_plain(row):
            return row  # type: ignore[no-any-return]
        what = f"`mix`: the weights that `{name_of(self._function)}` returned for step {step}"
        return in_order(weights, self._names, self._count, what)


def _are_plain(weights: Sequence[Any]) -> bool:
    """Whether these are certainly weights as they should be."""
    return (
        _PLAIN.issuperset(map(type, weights))
        and min(weights) >= 0
        and 0 < sum(weights) < sys.float_info.max
    )


# Tells the proportions at some steps; perhaps not at all of them, where it fails after the
# first ones.
Table: TypeAlias = Callable[[Positions], Proportions]


def table_of(weights: Any, names: Sequence[str] | None, count: int) -> Table:
    """What a schedule, or a function of the step, says for the parts of a mixture.

    >>> table_of(lambda step: [1, step], None, 2)(np.arange(3))
    array([[100, 100, 100],
           [  0, 100, 200]])
    """
    if isinstance(weights, WeightSchedule):
        return Points(weights, names, count)
    return _Called(weights, names, count)
