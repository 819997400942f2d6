"""Shuffles by position: the whole dataset, or windows of it."""

from collections.abc import Sequence

from bushel.core.frozen import frozen
from bushel.core.node import LocateMany, Node, Order
from bushel.core.positions import Positions, join_epochs, split_epochs
from bushel.order.permutation import permute
from bushel.order.permutations import Permutations


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

    @classmethod
    def side_by_side(cls, nodes: Sequence["ShuffleNode"]) -> LocateMany | None:  # type: ignore[override]
        lengths = [node.input.length() for node in nodes]
        return Permutations(lengths, [node.seed for node in nodes]).locate if all(lengths) else None

    def describe(self) -> str:
        return f"shuffle(seed={self.seed})"


@frozen
class WindowShuffleNode(Order):
    """Shuffles within consecutive windows of positions.

    Windows run on through the end of an epoch: the last one of an epoch may hold the first
    elements of the next.
    """

    input: Node
    window_size: int
    seed: int
    costly = True

    @property
    def stretch(self) -> int:
        return self.window_size

    def locate(self, positions: Positions) -> Positions:
        windows, offsets = split_epochs(positions, self.window_size)
        images = permute(offsets, self.window_size - 1, (self.seed + windows) & 0xFFFFFFFF)
        return join_epochs(images, windows, self.window_size)

    @classmethod
    def side_by_side(cls, nodes: Sequence["WindowShuffleNode"]) -> LocateMany | None:  # type: ignore[override]
        windows = [node.window_size for node in nodes]
        return Permutations(windows, [node.seed for node in nodes]).locate

    def describe(self) -> str:
        return f"window_shuffle(window_size={self.window_size}, seed={self.seed})"
