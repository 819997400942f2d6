"""`mix` and `select_from_datasets` of random-access datasets; the checks of fixed weights."""

import sys
from collections.abc import Sequence
from dataclasses import field
from typing import Any, cast

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.node import Choice, ChooseMany, Found, Node
from bushel.core.positions import Keys, Positions, before
from bushel.errors import PlanError
from bushel.order.pattern import pattern_of, places_before
from bushel.order.patterns import patterns_together


@frozen
class MixNode(Choice):
    """Takes elements from the inputs in fixed proportions, spread as evenly as can be.

    The mixture is as long as no part is used twice.

    >>> from bushel.sources.memory import RangeNode
    >>> parts = (RangeNode(range(5)), RangeNode(range(10)))
    >>> MixNode(parts, (1, 2)).locate(np.arange(6))
    (array([0, 1, 1, 0, 1, 1]), array([0, 0, 1, 1, 2, 3]))
    """

    parts: tuple[Node, ...]
    proportions: tuple[int, ...]
    # The length, cached: asking a thousand parts takes a while.
    known: list[int] = field(default_factory=list, init=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def length(self) -> int:
        if not self.known:
            total = sum(self.proportions)
            longest = min(
                part.length() / (weight / total)
                for part, weight in zip(self.parts, self.proportions, strict=True)
            )
            self.known.append(min(int(longest), sys.maxsize))
        return self.known[0]

    def locate(self, positions: Positions) -> tuple[Keys, Positions]:
        return pattern_of(self.proportions).locate(positions)

    @classmethod
    def side_by_side(cls, choices: Sequence["MixNode"]) -> ChooseMany:  # type: ignore[override]
        return patterns_together([node.proportions for node in choices], [0] * len(choices))

    def find(self, part: int, positions: Positions, stop: int) -> Found:
        return before(pattern_of(self.proportions).find(part, positions), stop)

    def reach(self, part: int, stop: int) -> int:
        return places_before(stop, self.proportions)[part]

    def describe(self) -> str:
        return f"mix({len(self.parts)} parts, proportions={list(self.proportions)})"


@frozen
class SelectNode(Choice):
    """Takes each element from the part and position that a user's selection map returns."""

    parts: tuple[Node, ...]
    selection: Any

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def length(self) -> int:
        return len(self.selection)

    def locate(self, positions: Positions) -> tuple[Keys, Positions]:
        chosen = [self.selection[position] for position in positions.tolist()]
        which = np.array([part for part, _ in chosen], dtype=np.int64)
        if len(which) and not (-len(self.parts) <= which.min() and which.max() < len(self.parts)):
            wrong = next(part for part, _ in chosen if not 0 <= part < len(self.parts))
            raise IndexError(
                f"`select_from_datasets`: the selection map named dataset {wrong}, but there "
                f"are only {len(self.parts)}."
            )
        which %= max(1, len(self.parts))
        return which, np.array([where for _, where in chosen], dtype=np.int64)

    def find(self, part: int, positions: Positions, stop: int) -> Found:
        here, where = self._of_part(part, stop)
        order = where.argsort(kind="stable")
        first = where.searchsorted(positions, "left", order)
        times = where.searchsorted(positions, "right", order) - first
        nth = np.arange(times.sum()) - (times.cumsum() - times).repeat(times)
        which = np.arange(len(positions)).repeat(times)
        return here.take(order.take(first.repeat(times) + nth)), which

    def reach(self, part: int, stop: int) -> int:
        return int(self._of_part(part, stop)[1].max(initial=-1)) + 1

    def _of_part(self, part: int, stop: int) -> tuple[Positions, Positions]:
        """Which positions belong to a part, and their positions in it; asks the map one by one."""
        which, where = self.locate(np.arange(min(stop, self.length())))
        here = np.flatnonzero(which == part)
        return here, where.take(here)

    def describe(self) -> str:
        return f"select_from_datasets({len(self.parts)} parts)"


def to_proportions(weights: Sequence[float] | None, count: int) -> tuple[int, ...]:
    """Turns weights into whole numbers, the smallest of which is 100.

    >>> to_proportions([0.5, 1.25], 2)
    (100, 250)
    >>> to_proportions(None, 2)
    (1, 1)
    """
    if not count:
        raise PlanError("`mix` needs at least one dataset, and got none.")
    if weights is None:
        return (1,) * count
    if isinstance(weights, (dict, str)):
        raise TypeError(
            f"`mix` takes its weights as a list, one for each dataset, and got {weights!r}."
        )
    if not hasattr(weights, "__iter__"):
        raise TypeError(
            f"`mix` of random-access datasets takes weights that do not change, and got "
            f"{weights!r}. `IterDataset.mix` takes those that do."
        )
    weights = list(cast(Sequence[Any], weights))
    if len(weights) != count:
        raise PlanError(
            f"`mix` got {count} datasets and {len(weights)} weights: {weights}. Give one weight "
            "for each dataset."
        )
    for weight in weights:
        if not isinstance(weight, (int, float, np.number)):
            raise TypeError(f"`mix` takes numbers as weights, and got {weight!r}.")
        if not weight > 0 or weight == float("inf"):
            raise PlanError(
                f"`mix` takes positive, finite, non-zero weights, and got {weights}. Leave a "
                "dataset out instead of giving it the weight 0."
            )
    smallest = min(weights)
    try:
        return tuple(int(weight * (100 / smallest)) for weight in weights)
    except OverflowError:
        raise PlanError(
            f"`mix` got weights that are too far apart to be compared, or too small: {weights}. "
            "Leave out a dataset that would never come."
        ) from None


def mix_by_position(parts: tuple[Node, ...], weights: Sequence[float] | None) -> Node:
    """The step of `mix` on random-access datasets."""
    for number, part in enumerate(parts):
        if not part.length():
            raise PlanError(
                f"`mix` needs datasets with elements, and dataset {number} has length 0."
            )
    return MixNode(parts, to_proportions(weights, len(parts)))
