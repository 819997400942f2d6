"""Copies rows of columns without nulls directly from Arrow's memory."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bushel.core.positions import Keys
from bushel.sources.arrow.buffers import Memory, Rows, memory_of
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.types import inner_array, is_tensor, number_type, stored_type


class View(Protocol):
    """A column whose rows all have the same type and shape."""

    def new(self, count: int) -> Any:
        """Allocates `count` rows."""
        ...

    def copy(self, rows: Rows, into: Any, places: Keys | slice) -> None:
        """Copies rows to places of that array."""
        ...


class ArrayView:
    """A column of numbers, or of arrays of one shape."""

    __slots__ = ("_dtype", "_memory", "_shape", "_size", "_table")

    def __init__(self, memory: Memory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._memory, self._dtype, self._shape = memory, dtype, shape
        self._size = math.prod(shape)
        self._table: Any = memory.values
        if shape:
            # Row n is the values from n on: a view whose rows overlap.
            count = max(0, len(memory.values) - self._size + 1)
            self._table = np.ndarray(
                (count, self._size),
                memory.values.dtype,
                memory.values,
                strides=memory.values.strides * 2,
            )

    def new(self, count: int) -> Any:
        return np.empty((count, *self._shape), self._dtype)

    def copy(self, rows: Rows, into: Any, places: Keys | slice) -> None:
        starts = rows.of(self._memory.starts)
        if self._shape:
            found = self._table[rows.inner * self._size + starts]
            into[places] = found.reshape(len(rows), *self._shape)
        else:
            into[places] = self._table.take(rows.inner + starts, 0, None, "clip")


class BitsView:
    """A column of booleans, eight in a byte."""

    __slots__ = ("_memory", "_offsets", "_shape")

    def __init__(self, memory: Memory, offsets: Keys, shape: tuple[int, ...]) -> None:
        self._memory, self._offsets, self._shape = memory, offsets, shape

    def new(self, count: int) -> Any:
        return np.empty((count, *self._shape), np.bool_)

    def copy(self, rows: Rows, into: Any, places: Keys | slice) -> None:
        bits = rows.inner * math.prod(self._shape) + rows.of(self._offsets)
        starts = rows.of(self._memory.starts)
        if self._shape:
            bits = bits[:, None] + np.arange(math.prod(self._shape))
            starts = starts if rows.which is None else starts[:, None]
        chosen = (self._memory.values[(bits >> 3) + starts] >> (bits & 7)) & 1
        into[places] = chosen.reshape(len(rows), *self._shape)


class StructView:
    """A column of structs, as columns of their fields."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, View]) -> None:
        self._fields = fields

    def new(self, count: int) -> Any:
        return {name: field.new(count) for name, field in self._fields.items()}

    def copy(self, rows: Rows, into: Any, places: Keys | slice) -> None:
        for name, field in self._fields.items():
            field.copy(rows, into[name], places)


def is_regular(kind: Any) -> bool:
    """Whether all rows of a type have one numpy type and shape, if there are no nulls.

    >>> import pyarrow as pa
    >>> is_regular(pa.list_(pa.float32(), 3)), is_regular(pa.list_(pa.float32()))
    (True, False)
    """
    types = arrow().types
    if number_type(kind) is not None:
        return True
    if types.is_fixed_size_list(kind):
        return not types.is_struct(kind.value_type) and is_regular(kind.value_type)
    if types.is_struct(kind):
        return kind.num_fields > 0 and all(is_regular(field.type) for field in kind)
    return is_tensor(kind)


def view_of(arrays: Sequence[Any], stretch: Any = None) -> View | None:
    """A view of arrays of a regular type, which are one, or in one stretch of memory.

    None if there are nulls.
    """
    if any(array.null_count for array in arrays):
        return None
    kind = arrays[0].type
    if is_tensor(kind):
        inner = [inner_array(array.storage) for array in arrays]
        return _flat_view(inner, stretch, tuple(kind.shape))
    if arrow().types.is_struct(kind):
        fields = {
            field.name: view_of([array.field(number) for array in arrays], stretch)
            for number, field in enumerate(kind)
        }
        views = {name: view for name, view in fields.items() if view is not None}
        return StructView(views) if len(views) == len(fields) else None
    return _flat_view(arrays, stretch, ())


def column_of(array: Any) -> Any:
    """All rows of an array of a regular type; None if there are nulls."""
    view = view_of([array])
    if view is None:
        return None
    column = view.new(len(array))
    view.copy(Rows(np.arange(len(array)), None), column, slice(None))
    return column


def _flat_view(arrays: Sequence[Any], stretch: Any, shape: tuple[int, ...]) -> View | None:
    """A view of rows of a shape, whose values are consecutive."""
    if any(array.null_count for array in arrays):
        return None
    kind = arrays[0].type
    if arrow().types.is_fixed_size_list(kind):
        return _flat_view(list(map(inner_array, arrays)), stretch, (*shape, kind.list_size))
    if arrow().types.is_boolean(kind):
        memory = memory_of(arrays, 1, np.uint8, stretch, counts_offset=False)
        offsets = np.array([array.offset for array in arrays], np.int64)
        return None if memory is None else BitsView(memory, offsets, shape)
    dtype = number_type(kind)
    memory = memory_of(arrays, 1, stored_type(kind), stretch)
    return None if memory is None or dtype is None else ArrayView(memory, dtype, shape)
