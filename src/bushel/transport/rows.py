"""Rows on their way: lists of alike elements travel as columns, and arrive as the same rows.

Thousands of small arrays would cost a microsecond or two each to pickle; one array with all
of them costs next to nothing. Only what comes back exactly as it was is packed: arrays of one
type and shape, and numpy's scalars of one type.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.block import Columns
from bushel.frozen import plain

_FEWEST = 4
# From here on an array is better copied by itself, straight to where it goes.
_LARGE_BYTES = 1 << 16
_PLAIN_KINDS = frozenset("biufc")


@plain
class PackedRows:
    """Rows of one structure, taken apart: one packed column for each part of it."""

    kind: type
    names: tuple[Any, ...]
    columns: list[Any]
    size: int


@plain
class PackedColumn:
    """Values of one type, stacked."""

    stacked: Any


def pack_values(values: list[Any] | Columns) -> Any:
    """Turns a block's values into what is quick to pickle."""
    if isinstance(values, Columns):
        if values.keys is None:
            return type(values)(values.tree, None, values.size)
        return type(values)(values.gather(), None, values.size)
    return _pack(values)


def unpack_values(packed: Any) -> list[Any] | Columns:
    """Turns it back.

    >>> rows = [{"x": np.array([i, i]), "y": i} for i in range(5)]
    >>> unpack_values(pack_values(rows))[3]
    {'x': array([3, 3]), 'y': 3}
    """
    if isinstance(packed, (Columns, list)):
        return packed
    return _unpack(packed)


def _pack(rows: list[Any]) -> Any:
    if len(rows) < _FEWEST:
        return rows
    first = rows[0]
    kind = type(first)
    if kind is np.ndarray or isinstance(first, np.generic):
        return _pack_column(rows)
    if kind is dict and first:
        names = tuple(first)
        # Names that are equal may still be different: 1 and True, str and numpy's.
        plain = all(type(name) is str for name in names)
        if plain and all(
            type(row) is dict and tuple(row) == names and set(map(type, row)) == {str}
            for row in rows
        ):
            columns = [_pack_column([row[name] for row in rows]) for name in names]
            return PackedRows(dict, names, columns, len(rows))
    elif (
        kind is tuple
        and first
        and all(type(row) is tuple and len(row) == len(first) for row in rows)
    ):
        columns = [_pack_column(list(column)) for column in zip(*rows, strict=True)]
        return PackedRows(tuple, (), columns, len(rows))
    return rows


def _pack_column(values: list[Any]) -> Any:
    first = values[0]
    kind = type(first)
    if kind is np.ndarray:
        if _is_packable(first) and all(
            type(value) is np.ndarray
            and value.dtype is first.dtype
            and value.shape == first.shape
            and value.flags.c_contiguous
            and value.flags.writeable
            for value in values
        ):
            return PackedColumn(np.stack(values))
    elif isinstance(first, np.generic) and kind.__module__ == "numpy":
        dtype = first.dtype
        if dtype.kind in _PLAIN_KINDS and all(type(value) is kind for value in values):
            return PackedColumn(np.array(values, dtype=dtype))
    elif kind is dict:
        return _pack(values)
    return values


def _is_packable(array: Any) -> bool:
    dtype = array.dtype
    return (
        array.ndim > 0
        and dtype.kind in _PLAIN_KINDS
        and dtype.isnative
        and 0 < array.nbytes < _LARGE_BYTES
    )


def _unpack(packed: Any) -> list[Any]:
    if isinstance(packed, PackedColumn):
        return list(packed.stacked)
    if not isinstance(packed, PackedRows):
        rows: list[Any] = packed
        return rows
    columns: Sequence[list[Any]] = [_unpack(column) for column in packed.columns]
    if packed.kind is tuple:
        return list(zip(*columns, strict=True))
    names = packed.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
