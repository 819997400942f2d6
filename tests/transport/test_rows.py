"""Columns on their way."""

import numpy as np

from bushel.core.block import Columns
from bushel.transport.rows import pack_values


def test_columns_are_sent_without_the_table_that_they_are_chosen_from() -> None:
    chosen = Columns({"x": np.arange(50)}, np.array([3, 40, 3]))
    packed = pack_values(chosen)
    assert isinstance(packed, Columns)
    assert packed.keys is None and packed.tree["x"].tolist() == [3, 40, 3]
