"""Columns without nulls whose rows are of several lengths: strings, bytes, lists of numbers."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bushel.core.positions import Keys
from bushel.sources.arrow.memory import Memory, Rows, memory_of
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.types import number_type, stored_type


class Items(Protocol):
    """A column of which rows are taken as a list."""

    def take(self, rows: Rows, python: bool) -> list[Any]:
        """The values of rows; with `python`, lists of numbers are Python's."""
        ...


class _Bounds:
    """Where rows start and stop in a memory of values."""

    __slots__ = ("_offsets", "_starts")

    def __init__(self, offsets: Memory, values: Memory) -> None:
        self._offsets, self._starts = offsets, values.starts

    def of(self, rows: Rows) -> tuple[list[int], list[int]]:
        index: Keys = rows.inner + rows.of(self._offsets.starts)
        shift = rows.of(self._starts)
        offsets = self._offsets.values
        begins = offsets.take(index, 0, None, "clip") + shift
        ends = offsets.take(index + 1, 0, None, "clip") + shift
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
        values, (begins, ends) = self._values, self._bounds.of(rows)
        if python:
            return [values[a:b].tolist() for a, b in zip(begins, ends, strict=True)]
        # Copies: what a record has may be written to, and does not keep a file in memory.
        return [values[a:b].copy() for a, b in zip(begins, ends, strict=True)]


def has_items(kind: Any) -> bool:
    """Whether rows of a type are such items, if there are no nulls."""
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


def items_of(arrays: Sequence[Any], stretch: Any = None) -> Items | None:
    """The items of arrays, which are one, or in one stretch; None where there are nulls."""
    kind = arrays[0].type
    types = arrow().types
    is_list = types.is_list(kind) or types.is_large_list(kind)
    inner = [array.values for array in arrays] if is_list else []
    if any(array.null_count for array in (*arrays, *inner)):
        return None
    offsets = memory_of(arrays, 1, _offset_type(kind), stretch)
    if is_list:
        assert number_type(kind.value_type) is not None
        values = memory_of(inner, 1, stored_type(kind.value_type), stretch)
    else:
        values = memory_of(arrays, 2, np.uint8, stretch, counts_offset=False)
    if offsets is None or values is None:
        return None
    bounds = _Bounds(offsets, values)
    if is_list:
        return NumberLists(bounds, values)
    return Texts(bounds, values, types.is_string(kind) or types.is_large_string(kind))
