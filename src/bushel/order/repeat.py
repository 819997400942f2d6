"""Repetition: several epochs in a row."""

import sys
from collections.abc import Sequence

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.node import LocateMany, Node, Order
from bushel.core.positions import Positions, split_epochs

INFINITE = sys.maxsize


@frozen
class RepeatNode(Order):
    """Makes the dataset `num_epochs` times as long, or endless.

    Since positions beyond the length belong to later epochs anyway, there is nothing to
    compute, unless every epoch shall be the same.

    >>> from bushel.sources.memory import RangeNode
    >>> import numpy as np
    >>> RepeatNode(RangeNode(range(3)), 2, reseed_each_epoch=False).locate(np.arange(6))
    array([0, 1, 2, 0, 1, 2])
    """

    input: Node
    num_epochs: int | None
    reseed_each_epoch: bool = True

    def length(self) -> int:
        once = self.input.length()
        if self.num_epochs is None:
            return INFINITE if once else 0
        return once * self.num_epochs

    def locate(self, positions: Positions) -> Positions:
        if self.reseed_each_epoch:
            return positions
        return split_epochs(positions, self.input.length())[1]

    def locate_run(self, start: int, stop: int) -> tuple[int, int] | None:
        if self.reseed_each_epoch:
            return start, stop
        length = self.input.length()
        epoch = start // length
        within = stop - epoch * length <= length
        return (start - epoch * length, stop - epoch * length) if within else None

    @classmethod
    def side_by_side(cls, nodes: Sequence["RepeatNode"]) -> LocateMany | None:  # type: ignore[override]
        if all(node.reseed_each_epoch for node in nodes):
            return lambda which, positions: positions
        lengths = np.array([node.input.length() for node in nodes], dtype=np.int64)
        if not lengths.all():
            return None
        lengths[[node.reseed_each_epoch for node in nodes]] = INFINITE
        return lambda which, positions: positions % lengths.take(which)

    def describe(self) -> str:
        epochs = "" if self.num_epochs is None else str(self.num_epochs)
        same = "" if self.reseed_each_epoch else "reseed_each_epoch=False"
        return f"repeat({', '.join(filter(None, (epochs, same)))})"
