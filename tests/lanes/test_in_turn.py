"""Elements of lanes in the order of steps, as columns and as rows."""

import numpy as np
import pytest

from bushel.core.block import Block, Columns
from bushel.lanes.in_turn import columns_in_turn, rows_in_turn


@pytest.mark.parametrize("one_table", [True, False])
@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (1, 3), (2, 1), (2, 3)])
def test_columns_are_the_rows(rows: int, steps: int, one_table: bool) -> None:
    size, chance = rows * steps, np.random.default_rng(rows)
    table = np.arange(50) * 10
    blocks = []
    for _ in range(3):
        keys = chance.integers(0, 50, size)
        values = Columns(table, keys) if one_table else Columns(table.take(keys), None, size)
        blocks.append(Block(values, np.arange(size)))
    made = columns_in_turn(blocks, rows)
    assert made is not None
    assert made.rows() == rows_in_turn(blocks, rows)
