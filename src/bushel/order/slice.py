"""`slice`, `ds[a:b:c]`: every step-th element from a start up to a stop."""

from collections.abc import Sequence

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.node import Found, LocateMany, Node, Order
from bushel.core.positions import Keys, Positions, before, join_epochs, split_epochs
from bushel.errors import PlanError


@frozen
class SliceNode(Order):
    """Keeps every `step`-th element from `start` up to `stop`.

    Positions past the end open the next epoch: they wrap around the slice and read from
    the matching epoch of the input.

    >>> import numpy as np
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
        epoch, offset = split_epochs(positions, self.length())
        return join_epochs(self.start + offset * self.step, epoch, self.input.length())

    def locate_run(self, start: int, stop: int) -> tuple[int, int] | None:
        length = self.length()
        epoch = start // length
        if self.step != 1 or stop > (epoch + 1) * length:
            return None
        shift = self.start + epoch * (self.input.length() - length)
        return start + shift, stop + shift

    def find(self, positions: Positions, stop: int) -> Found:
        epochs, places = split_epochs(positions, self.input.length())
        offsets, rest = np.divmod(places - self.start, self.step)
        inside = np.flatnonzero((rest == 0) & (offsets >= 0) & (offsets < self.length()))
        epochs = epochs if isinstance(epochs, int) else epochs.take(inside)
        found, which = before(join_epochs(offsets.take(inside), epochs, self.length()), stop)
        return found, inside.take(which)

    def reach(self, stop: int) -> int:
        if not stop or not self.length():
            return 0
        epochs, last = divmod(stop - 1, self.length())
        return epochs * self.input.length() + max(self.start, self.start + last * self.step) + 1

    @classmethod
    def side_by_side(cls, nodes: Sequence["SliceNode"]) -> LocateMany | None:  # type: ignore[override]
        numbers = [(n.length(), n.start, n.step, n.input.length()) for n in nodes]
        lengths, starts, steps, below = np.array(numbers, dtype=np.int64).T
        if not lengths.all():
            return None

        def locate(which: Keys, positions: Positions) -> Positions:
            epochs, offsets = np.divmod(positions, lengths.take(which))
            located: Positions = offsets * steps.take(which) + starts.take(which)
            if not epochs.any():
                return located
            # An endless dataset has no later epochs that fit into a position.
            far: Positions = located + epochs.astype(object) * below.take(which)
            return far if max(far) > np.iinfo(np.int64).max else far.astype(np.int64)

        return locate

    def describe(self) -> str:
        return f"slice({self.start}, {self.stop}, {self.step})"


def slice_of(node: Node, sl: slice, sequential: bool) -> Node:
    """The part of a random-access dataset for a slice.

    With `sequential`, `slice(k, None, n)` means part k of n, of neighbours.
    """
    if not isinstance(sl, slice):
        raise PlanError(f"`slice` takes a slice, as in `ds.slice(slice(0, 10))`, not {sl!r}.")
    length = node.length()
    if not sequential:
        return SliceNode(node, *sl.indices(length))
    if sl.start is None or sl.step is None:
        raise PlanError(
            "a sequential slice says which part, of how many, as `slice(part, None, parts)`, and "
            f"this is {sl}."
        )
    each, rest = divmod(length, sl.step)
    start = sl.start * each + min(sl.start, rest)
    return SliceNode(node, start, start + each + (sl.start < rest), 1)
