"""Makes Python values of records in Arrow arrays.

numbers, booleans               numpy's, of the type of the column
timestamps, dates, durations    numpy.datetime64 (in UTC) and numpy.timedelta64
strings, bytes                  str, bytes
lists of numbers                arrays of the type; lists, if there are nulls among them
lists of one length of those    arrays with one axis more
other lists                     lists of values like these
structs                         dicts
maps                            lists of pairs
categories                      what they stand for
null                            None
anything else                   what pyarrow makes of it: Decimal, datetime.time, ...
"""

from itertools import pairwise
from typing import Any

import numpy as np

from bushel.core.block import dicts_of
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.types import inner_array, is_tensor, number_type, numbers


def values_of(array: Any) -> list[Any]:
    """The values of an array, as records have them.

    >>> import pyarrow as pa
    >>> values_of(pa.array([[1, 2], None, [None], []], pa.list_(pa.int8())))
    [array([1, 2], dtype=int8), None, [None], array([], dtype=int8)]
    """
    kind = array.type
    types = arrow().types
    if number_type(kind) is not None:
        return _but_nulls(list(numbers(array)), array)
    if types.is_dictionary(kind):
        return values_of(array.dictionary_decode())
    if types.is_struct(kind):
        return _dicts(array)
    if types.is_map(kind):
        return _pairs(array)
    if types.is_fixed_size_list(kind):
        return _rows_of_one_length(array)
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(array)
    if is_tensor(kind):
        rows = values_of(array.storage)
        return [row.reshape(kind.shape) if type(row) is np.ndarray else row for row in rows]
    return array.to_pylist()  # type: ignore[no-any-return]


def _but_nulls(values: list[Any], array: Any) -> list[Any]:
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values


def _dicts(array: Any) -> list[Any]:
    names = [field.name for field in array.type]
    children = [values_of(array.field(number)) for number in range(len(names))]
    if not names:
        return _but_nulls([{} for _ in range(len(array))], array)
    return _but_nulls(dicts_of(names, children), array)


def _rows_of_one_length(array: Any) -> list[Any]:
    size, inner = array.type.list_size, inner_array(array)
    dtype = number_type(inner.type)
    if dtype is not None and not inner.null_count:
        return _but_nulls(list(numbers(inner).reshape(len(array), size)), array)
    values = values_of(inner)
    rows = [values[number * size : (number + 1) * size] for number in range(len(array))]
    return _but_nulls([_as_array(row, inner.type) for row in rows], array)


def _lists(array: Any) -> list[Any]:
    bounds, inner = _within(array, array.values)
    dtype = number_type(inner.type)
    if dtype is None or inner.null_count:
        values = values_of(inner)
        rows: list[Any] = [values[start:stop] for start, stop in bounds]
        if dtype is not None:
            rows = [_as_array(row, inner.type) for row in rows]
    else:
        flat = numbers(inner)
        rows = [flat[start:stop] for start, stop in bounds]
    return _but_nulls(rows, array)


def _pairs(array: Any) -> list[Any]:
    bounds, keys = _within(array, array.keys)
    _, items = _within(array, array.items)
    pairs = list(zip(values_of(keys), values_of(items), strict=True))
    return _but_nulls([pairs[start:stop] for start, stop in bounds], array)


def _within(array: Any, inner: Any) -> tuple[list[tuple[int, int]], Any]:
    """Where the values of each row start and end, and the values."""
    offsets = array.offsets.to_numpy()
    if not len(offsets):
        return [], inner.slice(0, 0)
    first, last = int(offsets[0]), int(offsets[-1])
    return list(pairwise((offsets - first).tolist())), inner.slice(first, last - first)


def _as_array(row: list[Any], kind: Any) -> Any:
    """A list of numbers, or of rows of one length, as an array, unless some are nulls."""
    dtype = number_type(kind)
    if dtype is not None:
        return row if any(value is None for value in row) else np.array(row, dtype)
    is_table = row and arrow().types.is_fixed_size_list(kind)
    return np.stack(row) if is_table and all(type(v) is np.ndarray for v in row) else row
