"""Nodes of streams that are mixed, and how they are made of what a user says."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.naming import name_of
from bushel.core.node import ONE_LANE, Choice, Node, refuse_length
from bushel.core.positions import Keys, Positions
from bushel.errors import PlanError
from bushel.order.mix import to_proportions
from bushel.order.proportions import table_of
from bushel.order.repeat import EpochsNode
from bushel.order.schedule import Weights, WeightSchedule
from bushel.order.turns import FixedTurns, ScheduledTurns, Turns

# Weights as `mix` takes them: fixed, or depending on the number of the element.
MixWeights: TypeAlias = Weights | WeightSchedule | Callable[[int], Weights]

ON_END = ("stop", "restart", "drop")


@frozen
class StreamMixNode(Choice):
    """Takes elements from streams in proportion, spread as evenly as can be.

    Each part's elements come in order, so all there is to know is whose turn it is.

    >>> from bushel.sources.memory import RangeNode
    >>> parts = (RangeNode(range(5)), RangeNode(range(10)))
    >>> ramp = WeightSchedule.linear([(0, [1, 0]), (6, [1, 3])])
    >>> StreamMixNode(parts, ramp).locate(np.arange(6))
    (array([0, 0, 0, 1, 1, 0]), array([0, 1, 2, 0, 1, 3]))
    """

    parts: tuple[Node, ...]
    # Fixed proportions, or what tells them for each element.
    weights: tuple[int, ...] | WeightSchedule | Callable[[int], Weights]
    names: tuple[str, ...] | None = None
    on_end: str = "stop"
    # Lanes begin at different places of the pattern: one step of all of them then has the
    # right proportions too, and so has each lane in the course of time.
    lane: tuple[int, int] = ONE_LANE

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def length(self) -> int:
        return refuse_length(self)

    def turns(self) -> Turns:
        """Tells whose turn it is, for one stream."""
        if isinstance(self.weights, tuple):
            return FixedTurns(self.weights, self.lane[0])
        count = len(self.parts)
        return ScheduledTurns(table_of(self.weights, self.names, count), count, self.lane)

    def locate(self, positions: Positions) -> tuple[Keys, Positions]:
        turns = self.turns()
        count = int(positions.max()) + 1 if len(positions) else 0
        stays = (True,) * len(self.parts)
        ahead, which = turns.beginning(), np.empty(0, dtype=np.int64)
        while len(which) < count:
            choices = turns.choose(len(which), count - len(which), ahead, stays)
            ahead = choices.ahead(len(choices.which))
            which = np.concatenate([which, choices.which])
        where = np.zeros(count, dtype=np.int64)
        for part in range(len(self.parts)):
            mine = which == part
            where[mine] = np.arange(mine.sum())
        return which.take(positions), where.take(positions)

    def describe(self) -> str:
        # Weights are left out. They may be others when a state is restored: what each part
        # has given stays given, and from there on the new ones hold.
        if self.names is not None:
            return f"mix(parts by name{self._ending()})"  # Which ones may change, too.
        return f"mix({len(self.parts)} parts{self._ending()})"

    @property
    def label(self) -> str:
        parts = f"{len(self.parts)} parts" if self.names is None else ", ".join(self.names)
        if isinstance(self.weights, tuple):
            return f"mix({parts}, proportions={list(self.weights)}{self._ending()})"
        is_schedule = isinstance(self.weights, WeightSchedule)
        shown = repr(self.weights) if is_schedule else name_of(self.weights)
        return f"mix({parts}, weights={shown}{self._ending()})"

    def _ending(self) -> str:
        return "" if self.on_end == "stop" else f", on_end={self.on_end!r}"


def mix_step(
    parts: Sequence[Node], weights: Any, names: tuple[str, ...] | None, on_end: str
) -> StreamMixNode:
    """The step of `IterDataset.mix`."""
    if on_end not in ON_END:
        raise PlanError(
            f"`mix`: on_end must be 'stop' (end with the first part that ends), 'restart' (begin "
            f"that part again) or 'drop' (go on without it), and is {on_end!r}."
        )
    if on_end == "restart":
        called = range(len(parts)) if names is None else map(repr, names)
        parts = [EpochsNode(part, f"part {name}") for part, name in zip(parts, called, strict=True)]
    if isinstance(weights, WeightSchedule) or callable(weights):
        if not parts:
            raise PlanError("`mix` needs at least one dataset, and got none.")
        if isinstance(weights, WeightSchedule):
            table_of(weights, names, len(parts))  # Refused here rather than when it runs.
        return StreamMixNode(tuple(parts), weights, names, on_end)
    if isinstance(weights, Mapping) and names is not None:
        if set(weights) != set(names):
            raise PlanError(f"`mix` got datasets {list(names)} and weights for {sorted(weights)}.")
        weights = [weights[name] for name in names]
    elif isinstance(weights, Mapping):
        raise PlanError("`mix` takes a mapping of weights only with a mapping of datasets.")
    elif weights is not None and not hasattr(weights, "__iter__"):
        raise TypeError(
            "`mix` takes weights as a list, one for each dataset, as a `WeightSchedule`, or as a "
            f"function of the number of the element, and got {weights!r:.100}."
        )
    proportions = to_proportions(weights, len(parts))
    return StreamMixNode(tuple(parts), proportions, names, on_end)
