"""The sequences of many elements, taken out of them at once."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.frozen import plain
from bushel.tree import Path

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
    rows: Sequence[Any],
    start: int,
    paths: Sequence[Path],
    others: Sequence[str] = (),
    lists: bool = False,
) -> Sequences | None:
    """Takes the arrays of some features out of elements; None where not all are plain ones.

    Elements must have the `others` too. With `lists`, lists of numbers are as good as arrays.
    What is not plain (a number for a sequence of one, say, or a feature that is missing) is
    looked at element by element by whoever asked.
    """
    arrays: list[list[Any]] = []
    if not paths:
        return None
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
        return None  # Found again, and reported, at the element whose fault it is.
    sizes = [list(map(len, values)) for values in arrays]
    return Sequences(rows, start, arrays, sizes, all(each == sizes[0] for each in sizes))
