"""Writes the cells of all rows of `pack` at once: sequences, padding, segment ids, positions."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def joined(pieces: Sequence[Array], size: int, like: Array) -> Array:
    """Joins arrays with `size` cells in all, with the type of `like`."""
    made = np.empty((size, *like.shape[1:]), like.dtype)
    # Cast as in an assignment, each piece by itself.
    np.concatenate(pieces, out=made, casting="unsafe")
    return made


def padding(size: int, like: Array, value: Any = None) -> Array:
    """Makes `size` cells of padding."""
    shape = (size, *like.shape[1:])
    return np.zeros(shape, like.dtype) if value is None else np.full(shape, value, like.dtype)


def places(sizes: "Sequence[int] | Array", numbers: "Sequence[int] | Array") -> tuple[Array, Array]:
    """For joined sequences: the number of its sequence for each cell, and its place in it.

    Those of number 0 are padding.

    >>> places([2, 3, 1], [1, 2, 0])
    (array([1, 1, 2, 2, 2, 0], dtype=int32), array([0, 1, 0, 1, 2, 0], dtype=int32))
    """
    each, owners = np.asarray(sizes, np.int64), np.asarray(numbers, np.int32)
    ids = owners.repeat(each)
    ends = each.cumsum()
    begins = ends - each
    # A running count, minus the start of each sequence.
    positions = np.arange(len(ids), dtype=np.int32)
    positions -= begins.astype(np.int32).repeat(each)
    (empty,) = (owners == 0).nonzero()
    for begin, end in zip(begins[empty].tolist(), ends[empty].tolist(), strict=True):
        positions[begin:end] = 0
    return ids, positions
