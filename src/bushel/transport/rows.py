"""Sends similar rows as columns (`core/ragged.py`), and restores the same rows.

Similar elements, which may differ in length, are taken apart (`core/ragged.py`) into a few flat
arrays. These are made in the memory from which they are sent, so that nothing is copied twice.
"""

from typing import Any

from bushel.core.block import Columns
from bushel.core.ragged import RaggedRows, take_apart
from bushel.core.room import Make


def pack_values(values: list[Any] | Columns, make: Make | None = None) -> list[Any] | Columns:
    """Converts a block's values to a form that is quick to pickle; `make` allocates its arrays.

    >>> import numpy as np
    >>> rows = [{"x": np.arange(i), "y": i} for i in range(5)]
    >>> pack_values(rows).rows()[3]
    {'x': array([0, 1, 2]), 'y': 3}
    """
    if isinstance(values, RaggedRows):
        return values.alone()
    if isinstance(values, Columns):
        tree = values.tree if values.keys is None else values.gather()
        return type(values)(tree, None, values.size)
    return take_apart(values, make) or values


def unpack_values(packed: list[Any] | Columns) -> list[Any] | Columns:
    """Restores rows, for a caller that needs all of them at once."""
    return packed.rows() if isinstance(packed, RaggedRows) else packed
