"""Rows written at once: sequences and padding end to end, whose each cell is, and where in it."""

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


@cache
def _counting(size: int) -> Array:
    return np.arange(size, dtype=np.int32)


@cache
def _nothing(size: int) -> Array:
    return np.zeros(size, np.int32)


def joined(pieces: Sequence[Array], size: int, like: Array) -> Array:
    """Writes arrays end to end, which have so many cells together, as the type of one of them."""
    made = np.empty((size, *like.shape[1:]), like.dtype)
    # Cast as by assignment, each piece by itself.
    np.concatenate(pieces, out=made, casting="unsafe")
    return made


def padding(size: int, like: Array, value: Any = None) -> Array:
    """So many cells of no sequence."""
    shape = (size, *like.shape[1:])
    return np.zeros(shape, like.dtype) if value is None else np.full(shape, value, like.dtype)


def places(sizes: Sequence[int], numbers: Sequence[int]) -> tuple[Array, Array]:
    """For sequences end to end: the number of each in all of its cells, and their places in it.

    Those of number 0 are padding.

    >>> places([2, 3, 1], [1, 2, 0])
    (array([1, 1, 2, 2, 2, 0], dtype=int32), array([0, 1, 0, 1, 2, 0], dtype=int32))
    """
    ids = np.array(numbers, np.int32).repeat(np.array(sizes, np.int64))
    # A power of two, so that few of them are kept.
    bound = 1 << max(sizes, default=0).bit_length()
    count, nothing = _counting(bound), _nothing(bound)
    parts = [
        count[:size] if number else nothing[:size]
        for size, number in zip(sizes, numbers, strict=True)
    ]
    return ids, np.concatenate(parts or [nothing[:0]])
