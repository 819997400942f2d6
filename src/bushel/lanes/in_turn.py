"""Orders elements of lanes as rows of steps: some of the first lane, of the second, ..."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Columns, merge_columns
from bushel.core.positions import Keys


def rows_in_turn(blocks: Sequence[Block], rows: int) -> list[Any]:
    """Elements of blocks, one block for each lane, in turn: `rows` of each lane in a step.

    >>> lanes = [Block([lane + n for n in range(4)], np.arange(4)) for lane in (0, 10)]
    >>> rows_in_turn(lanes, 2)
    [0, 1, 10, 11, 2, 3, 12, 13]
    """
    lanes = [block.rows() for block in blocks]
    if len(blocks[0]) == rows:
        return [row for lane in lanes for row in lane]
    starts = range(0, len(blocks[0]), rows)
    return [row for start in starts for lane in lanes for row in lane[start : start + rows]]


def columns_in_turn(blocks: Sequence[Block], rows: int) -> Columns | None:
    """The same as columns, if all blocks are columns of one kind."""
    first = blocks[0].values
    if not isinstance(first, Columns):
        return None
    by_key = [
        block.values.keys
        for block in blocks
        if isinstance(block.values, Columns) and block.values.tree is first.tree
    ]
    keys = [part for part in by_key if part is not None]
    if len(keys) == len(blocks):
        # All select from one and the same table: nothing is copied before the batch.
        lanes = np.stack([part.reshape(-1, rows) for part in keys], axis=1)
        return Columns(first.tree, lanes.reshape(-1))
    size = len(blocks) * len(blocks[0])
    return merge_columns(size, list(zip(_places(blocks, rows), blocks, strict=True)))


def _places(blocks: Sequence[Block], rows: int) -> list[Keys]:
    """The places of each lane's elements."""
    starts = np.arange(len(blocks[0]) // rows)[:, None] * (len(blocks) * rows)
    each = starts + np.arange(rows)
    return [(each + lane * rows).reshape(-1) for lane in range(len(blocks))]
