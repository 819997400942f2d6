"""`WeightSchedule`: weights of a mixture that change, by points; the errors of wrong weights."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bushel.core.frozen import frozen
from bushel.errors import PlanError
from bushel.order.weight_lines import Lines

Weights: TypeAlias = Sequence[float] | Mapping[str, float]


@frozen
class WeightSchedule:
    """Weights that depend on the number of the element: points, and lines or steps in between.

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
        """Weights on straight lines between points; a point is a step and weights."""
        return WeightSchedule(_check_points(points, "linear"), True)

    @staticmethod
    def steps(points: Sequence[tuple[int, Weights]]) -> "WeightSchedule":
        """Weights that are constant from each point to the next; a point is a step and weights."""
        return WeightSchedule(_check_points(points, "steps"), False)

    def at(self, step: int) -> list[float] | dict[str, float]:
        """The weights for element number `step` of the mixture."""
        first = self.points[0][1]
        names = list(first) if isinstance(first, Mapping) else None
        rows = [in_order(weights, names, len(first), "the weights") for _, weights in self.points]
        steps = np.array([step for step, _ in self.points], dtype=np.int64)
        lines = Lines(steps, np.array(rows, dtype=np.float64).T, self.is_linear)
        column = lines.at(np.array([step]))[:, 0].tolist()
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
    """Returns weights in the order of the parts, or raises what is wrong with them.

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
