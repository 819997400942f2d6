"""Window shuffle of a stream: a window is filled, then handed out in a random order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.block import Columns
from bushel.core.frozen import frozen
from bushel.core.node import ONE_LANE, Fold, Node
from bushel.order.permutation import permute


@frozen
class StreamWindowShuffleNode(Fold):
    """Shuffles within consecutive windows of a stream; the last one may be shorter."""

    input: Node
    window_size: int
    seed: int
    # Windows of different lanes are different ones, as their elements are (see `Each.lane`).
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
