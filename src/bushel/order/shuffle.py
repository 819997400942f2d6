"""`shuffle` of a random-access dataset: global, by position."""

from collections.abc import Sequence

from bushel.core.frozen import frozen
from bushel.core.node import Found, LocateMany, Node, Order
from bushel.core.positions import Positions, before, join_epochs, split_epochs
from bushel.order.permutation import permute
from bushel.order.permutations import Permutations
from bushel.order.unpermute import unpermute


@frozen
class ShuffleNode(Order):
    """Puts all elements of an epoch in a random order, another one each epoch.

    >>> import numpy as np
    >>> from bushel.sources.memory import RangeNode
    >>> order = ShuffleNode(RangeNode(range(5)), seed=1)
    >>> order.locate(np.arange(10))
    array([1, 2, 3, 0, 4, 5, 9, 6, 7, 8])
    """

    input: Node
    seed: int
    costly = True

    def locate(self, positions: Positions) -> Positions:
        length = self.input.length()
        epochs, offsets = split_epochs(positions, length)
        images = permute(offsets, length - 1, (self.seed + epochs) & 0xFFFFFFFF)
        return join_epochs(images, epochs, length)

    def find(self, positions: Positions, stop: int) -> Found:
        length = self.input.length()
        epochs, images = split_epochs(positions, length)
        offsets = unpermute(images, length - 1, (self.seed + epochs) & 0xFFFFFFFF)
        return before(join_epochs(offsets, epochs, length), stop)

    @classmethod
    def side_by_side(cls, nodes: Sequence["ShuffleNode"]) -> LocateMany | None:  # type: ignore[override]
        lengths = [node.input.length() for node in nodes]
        return Permutations(lengths, [node.seed for node in nodes]).locate if all(lengths) else None

    def describe(self) -> str:
        return f"shuffle(seed={self.seed})"
