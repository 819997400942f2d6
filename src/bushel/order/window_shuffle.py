"""Window shuffles: by position, and of a stream, one window at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.arguments import whole
from bushel.core.block import Columns
from bushel.core.frozen import frozen
from bushel.core.node import ONE_LANE, Fold, Found, LocateMany, Node, Order
from bushel.core.positions import Positions, before, join_epochs, split_epochs
from bushel.errors import PlanError
from bushel.order.permutation import permute
from bushel.order.permutations import Permutations
from bushel.order.unpermute import unpermute


@frozen
class WindowShuffleNode(Order):
    """Shuffles within consecutive windows of positions.

    Windows continue across epochs: the last one of an epoch may have the first elements of the
    next.
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

    def find(self, positions: Positions, stop: int) -> Found:
        windows, images = split_epochs(positions, self.window_size)
        seeds = (self.seed + windows) & 0xFFFFFFFF
        offsets = unpermute(images, self.window_size - 1, seeds)
        return before(join_epochs(offsets, windows, self.window_size), stop)

    def reach(self, stop: int) -> int:
        return -(-stop // self.window_size) * self.window_size

    @classmethod
    def side_by_side(cls, nodes: Sequence["WindowShuffleNode"]) -> LocateMany | None:  # type: ignore[override]
        windows = [node.window_size for node in nodes]
        return Permutations(windows, [node.seed for node in nodes]).locate

    def describe(self) -> str:
        return f"window_shuffle(window_size={self.window_size}, seed={self.seed})"


@frozen
class StreamWindowShuffleNode(Fold):
    """Shuffles within consecutive windows of a stream; the last one may be shorter."""

    input: Node
    window_size: int
    seed: int
    # Windows of different lanes have different numbers, as elements have (see `Each.lane`).
    lane: tuple[int, int] = ONE_LANE
    one_per_group = False

    @property
    def group_size(self) -> int:
        return self.window_size

    def fold(self, group: list[Any] | Columns, number: int) -> Sequence[Any]:
        size = len(group)
        lane, lanes = self.lane
        seed = (self.seed + number * lanes + lane) & 0xFFFFFFFF
        order = permute(np.arange(size), size - 1, seed)[::-1]
        rows = group if isinstance(group, list) else group.rows()
        return [rows[index] for index in order.tolist()]

    def describe(self) -> str:
        return f"window_shuffle(window_size={self.window_size}, seed={self.seed})"


def check_window(window_size: Any) -> int:
    """Returns the size of a window."""
    size = whole(window_size, "window_size")
    if size <= 0:
        raise PlanError(f"window_size must be positive, and is {size}.")
    return size
