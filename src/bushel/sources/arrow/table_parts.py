"""Rows of tables that consist of parts: row groups, record batches, or whole files."""

import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bushel.core.block import dicts_of, unstack
from bushel.core.positions import Keys, distinct, grouped
from bushel.sources.arrow.buffers import Rows, stretch_of
from bushel.sources.arrow.columns import View, is_regular, view_of
from bushel.sources.arrow.items import Items, has_items, has_nested_items, items_of
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.values import values_of

# Up to this number of rows, cutting them out one by one is faster than a call for all.
_FEW = 8


class TablePart:
    """Rows in one record batch or several.

    Args: batches: the record batches. nbytes: their memory; 0 if they are views of a file. stretch:
    the memory that has all of them, if known. mapped: their file, which may be truncated by other
    programs.
    """

    __slots__ = ("_ends", "_mapped", "_pieces", "nbytes")

    def __init__(
        self,
        batches: Sequence[Any],
        nbytes: int = 0,
        stretch: Any = None,
        mapped: mmap.mmap | None = None,
    ) -> None:
        self._mapped = mapped
        if stretch is None and len(batches) > 1:
            stretch = stretch_of(batches)
        groups = [batches] if stretch is not None else [[batch] for batch in batches]
        self._pieces = [TablePiece(group, stretch, nbytes == 0) for group in groups]
        self._ends = np.cumsum([piece.length for piece in self._pieces], dtype=np.int64)
        self.nbytes = nbytes

    def is_whole(self) -> bool:
        """Whether its file is still complete: access beyond its end crashes the process."""
        return self._mapped is None or self._mapped.size() >= len(self._mapped)

    @property
    def length(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def pieces(self, rows: Keys) -> "list[tuple[TablePiece, Rows, Keys | slice]]":
        """The pieces with some of these rows: the rows in each, and their places in `rows`."""
        if len(self._pieces) == 1:
            piece = self._pieces[0]
            return [(piece, piece.find(rows), slice(None))]
        found: list[tuple[TablePiece, Rows, Keys | slice]] = []
        for number, places in grouped(self._ends.searchsorted(rows, "right")):
            first = int(self._ends[number - 1]) if number else 0
            piece = self._pieces[number]
            found.append((piece, piece.find(rows[places] - first), places))
        return found


class TablePiece:
    """A record batch, or several in one stretch of memory, with its columns for numpy."""

    __slots__ = (
        "_arrays_of", "_batches", "_checked", "_columns", "_ends", "_is_view", "_starts",
        "_stretch", "length",
    )  # fmt: skip

    def __init__(self, batches: Sequence[Any], stretch: Any, is_view: bool) -> None:
        self._batches, self._stretch, self._is_view = batches, stretch, is_view
        counts = np.array([batch.num_rows for batch in batches], np.int64)
        self._ends = counts.cumsum()
        self._starts = self._ends - counts
        self.length = int(self._ends[-1])
        self._columns: dict[int, Any] = {}
        # Asking a batch for a column takes as long as cutting a row out of it.
        self._arrays_of: dict[int, list[Any]] = {}
        # (column, array) of the arrays that were validated.
        self._checked: set[tuple[int, int]] = set()

    def find(self, rows: Keys) -> Rows:
        """Rows, as rows of the batches."""
        if len(self._batches) == 1:
            return Rows(rows, None)
        which = self._ends.searchsorted(rows, "right")
        return Rows(rows - self._starts.take(which), which)

    def view(self, column: int) -> View | None:
        """A column to copy rows from; None if it has nulls."""
        if column not in self._columns:
            self._columns[column] = view_of(self._arrays(column), self._stretch)
        found: View | None = self._columns[column]
        return found

    def items(self, column: int) -> Items | None:
        """A column to take rows from; None if it has nulls."""
        if column not in self._columns:
            self._columns[column] = items_of(self._arrays(column), self._stretch)
        found: Items | None = self._columns[column]
        return found

    def _arrays(self, column: int) -> list[Any]:
        found = self._arrays_of.get(column)
        if found is None:
            found = self._arrays_of[column] = [batch.column(column) for batch in self._batches]
        return found

    def _check(self, column: int, rows: Rows) -> None:
        """Makes pyarrow validate an array once, which otherwise follows wrong offsets anywhere."""
        if not self._is_view:
            return  # A decoder made it, or the maker has validated it.
        arrays = self._arrays(column)
        for number in [0] if rows.which is None else distinct(rows.which).tolist():
            if (column, number) not in self._checked:
                arrays[number].validate(full=True)
                self._checked.add((column, number))

    def cut(self, column: int, rows: Rows) -> list[Any]:
        """Rows of a column as arrays, one after the other."""
        arrays = self._arrays(column)
        self._check(column, rows)
        if rows.which is not None:
            found = zip(rows.which.tolist(), rows.inner.tolist(), strict=True)
            return [arrays[number].slice(row, 1) for number, row in found]
        (array,) = arrays
        # A slice keeps the whole array in memory, so that must be a view itself.
        if self._is_view and len(rows) <= _FEW:
            return [array.slice(row, 1) for row in rows.inner.tolist()]
        return [array.take(arrow().array(rows.inner))]


class Reader:
    """Reads rows of parts, as columns if all of them are regular, and as records.

    Args: schema: the columns. ends: the number of rows up to the end of each part. part: returns a
    part by its number. waits: tells whether another thread is making a part. regular: tells which
    types are read as columns.
    """

    def __init__(
        self,
        schema: Any,
        ends: Keys,
        part: Callable[[int], TablePart],
        waits: Callable[[int], bool] = lambda number: False,
        regular: Callable[[Any], bool] = is_regular,
    ) -> None:
        self._names: list[str] = list(schema.names)
        self._ends, self._part, self._waits = ends, part, waits
        # The way to read each column; those with nulls turn out to be arrays.
        self._ways = [
            "view"
            if regular(kind)
            else "items"
            if has_items(kind) or has_nested_items(kind)
            else "arrays"
            for kind in schema.types
        ]

    def columns(self, keys: Keys) -> dict[str, Any] | None:
        """Rows as columns; None if some columns have no type and shape."""
        if not len(keys) or not self._names or set(self._ways) != {"view"}:
            return None
        gathered = self._gather(keys, python=False)
        if len(gathered.views) < len(self._names):
            return None
        return dict(zip(self._names, gathered.views.values(), strict=True))

    def records(self, keys: Keys) -> list[dict[str, Any]]:
        """Rows as dicts, in the order of the keys."""
        if not self._names:
            return [{} for _ in range(len(keys))]
        count = len(keys)
        lists = self.lists(keys, values_of, lambda column: unstack(column, count))
        return dicts_of(self._names, lists)

    def lists(
        self,
        keys: Keys,
        values: Callable[[Any], list[Any]],
        rows: Callable[[Any], list[Any]],
        python: bool = False,
    ) -> list[list[Any]]:
        """The values of each column: `rows` converts numpy's columns, `values` others."""
        if not len(keys):
            return [[] for _ in self._names]
        gathered = self._gather(keys, python)
        return [
            rows(gathered.views[number])
            if number in gathered.views
            else gathered.values(number, values)
            for number in range(len(self._names))
        ]

    def _gather(self, keys: Keys, python: bool) -> "_Gathered":
        groups = grouped(self._ends.searchsorted(keys, "right"))
        # Those first that nobody else is busy with.
        groups.sort(key=lambda group: self._waits(group[0]))
        while True:
            gathered = _Gathered(len(keys), self._ways, python)
            for number, places in groups:
                first = int(self._ends[number - 1]) if number else 0
                nulls = gathered.add(self._part(number), keys[places] - first, places)
                if nulls is not None:
                    self._ways = [
                        "arrays" if column == nulls else way
                        for column, way in enumerate(self._ways)
                    ]
                    break
            else:
                return gathered


class _Gathered:
    """Columns for the wanted rows, copied from parts one after the other."""

    def __init__(self, count: int, ways: list[str], python: bool) -> None:
        self.views: dict[int, Any] = {}
        self._items: dict[int, list[Any]] = {}
        self._arrays: dict[int, list[Any]] = {}
        self._count, self._python = count, python
        self._ways = ways
        self._places: list[Keys] = []

    def add(self, part: TablePart, rows: Keys, places: Keys) -> int | None:
        """Copies rows; returns the number of a column that has unexpected nulls."""
        for piece, found, chosen in part.pieces(rows):
            into = places[chosen]
            for number, way in enumerate(self._ways):
                if way == "view":
                    view = piece.view(number)
                    if view is None:
                        return number
                    if number not in self.views:
                        self.views[number] = view.new(self._count)
                    view.copy(found, self.views[number], into)
                elif way == "items":
                    items = piece.items(number)
                    if items is None:
                        return number
                    self._items.setdefault(number, []).extend(items.take(found, self._python))
                else:
                    self._arrays.setdefault(number, []).extend(piece.cut(number, found))
            self._places.append(into)
        return None

    def values(self, number: int, values: Callable[[Any], list[Any]]) -> list[Any]:
        """The values of a column that is no view, in the order of the keys."""
        found = self._items.get(number)
        if found is None:
            arrays = self._arrays[number]
            found = values(arrays[0] if len(arrays) == 1 else arrow().concat_arrays(arrays))
        places = np.concatenate(self._places)
        ordered: list[Any] = [None] * self._count
        for place, value in zip(places.tolist(), found, strict=True):
            ordered[place] = value
        return ordered
