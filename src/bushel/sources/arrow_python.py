"""Values of Arrow arrays as Python's own, the same that pyarrow's `to_pylist` makes.

That one makes an object of Arrow's for each value. Here what lies within lists is converted all
at once, and cut afterwards.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from bushel.sources.arrow_package import arrow
from bushel.sources.arrow_types import numbers


def python_values(array: Any) -> list[Any]:
    """The values of an array.

    >>> import pyarrow as pa
    >>> python_values(pa.array([[1, None], None, [], [3]]))
    [[1, None], None, [], [3]]
    """
    kind, types = array.type, arrow().types
    if types.is_list(kind) or types.is_large_list(kind):
        return _with_nulls(_lists(array), array)
    if types.is_struct(kind) and len({field.name for field in kind}) == kind.num_fields > 0:
        return _with_nulls(_dicts(array), array)
    is_number = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
    if is_number or types.is_boolean(kind):
        return _with_nulls(numbers(array).tolist(), array)
    values: list[Any] = array.to_pylist()
    return values


def _lists(array: Any) -> list[Any]:
    if not len(array):
        return []
    offsets = array.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    values = python_values(array.values.slice(first, last - first))
    return [values[start:stop] for start, stop in pairwise((offsets - first).tolist())]


def _dicts(array: Any) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [python_values(array.field(number)) for number in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _with_nulls(values: list[Any], array: Any) -> list[Any]:
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values
