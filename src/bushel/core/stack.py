"""Stacks n elements into one of n-long arrays; the error if their structures or shapes differ."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.room import room
from bushel.core.tree import Path, map_leaves, open_node, show_path
from bushel.errors import BatchError, StructureError

_PLAIN_NUMBERS: dict[type, np.dtype[Any]] = {
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    bool: np.dtype(np.bool_),
}


def stack(rows: Sequence[Any], path: Path = ()) -> Any:
    """Stacks elements leaf by leaf on a new first axis, as `numpy.stack` would.

    >>> stack([{"x": 1, "y": (2.0,)}, {"x": 3, "y": (4.0,)}])
    {'x': array([1, 3]), 'y': (array([2., 4.]),)}
    """
    first = rows[0]
    kind = type(first)
    if kind is np.ndarray:
        return _stack_arrays(rows, path)
    if kind is dict:
        _check_same(rows, kind, path)
        # Same size, and all have every key of the first one: then the keys are the same.
        try:
            return {name: stack([row[name] for row in rows], (*path, name)) for name in first}
        except KeyError as error:
            raise _different_structure(rows, path) from error
    if kind in _PLAIN_NUMBERS:
        return _stack_numbers(rows, kind, path)
    if issubclass(kind, (np.number, np.bool_)) and set(map(type, rows)) == {kind}:
        # `numpy.stack` would make an array of each first, which takes 20 times as long.
        return np.array(rows, dtype=first.dtype)
    opened = open_node(first)
    if opened is None:
        return _stack_any(rows, path)
    names, _, rebuild = opened
    if first is None:
        if any(row is not None for row in rows):
            raise _different_structure(rows, path)
        return None
    _check_same(rows, kind, path)
    if kind is tuple or kind is list:
        columns: Any = zip(*rows, strict=True)
    else:
        parts = [open_node(row) for row in rows]
        if any(part is None or part[0] != names for part in parts):
            raise _different_structure(rows, path)
        columns = zip(*(part[1] for part in parts if part is not None), strict=True)
    return rebuild(
        [stack(column, (*path, name)) for name, column in zip(names, columns, strict=True)]
    )


def _check_same(rows: Sequence[Any], kind: type, path: Path) -> None:
    if set(map(type, rows)) != {kind}:
        raise _different_structure(rows, path)
    if issubclass(kind, (dict, list, tuple)) and len(set(map(len, rows))) != 1:
        raise _different_structure(rows, path)


def _stack_arrays(rows: Sequence[Any], path: Path) -> Any:
    if room.landed is not None and (whole := room.landed.joined(rows)) is not None:
        return whole
    first = rows[0]
    shape, dtype = first.shape, first.dtype
    if not shape or not dtype.isnative or set(map(type, rows)) != {np.ndarray}:
        return _stack_any(rows, path)
    # Joining along the first axis and reshaping gives the same as stacking, without
    # numpy.stack's view of each array with one more axis, which costs more than the copy.
    for row in rows:
        if row.shape != shape or row.dtype is not dtype:
            if row.shape != shape:
                raise _different_shape(rows, path)
            return _stack_any(rows, path)
    if room.make is None or dtype.hasobject:
        return np.concatenate(rows).reshape((len(rows), *shape))
    made = room.make((len(rows) * shape[0], *shape[1:]), dtype)
    return np.concatenate(rows, out=made).reshape((len(rows), *shape))


def _stack_numbers(rows: Sequence[Any], kind: type, path: Path) -> Any:
    if set(map(type, rows)) == {kind}:
        try:
            return np.array(rows, dtype=_PLAIN_NUMBERS[kind])
        except OverflowError:
            pass  # An int of more than 64 bits: numpy chooses the type.
    return _stack_any(rows, path)


def _stack_any(rows: Sequence[Any], path: Path) -> Any:
    """Leaves of any other kind, or of several kinds: numpy decides the result."""
    try:
        return np.stack(rows)
    except ValueError as error:
        arrays = [np.asanyarray(row) for row in rows]
        if len({array.shape for array in arrays}) > 1:
            raise _different_shape(arrays, path) from error
        raise
    except TypeError as error:
        raise BatchError(
            f"`batch` cannot stack {show_path(path)}: numpy says {error} Give `batch_fn` a "
            "function that joins such elements."
        ) from error


def _different_shape(rows: Sequence[Any], path: Path) -> BatchError:
    shape = rows[0].shape
    index = next(i for i, row in enumerate(rows) if row.shape != shape)
    return BatchError(
        f"`batch` needs elements of one shape, but {show_path(path)} has shape {shape} in "
        f"element 0 of the batch and {rows[index].shape} in element {index}. Pad or crop in a "
        "`map` before, or join them yourself with `batch(..., batch_fn=...)`."
    )


def _different_structure(rows: Sequence[Any], path: Path) -> BatchError:
    first = _outline(rows[0])
    index, other = next(
        ((i, shown) for i, row in enumerate(rows) if (shown := _outline(row)) != first),
        (len(rows) - 1, _outline(rows[-1])),
    )
    return StructureError(
        f"`batch` needs elements of one structure, but {show_path(path)} is {first} in element "
        f"0 of the batch and {other} in element {index}{_difference(rows[0], rows[index])}. Make "
        "them alike in a `map` before, or join them yourself with `batch(..., batch_fn=...)`."
    )


def _difference(first: Any, other: Any) -> str:
    """Which keys only one of two dicts has."""
    if not isinstance(first, dict) or not isinstance(other, dict):
        return ""
    parts = [
        f"only {which} has {[key for key in one if key not in two]}"
        for which, one, two in (("the first", first, other), ("the other", other, first))
        if any(key not in two for key in one)
    ]
    return f": {', '.join(parts)}" if parts else ""


def _outline(value: Any) -> str:
    if isinstance(value, dict):
        return f"a {type(value).__name__} with keys {list(value)}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def batch_and_pad(values: Sequence[Any], *, batch_size: int, pad_value: Any = 0) -> Any:
    """Stacks elements, and fills up to `batch_size` rows with a value.

    For `batch(..., batch_fn=...)`, where all batches must have the same shape.

    >>> batch_and_pad([1, 2], batch_size=4, pad_value=-1)
    array([ 1,  2, -1, -1])
    """
    if not len(values):
        raise BatchError("`batch_and_pad` cannot make a batch of no elements.")
    if len(values) > batch_size:
        raise BatchError(
            f"`batch_and_pad` got {len(values)} elements, more than its batch_size of {batch_size}."
        )

    def padded(leaf: Any) -> Any:
        rows = np.full((batch_size, *leaf.shape[1:]), pad_value, dtype=leaf.dtype)
        rows[: len(leaf)] = leaf
        return rows

    stacked = stack(values)
    return stacked if len(values) == batch_size else map_leaves(padded, stacked)
