"""Slices: every step-th element from a start up to a stop."""

from dataclasses import dataclass

import numpy as np

from bushel.block import Positions
from bushel.node import Node, Order


@dataclass(frozen=True, slots=True)
class SliceNode(Order):
    """Keeps every `step`-th element from `start` up to `stop`.

    Positions past the end open the next epoch: they wrap around the slice and read from
    the matching epoch of the input.

    >>> from bushel.sources.memory import RangeNode
    >>> SliceNode(RangeNode(range(10)), 2, 8, 3).locate(np.array([0, 1, 2, 3]))
    array([ 2,  5, 12, 15])
    """

    input: Node
    start: int
    stop: int
    step: int

    def length(self) -> int:
        return len(range(self.start, self.stop, self.step))

    def locate(self, positions: Positions) -> Positions:
        epoch, offset = np.divmod(positions, self.length())
        located: Positions = self.start + offset * self.step + epoch * self.input.length()
        return located

    def describe(self) -> str:
        return f"slice({self.start}, {self.stop}, {self.step})"
