"""Many elements as tables, for `pack` with "concat_then_split"."""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.batch.sequences import sequences_of
from bushel.core.frozen import plain
from bushel.core.ragged import Lists, Numbers, RaggedRows, Run, Stacked

_Array: TypeAlias = npt.NDArray[Any]


class SplitTable(ABC):
    """Elements whose features are plain sequences, from a given element on."""

    __slots__ = ()

    @abstractmethod
    def stop(self, start: int, used: Mapping[str, int], lengths: Mapping[str, int]) -> int:
        """The first element that does not fit into a row with so many used cells."""

    @abstractmethod
    def between(self, name: str, start: int, stop: int) -> tuple[list[_Array], Sequence[int]]:
        """The sequences of a feature: joined arrays, and the size of each sequence."""

    @abstractmethod
    def array_of(self, name: str, index: int) -> _Array:
        """The sequence of one element and feature."""


def table_of(
    lengths: Mapping[str, int], splits_whole_rows: bool, elements: Any, start: int
) -> SplitTable | None:
    """Makes a table; None if not all elements have exactly these features, all plain."""
    table: _NestedTable | _FlatTable | None
    if isinstance(elements, RaggedRows):
        table = _flat_table(lengths, elements)
    else:
        table = _nested_table(lengths, elements, start)
    if table is not None and not splits_whole_rows:
        table.note_whole_rows(lengths)
    return table


@plain
class _NestedTable(SplitTable):
    """Elements that are dicts of arrays."""

    start: int
    arrays: dict[str, list[_Array]]
    sizes: dict[str, list[int]]
    # For each feature, the number of cells up to the end of each element.
    ends: dict[str, list[int]]
    # Elements that cannot simply be appended.
    special: list[int]

    def note_whole_rows(self, lengths: Mapping[str, int]) -> None:
        special = set(self.special)
        for name, sizes in self.sizes.items():
            special.update(index for index, size in enumerate(sizes) if size == lengths[name])
        self.special = sorted(special)

    def stop(self, start: int, used: Mapping[str, int], lengths: Mapping[str, int]) -> int:
        first = start - self.start
        stop = self.special[bisect_left(self.special, first)]
        for name, ends in self.ends.items():
            stop = min(stop, bisect_right(ends, ends[first] + lengths[name] - used[name]) - 1)
        return self.start + stop

    def between(self, name: str, start: int, stop: int) -> tuple[list[_Array], Sequence[int]]:
        first, last = start - self.start, stop - self.start
        return self.arrays[name][first:last], self.sizes[name][first:last]

    def array_of(self, name: str, index: int) -> _Array:
        return self.arrays[name][index - self.start]


def _nested_table(
    lengths: Mapping[str, int], elements: Sequence[Any], start: int
) -> _NestedTable | None:
    names = lengths.keys()
    shown = elements[start:]
    # Every element has as many names as are packed, and these among them: so no others.
    if set(map(type, shown)) != {dict} or set(map(len, shown)) != {len(names)}:
        return None
    table = sequences_of(elements, start, [(name,) for name in names], lists=True)
    if table is None:
        return None
    ends = [list(accumulate(sizes, initial=0)) for sizes in table.sizes]
    return _NestedTable(
        start,
        dict(zip(names, table.arrays, strict=True)),
        dict(zip(names, table.sizes, strict=True)),
        dict(zip(names, ends, strict=True)),
        [len(shown)],
    )


@plain
class _FlatTable(SplitTable):
    """Elements that were taken apart: each feature is one array, cut where elements begin."""

    flats: dict[str, _Array]
    bounds: dict[str, npt.NDArray[np.int64]]
    special: _Array

    def note_whole_rows(self, lengths: Mapping[str, int]) -> None:
        whole = [np.diff(bounds) == lengths[name] for name, bounds in self.bounds.items()]
        found = np.logical_or.reduce(whole).nonzero()[0]
        self.special = np.append(found, self.special)

    def stop(self, start: int, used: Mapping[str, int], lengths: Mapping[str, int]) -> int:
        stop = self.special[self.special.searchsorted(start)]
        for name, bounds in self.bounds.items():
            end = bounds[start] + (lengths[name] - used[name])
            stop = min(stop, bounds.searchsorted(end, "right") - 1)
        return int(stop)

    def between(self, name: str, start: int, stop: int) -> tuple[list[_Array], Sequence[int]]:
        bounds = self.bounds[name]
        if start == stop:
            return [], ()
        sizes: Any = np.diff(bounds[start : stop + 1])
        return [self.flats[name][bounds[start] : bounds[stop]]], sizes

    def array_of(self, name: str, index: int) -> _Array:
        bounds = self.bounds[name]
        return self.flats[name][bounds[index] : bounds[index + 1]]


def _flat_table(lengths: Mapping[str, int], elements: RaggedRows) -> _FlatTable | None:
    flats, bounds = {}, {}
    if elements.names is None or set(elements.names) != set(lengths):
        return None
    for name in lengths:
        sequences = flat_sequences(elements, name)
        if sequences is None:
            return None
        flats[name], bounds[name] = sequences
    return _FlatTable(flats, bounds, np.array([len(elements)]))


def flat_sequences(elements: RaggedRows, name: str) -> tuple[_Array, npt.NDArray[np.int64]] | None:
    """A feature with one sequence in each element, joined; None if it is something else."""
    column = elements.feature(name)
    if isinstance(column, Run) and column.flat.ndim == 1:
        return column.flat, column.bounds
    if isinstance(column, Stacked) and column.array.ndim == 2:
        count, size = column.array.shape
        return column.array.reshape(-1), np.arange(count + 1) * size
    # (For a list without items, numpy makes an array of another type.)
    if (
        isinstance(column, Lists)
        and isinstance(column.items, Numbers)
        and (np.diff(column.bounds) > 0).all()
    ):
        return column.items.array, column.bounds
    return None
