"""Lanes as an order, where no step has a memory: the positions of a host's rows, step by step."""

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.node import Found, Node, Order
from bushel.core.positions import Positions, before


@frozen
class StepOrder(Order):
    """The positions that one host reads: `rows` from each of its lanes, step after step.

    Position p belongs to lane p % lanes. A step takes the next `rows` positions of lane 0,
    then those of lane 1, and so on; this host has `owned` of the lanes, from `first` on.

    >>> from bushel.sources.memory import RangeNode
    >>> StepOrder(RangeNode(range(20)), lanes=4, first=2, owned=2, rows=2).locate(np.arange(8))
    array([ 2,  6,  3,  7, 10, 14, 11, 15])
    """

    input: Node
    lanes: int
    first: int
    owned: int
    rows: int

    def length(self) -> int:
        return self.input.length() // self.lanes // self.rows * self.owned * self.rows

    def locate(self, positions: Positions) -> Positions:
        if len(positions) and int(abs(positions).max()) > np.iinfo(np.int64).max // self.lanes:
            positions = positions.astype(object)
        each = self.owned * self.rows
        steps, rows = positions // each, positions % each
        lanes, places = rows // self.rows, rows % self.rows
        located: Positions = (steps * self.rows + places) * self.lanes + self.first + lanes
        return located

    def locate_run(self, start: int, stop: int) -> tuple[int, int] | None:
        # One row of every lane is the next range of positions.
        return (start, stop) if self.rows == 1 and self.owned == self.lanes else None

    def find(self, positions: Positions, stop: int) -> Found:
        places, lanes = positions // self.lanes, positions % self.lanes - self.first
        steps, rows = places // self.rows, places % self.rows
        mine = np.flatnonzero((lanes >= 0) & (lanes < self.owned))
        come = (steps * self.owned + lanes) * self.rows + rows
        found, which = before(come.take(mine), stop)
        return found, mine.take(which)

    def reach(self, stop: int) -> int:
        return -(-stop // (self.owned * self.rows)) * self.rows * self.lanes

    def describe(self) -> str:
        return f"lanes({self.lanes})"
