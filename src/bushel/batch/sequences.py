"""Extracts the arrays of features of many elements at once, for `pack`."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.frozen import plain
from bushel.core.ragged import RaggedRows, Run, Stacked
from bushel.core.tree import Path

_dimensions = attrgetter("ndim")


@plain
class Sequences:
    """For each feature the arrays of the elements from `start` on, and their lengths."""

    rows: Sequence[Any]
    start: int
    arrays: list[list[npt.NDArray[Any]]]
    sizes: list[list[int]]
    # Whether all features of an element are equally long.
    alike: bool


def sequences_of(
    rows: Sequence[Any] | RaggedRows,
    start: int,
    paths: Sequence[Path],
    others: Sequence[str] = (),
    lists: bool = False,
) -> Sequences | None:
    """Takes the arrays of some features out of elements; None where not all are plain ones.

    Elements must have the `others` too. With `lists`, lists of numbers count as arrays. Elements
    that are not plain (a single number as a sequence, say, or a missing feature) are processed one
    by one by the caller.
    """
    if not paths:
        return None
    if isinstance(rows, RaggedRows):
        return _of_ragged(rows, paths, others)
    arrays: list[list[Any]] = []
    try:
        for name in others:
            for row in rows[start:]:
                row[name]
        for path in paths:
            values = [row[path[0]] for row in rows[start:]]
            for name in path[1:]:
                values = [value[name] for value in values]
            if lists and type(values[0]) is list:
                values = [np.asarray(value) for value in values]
            if set(map(type, values)) != {np.ndarray} or set(map(_dimensions, values)) != {1}:
                return None
            arrays.append(values)
    except Exception:
        return None  # It is found again, and raised, at the element that causes it.
    sizes = [list(map(len, values)) for values in arrays]
    return Sequences(rows, start, arrays, sizes, all(each == sizes[0] for each in sizes))


def _of_ragged(rows: RaggedRows, paths: Sequence[Path], others: Sequence[str]) -> Sequences | None:
    """The same for rows that were taken apart: cut out of one array each, no row is made."""
    arrays, sizes = [], []
    for path in paths:
        column = rows.feature(*path)
        is_run = isinstance(column, Run) and column.flat.ndim == 1
        is_stack = isinstance(column, Stacked) and column.array.ndim == 2
        if column is None or not (is_run or is_stack):
            return None
        arrays.append(column.rows())
        sizes.append(list(map(len, arrays[-1])))
    if any(rows.feature(name) is None for name in others):
        return None
    # A caller without `others` needs none of the elements.
    elements = rows.rows() if others else []
    return Sequences(elements, 0, arrays, sizes, all(each == sizes[0] for each in sizes))
