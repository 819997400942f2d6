"""Rows of different lengths as one flat array and the offset of each row, to send or pack them.

    [{"x": array([1, 2]), "y": "ab"},          Struct(dict, ("x", "y"))
     {"x": array([3]),    "y": "c"}]             Run  [1 2 3]   bounds [0 2 3]
                                                 Text "abc"     bounds [0 2 3]

Thousands of arrays would cost a microsecond or two each to pickle, to place and to join; one array
with all of them costs next to nothing, and a step that joins them does not need the single ones.
Only rows that can be restored exactly, type for type, are taken apart. The rest stays a list.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.block import Columns, dicts_of
from bushel.core.frozen import plain
from bushel.core.positions import Keys
from bushel.core.room import Make
from bushel.core.stack import stack

Array: TypeAlias = npt.NDArray[Any]

# Fewer arrays or numbers are left as they are. So are larger arrays, which are copied once,
# straight to their place, or are there already.
_FEWEST = 4
_LARGE_BYTES = 1 << 16
# Strings that are shorter than this on average are better pickled: cutting them out costs more than
# copying them.
_LONG_TEXT = 1024
# The most nesting of lists: some contain themselves.
_DEEPEST = 6
_PLAIN_KINDS = frozenset("biufc")
# Types of values that may be large.
_OF_SEVERAL = frozenset([dict, tuple, list, str, bytes])
_NUMBERS: dict[type, Any] = {int: np.int64, float: np.float64, bool: np.bool_}


class Column(ABC):
    """One part of all rows."""

    __slots__ = ()

    @abstractmethod
    def rows(self) -> list[Any]:
        """The original values."""

    @abstractmethod
    def part(self, start: int, stop: int) -> "Column":
        """The values from `start` up to `stop`, perhaps with others beside them in memory."""

    def item(self, index: int) -> Any:
        """One value."""
        return self.part(index, index + 1).rows()[0]

    def alone(self) -> "Column":
        """The same values with no others beside them in memory."""
        return self


@plain
class Objects(Column):
    """Values that could not be taken apart."""

    values: list[Any]

    def rows(self) -> list[Any]:
        return self.values

    def part(self, start: int, stop: int) -> "Objects":
        return Objects(self.values[start:stop])


@plain
class Stacked(Column):
    """Arrays of one shape, or numpy's scalars."""

    array: Array

    def rows(self) -> list[Any]:
        return list(self.array)

    def part(self, start: int, stop: int) -> "Stacked":
        return Stacked(self.array[start:stop])


@plain
class Numbers(Column):
    """Python's numbers of one type."""

    array: Array

    def rows(self) -> list[Any]:
        return self.array.tolist()  # type: ignore[no-any-return]

    def part(self, start: int, stop: int) -> "Numbers":
        return Numbers(self.array[start:stop])


@plain
class Run(Column):
    """Arrays of one type that differ in their first axis only."""

    flat: Array
    # The offset of each, and the end of the last.
    bounds: npt.NDArray[np.int64]

    def rows(self) -> list[Any]:
        flat, bounds = self.flat, self.bounds.tolist()
        return [flat[begin:end] for begin, end in pairwise(bounds)]

    def item(self, index: int) -> Array:
        return self.flat[self.bounds[index] : self.bounds[index + 1]]

    def part(self, start: int, stop: int) -> "Run":
        return Run(self.flat, self.bounds[start : stop + 1])

    def alone(self) -> "Run":
        return Run(self.flat[self.bounds[0] : self.bounds[-1]], self.bounds - self.bounds[0])


@plain
class Lists(Column):
    """Lists whose items are all in one column."""

    items: Column
    bounds: npt.NDArray[np.int64]

    def rows(self) -> list[Any]:
        bounds = self.bounds.tolist()
        first = bounds[0]
        items = self.items.part(first, bounds[-1]).rows()
        return [items[begin - first : end - first] for begin, end in pairwise(bounds)]

    def part(self, start: int, stop: int) -> "Lists":
        return Lists(self.items, self.bounds[start : stop + 1])

    def alone(self) -> "Lists":
        first, last = self.bounds[[0, -1]].tolist()
        return Lists(self.items.part(first, last).alone(), self.bounds - first)


@plain
class Text(Column):
    """Long strings, or bytes."""

    flat: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]
    # None for bytes.
    encoding: str | None

    def rows(self) -> list[Any]:
        memory, bounds, encoding = self.flat.data, self.bounds.tolist(), self.encoding
        pairs = pairwise(bounds)
        if encoding is None:
            return [bytes(memory[begin:end]) for begin, end in pairs]
        return [str(memory[begin:end], encoding, "surrogatepass") for begin, end in pairs]

    def part(self, start: int, stop: int) -> "Text":
        return Text(self.flat, self.bounds[start : stop + 1], self.encoding)

    def alone(self) -> "Text":
        flat = self.flat[self.bounds[0] : self.bounds[-1]]
        return Text(flat, self.bounds - self.bounds[0], self.encoding)


@plain
class Struct(Column):
    """Dicts with the same names, or tuples of one length."""

    kind: type
    names: tuple[str, ...]
    columns: list[Column]

    def rows(self) -> list[Any]:
        columns = [column.rows() for column in self.columns]
        if self.kind is tuple:
            return list(zip(*columns, strict=True))
        return dicts_of(self.names, columns)

    def item(self, index: int) -> Any:
        row = tuple(column.item(index) for column in self.columns)
        return row if self.kind is tuple else dict(zip(self.names, row, strict=True))

    def part(self, start: int, stop: int) -> "Struct":
        return Struct(self.kind, self.names, [column.part(start, stop) for column in self.columns])

    def alone(self) -> "Struct":
        return Struct(self.kind, self.names, [column.alone() for column in self.columns])


class RaggedRows(Columns):
    """Rows that were taken apart: `tree` is the column from which they are made again.

    >>> rows = take_apart([np.arange(3), np.arange(1), np.arange(0), np.arange(2)])
    >>> rows.tree.flat, rows.tree.bounds
    (array([0, 1, 2, 0, 0, 1]), array([0, 3, 4, 4, 6]))
    >>> rows.rows()[3]
    array([0, 1])
    """

    __slots__ = ()
    stackable = False

    def gather(self) -> Any:
        return stack(self.rows())

    def rows(self) -> list[Any]:
        if self._rows is None:
            self._rows = self.tree.rows()
        return self._rows

    def alone(self) -> "RaggedRows":
        """The same rows with nothing else beside them in memory."""
        return RaggedRows(self.tree.alone(), None, self.size)

    def __getitem__(self, index: int) -> Any:
        return self.tree.item(index) if self._rows is None else self._rows[index]

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of features, if rows are dicts."""
        table = self.tree
        return table.names if isinstance(table, Struct) and table.kind is dict else None

    def feature(self, *path: Any) -> Column | None:
        """One part of all rows, if they are dicts (of dicts) that have it."""
        column: Column = self.tree
        for name in path:
            if not isinstance(column, Struct) or name not in column.names:
                return None
            column = column.columns[column.names.index(name)]
        return column

    def part(self, start: int, stop: int) -> "RaggedRows":
        start, stop, _ = slice(start, stop).indices(self.size)
        return RaggedRows(self.tree.part(start, stop), None, max(0, stop - start))

    def select(self, indices: Keys) -> "RaggedRows":
        rows = self.rows()
        return RaggedRows(Objects([rows[i] for i in indices.tolist()]), None, len(indices))

    def only(self, names: Sequence[str]) -> "RaggedRows | None":
        """The same rows with those of these features that they have; None if they are no dicts."""
        known = dict(zip(self.names or (), self.tree.columns, strict=True)) if self.names else {}
        kept = tuple(name for name in names if name in known)
        if not kept:
            return None
        return RaggedRows(Struct(dict, kept, [known[name] for name in kept]), None, self.size)


def take_apart(rows: list[Any], make: Make | None = None) -> RaggedRows | None:
    """Takes rows apart, where that pays; `make` allocates the flat arrays."""
    if not rows:
        return None
    taking = _Taking(make or np.empty)
    column = taking.column(rows, 0)
    if isinstance(column, Objects) or taking.shares:
        return None
    return RaggedRows(column, None, len(rows))


class _Taking:
    """Takes rows apart, and notes whether it meets the same object twice.

    Pickled as they are, two rows that share a list would still share it afterwards.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._met: list[list[int]] = []

    @property
    def shares(self) -> bool:
        """Whether a mutable object is in more than one place."""
        met = list(chain.from_iterable(self._met))
        return len(set(met)) < len(met)

    def column(self, values: list[Any], depth: int) -> Column:
        first = values[0]
        kind = type(first)
        made: Column | None = None
        if kind not in _OF_SEVERAL and len(values) < _FEWEST:
            return Objects(values)
        if kind is np.ndarray:
            made = self._arrays(values, first)
        elif kind is dict:
            made = self._dicts(values, first, depth)
        elif kind is tuple:
            made = self._tuples(values, first, depth)
        elif kind is list:
            made = self._lists(values, depth)
        elif kind is str or kind is bytes:
            made = self._text(values, kind)
        elif kind in _NUMBERS:
            made = _numbers(values, kind)
        elif _is_number_of_numpy(first) and _all_of(values, kind):
            made = Stacked(np.array(values, dtype=first.dtype))
        return Objects(values) if made is None else made

    def _arrays(self, values: list[Any], first: Array) -> Column | None:
        dtype, inner, dimensions = first.dtype, first.shape[1:], first.ndim
        if not dimensions or dtype.kind not in _PLAIN_KINDS or not dtype.isnative:
            return None
        for value in values:
            if type(value) is not np.ndarray or value.dtype is not dtype:
                return None
            flags = value.flags
            if (
                value.ndim != dimensions
                or (inner and value.shape[1:] != inner)
                or not (flags.c_contiguous and flags.writeable)
            ):
                return None
        bounds = _bounds_of(values)
        if int(bounds[-1]) * math.prod(inner) * dtype.itemsize >= _LARGE_BYTES * len(values):
            return None
        self._met.append(list(map(id, values)))
        flat = np.concatenate(values, out=self._make((int(bounds[-1]), *inner), dtype))
        if len(first) and (bounds[1:] - bounds[:-1] == len(first)).all():
            return Stacked(flat.reshape(len(values), *first.shape))
        return Run(flat, bounds)

    def _dicts(self, values: list[Any], first: dict[Any, Any], depth: int) -> Column | None:
        names = tuple(first)
        # Equal names may still be different: 1 and True, str and numpy's.
        if not names or set(map(type, names)) != {str} or depth > _DEEPEST:
            return None
        for row in values:
            if type(row) is not dict or tuple(row) != names or set(map(type, row)) != {str}:
                return None
        self._met.append(list(map(id, values)))
        columns = [self.column([row[name] for row in values], depth + 1) for name in names]
        return _table(dict, names, columns)

    def _tuples(self, values: list[Any], first: tuple[Any, ...], depth: int) -> Column | None:
        if not first or not _all_of(values, tuple) or depth > _DEEPEST:
            return None
        if set(map(len, values)) != {len(first)}:
            return None
        columns = [self.column(list(part), depth + 1) for part in zip(*values, strict=True)]
        return _table(tuple, (), columns)

    def _lists(self, values: list[Any], depth: int) -> Column | None:
        if not _all_of(values, list) or depth > _DEEPEST:
            return None
        items = list(chain.from_iterable(values))
        column = self.column(items, depth + 1) if items else None
        if column is None or isinstance(column, Objects):
            return None
        self._met.append(list(map(id, values)))
        return Lists(column, _bounds_of(values))

    def _text(self, values: list[Any], kind: type) -> Column | None:
        if not _all_of(values, kind) or sum(map(len, values)) < _LONG_TEXT * len(values):
            return None
        encoding = None
        if kind is str:
            encoding = "ascii" if all(map(str.isascii, values)) else "utf-8"
            values = [value.encode(encoding, "surrogatepass") for value in values]
        bounds = _bounds_of(values)
        flat = self._make((int(bounds[-1]),), np.dtype(np.uint8))
        memory = flat.data
        for value, begin, end in zip(values, bounds.tolist(), bounds[1:].tolist(), strict=False):
            memory[begin:end] = value
        return Text(flat, bounds, encoding)


def _table(kind: type, names: tuple[str, ...], columns: list[Column]) -> Struct | None:
    if all(isinstance(column, Objects) for column in columns):
        return None
    return Struct(kind, names, columns)


def _numbers(values: list[Any], kind: type) -> Column | None:
    if not _all_of(values, kind):
        return None
    try:
        return Numbers(np.fromiter(values, _NUMBERS[kind], len(values)))
    except OverflowError:
        return None  # An int of more than 64 bits.


def _is_number_of_numpy(value: Any) -> bool:
    if not isinstance(value, np.generic) or type(value).__module__ != "numpy":
        return False
    return value.dtype.kind in _PLAIN_KINDS


def _all_of(values: list[Any], kind: type) -> bool:
    return set(map(type, values)) == {kind}


def _bounds_of(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
