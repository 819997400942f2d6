"""Arrays of positions (in a dataset's order) and of keys (in a source)."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Positions: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[np.int64]


def split_epochs(positions: Positions, length: int) -> tuple[Any, Positions]:
    """Returns the epochs (one number, if they are all the same) and the offsets.

    Blocks lie within one epoch nearly always, and then no division is needed for each
    position.

    >>> split_epochs(np.array([10, 11]), 10)
    (1, array([0, 1]))
    >>> split_epochs(np.array([9, 10]), 10)
    (array([0, 1]), array([9, 0]))
    """
    if len(positions):
        epoch = int(positions.min()) // length
        if int(positions.max()) // length == epoch:
            return epoch, positions - epoch * length if epoch else positions
    epochs, offsets = np.divmod(positions, length)
    return epochs, offsets
