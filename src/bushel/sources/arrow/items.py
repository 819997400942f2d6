"""Copies rows of different lengths from Arrow's memory: strings, bytes, lists."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from bushel.core.positions import Keys
from bushel.sources.arrow.buffers import Memory, Rows, memory_of
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.types import number_type, stored_type

# Shorter lists are cut out of one list of all numbers: slicing it takes less time than making an
# array, but each number takes more.
_SHORT = 32


class Items(Protocol):
    """A column whose rows are taken as a list."""

    def take(self, rows: Rows, python: bool) -> list[Any]:
        """The values of rows; with `python`, lists of numbers are Python lists."""
        ...


class _Bounds:
    """The start and end of rows, and the number of values in their memory."""

    __slots__ = ("_count", "_offsets", "_starts")

    def __init__(self, offsets: Memory, starts: Keys, count: int) -> None:
        self._offsets, self._starts, self._count = offsets, starts, count

    def arrays(self, rows: Rows) -> tuple[Keys, Keys]:
        index: Keys = rows.inner + rows.of(self._offsets.starts)
        shift = rows.of(self._starts)
        offsets = self._offsets.values
        begins = offsets.take(index, 0, None, "clip") + shift
        ends = offsets.take(index + 1, 0, None, "clip") + shift
        # They are data, and checked: a file must not make us read elsewhere, or allocate memory.
        if len(begins) and (begins.min() < 0 or ends.max() > self._count or (ends < begins).any()):
            raise ValueError("values should lie where there are none")
        return begins, ends

    def of(self, rows: Rows) -> tuple[list[int], list[int]]:
        begins, ends = self.arrays(rows)
        return begins.tolist(), ends.tolist()


class Texts:
    """Strings, or bytes."""

    __slots__ = ("_bounds", "_bytes", "_is_text")

    def __init__(self, bounds: _Bounds, values: Memory, is_text: bool) -> None:
        self._bounds, self._is_text = bounds, is_text
        self._bytes = values.values.data

    def take(self, rows: Rows, python: bool) -> list[Any]:
        data, (begins, ends) = self._bytes, self._bounds.of(rows)
        if self._is_text:
            return [str(data[a:b], "utf-8") for a, b in zip(begins, ends, strict=True)]
        return [bytes(data[a:b]) for a, b in zip(begins, ends, strict=True)]


class NumberLists:
    """Lists of numbers."""

    __slots__ = ("_bounds", "_values")

    def __init__(self, bounds: _Bounds, values: Memory) -> None:
        self._bounds, self._values = bounds, values.values

    def take(self, rows: Rows, python: bool) -> list[Any]:
        values = self._values
        first, last = self._bounds.arrays(rows)
        if python and int((last - first).sum()) < _SHORT * len(rows):
            index, bounds = _all_within(first, last)
            return _dealt(values.take(index, 0, None, "clip").tolist(), bounds)
        begins, ends = first.tolist(), last.tolist()
        if python:
            return [values[a:b].tolist() for a, b in zip(begins, ends, strict=True)]
        # Copies: the user may write to records, and these must not keep a file in memory.
        return [values[a:b].copy() for a, b in zip(begins, ends, strict=True)]


class NestedLists:
    """Lists of lists: the inner ones are taken all at once, and distributed."""

    __slots__ = ("_bounds", "_inner")

    def __init__(self, bounds: _Bounds, inner: Items) -> None:
        self._bounds, self._inner = bounds, inner

    def take(self, rows: Rows, python: bool) -> list[Any]:
        begins, ends = self._bounds.arrays(rows)
        index, bounds = _all_within(begins, ends)
        which = None if rows.which is None else np.repeat(rows.which, ends - begins)
        return _dealt(self._inner.take(Rows(index, which), python), bounds)


def _all_within(begins: Keys, ends: Keys) -> tuple[Keys, list[int]]:
    """All numbers of some ranges, joined, and where those of each begin and end.

    >>> _all_within(np.array([7, 2]), np.array([9, 3]))
    (array([7, 8, 2]), [0, 2, 3])
    """
    counts = ends - begins
    bounds = np.concatenate([[0], counts.cumsum()])
    return np.arange(bounds[-1]) + np.repeat(begins - bounds[:-1], counts), bounds.tolist()


def _dealt(values: list[Any], bounds: list[int]) -> list[Any]:
    return [values[a:b] for a, b in pairwise(bounds)]


def has_items(kind: Any) -> bool:
    """Whether rows of a type can be taken like this, if there are no nulls."""
    types = arrow().types
    if types.is_list(kind) or types.is_large_list(kind):
        inner = kind.value_type
        return bool(types.is_integer(inner) or types.is_floating(inner))
    return _offset_type(kind) is not None


def _offset_type(kind: Any) -> type | None:
    types = arrow().types
    if types.is_string(kind) or types.is_binary(kind) or types.is_list(kind):
        return np.int32
    if types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind):
        return np.int64
    return None


def has_nested_items(kind: Any) -> bool:
    """Whether rows of a type are lists of lists of numbers, or lists of those, if without nulls.

    Not lists of strings: pyarrow makes them as quickly as one string is made here.

    >>> import pyarrow as pa
    >>> has_nested_items(pa.list_(pa.list_(pa.int8()))), has_nested_items(pa.list_(pa.int8()))
    (True, False)
    """
    if not _is_list(kind) or not _is_list(kind.value_type):
        return False
    return has_items(kind.value_type) or has_nested_items(kind.value_type)


def items_of(arrays: Sequence[Any], stretch: Any = None) -> Items | None:
    """The items of arrays, which are one, or in one stretch; None if there are nulls."""
    if any(array.null_count for array in arrays):
        return None
    kind = arrays[0].type
    offsets = memory_of(arrays, 1, _offset_type(kind), stretch)
    if offsets is None:
        return None
    if not _is_list(kind):
        values = memory_of(arrays, 2, np.uint8, stretch, counts_offset=False)
        is_text = bool(arrow().types.is_string(kind) or arrow().types.is_large_string(kind))
        return None if values is None else Texts(_bounds(offsets, values), values, is_text)
    inner = [array.values for array in arrays]
    if _is_list(kind.value_type):
        items = items_of(inner, stretch)
        # The bounds of each array, which may have different lengths.
        bounds = _Bounds(offsets, np.zeros(len(arrays), np.int64), max(map(len, inner)))
        return None if items is None else NestedLists(bounds, items)
    if any(array.null_count for array in inner):
        return None
    assert number_type(kind.value_type) is not None
    values = memory_of(inner, 1, stored_type(kind.value_type), stretch)
    return None if values is None else NumberLists(_bounds(offsets, values), values)


def _bounds(offsets: Memory, values: Memory) -> _Bounds:
    return _Bounds(offsets, values.starts, len(values.values))


def _is_list(kind: Any) -> bool:
    return bool(arrow().types.is_list(kind) or arrow().types.is_large_list(kind))
