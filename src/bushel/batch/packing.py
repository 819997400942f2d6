"""Fills the bins of `pack`, shuffles and makes the rows; `batch/fit.py` chooses the bins.

A group is a set of open rows, the bins. Each sequence goes into the first bin that has room for it,
or into the one that it fills best; a sequence that fits into none closes the group, and begins the
next.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.batch.fit import BestOfMany, BestOfOne, FirstOfMany, FirstOfOne, Fit, Limits
from bushel.batch.row_cells import joined, padding, places
from bushel.batch.sequences import Sequences
from bushel.core.block import dicts_of
from bushel.core.frozen import plain
from bushel.core.tree import Path
from bushel.errors import BatchError, FeatureError

Row: TypeAlias = dict[str, Any]


@plain
class Feature:
    """One array of an element, and its packing options."""

    path: Path
    length: int
    alignment: int
    padding: Any
    # Whether rows have segment ids and positions of its cells.
    has_ids: bool

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))


@plain
class Packing:
    """All options of packing."""

    features: list[Feature]
    # Features without a length of their own: a row has the list of its elements' values.
    loose: list[str]
    bins: int
    best_fit: bool
    most_in_bin: int | None

    def begin(self) -> "Bins":
        """A set of empty bins."""
        return Bins(self)

    def limits(self) -> Limits:
        """The properties of all bins; without features there is nothing to place, only to count."""
        lengths = [feature.length for feature in self.features] or [0]
        alignments = [feature.alignment for feature in self.features] or [1]
        return Limits(self.bins, lengths, alignments, self.most_in_bin)


class Bins:
    """Open rows, and the elements in them."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._limits = limits = packing.limits()
        # The sequences of each feature; and the elements themselves, for loose features.
        self._arrays: list[list[Any]] = [[] for _ in packing.features]
        self._elements: list[Any] = []
        # As long as all features of each element are equally long, the first one decides for all.
        self._alike = len(set(zip(limits.lengths, limits.alignments, strict=True))) == 1
        self._fit: Fit
        if self._alike:
            self._fit = BestOfOne(limits) if packing.best_fit else FirstOfOne(limits)
        else:
            self._fit = BestOfMany(limits) if packing.best_fit else FirstOfMany(limits)

    def __len__(self) -> int:
        return len(self._fit.chosen)

    @property
    def used(self) -> int:
        """The number of bins with elements: always the first ones."""
        return max(self._fit.chosen, default=-1) + 1

    @property
    def chosen(self) -> Sequence[int]:
        """The bin of each element."""
        return self._fit.chosen

    def add(self, element: Any) -> bool:
        """Places an element in a bin; False if none has room for it."""
        packing = self._packing
        arrays = []
        for feature in packing.features:
            values = element
            try:
                for name in feature.path:
                    values = values[name]
            except (KeyError, IndexError, TypeError):
                raise _no_feature(element, feature) from None
            array = values if type(values) is np.ndarray and values.ndim else _sequence(values)
            if len(array) > feature.length:
                raise BatchError(
                    f"a sequence of {len(array)} does not fit into a row: feature "
                    f"{feature.name!r} has length {feature.length}. `pack(..., too_long='split')` "
                    "cuts such sequences into several, 'truncate' keeps the beginning, and 'drop' "
                    "leaves them out."
                )
            arrays.append(array)
        if len(self):
            self._check_shapes(arrays)
        for name in packing.loose:
            element[name]  # Raises now: later, it would lose the whole group.
        sizes = [[len(array)] for array in arrays] or [[0]]
        self._part_where(all(size == sizes[0] for size in sizes))
        if not self._fit.lay(sizes, 0):
            return False
        for values, array in zip(self._arrays, arrays, strict=True):
            values.append(array)
        if packing.loose:
            self._elements.append(element)
        return True

    def add_many(self, sequences: Sequences, start: int) -> int:
        """Places elements from `start` on, up to one that has no room, and returns their number."""
        if any(values and values[0].ndim > 1 for values in self._arrays):
            return 0
        self._part_where(sequences.alike)
        first = start - sequences.start
        laid = self._fit.lay(sequences.sizes, first)
        for values, arrays in zip(self._arrays, sequences.arrays, strict=True):
            values += arrays[first : first + laid]
        if self._packing.loose:
            self._elements += sequences.rows[start : start + laid]
        return laid

    def _part_where(self, alike: bool) -> None:
        if self._alike and not alike:
            many = (BestOfMany if self._packing.best_fit else FirstOfMany)(self._limits)
            many.go_on(self._fit)
            self._alike, self._fit = False, many

    def _check_shapes(self, arrays: list[Any]) -> None:
        for feature, array, laid in zip(self._packing.features, arrays, self._arrays, strict=True):
            if array.shape[1:] != laid[0].shape[1:]:
                raise BatchError(
                    "sequences of one feature must have the same shape after their first axis, "
                    f"and {feature.name!r} has {laid[0].shape[1:]} in the rows that are open, and "
                    f"{array.shape[1:]} here."
                )

    def rows(self) -> list[Row]:
        """The rows of all bins with elements, with segment ids and positions."""
        used = self.used
        if not used:
            return []
        columns: dict[str, list[Any]] = {}
        for number, feature in enumerate(self._packing.features):
            data, ids, positions = self.table(number, used)
            name, *inner = feature.path
            if inner:
                for row, value in zip(
                    columns.setdefault(name, [{} for _ in range(used)]), data, strict=True
                ):
                    _put(row, inner, value)
            else:
                columns[name] = list(data)
            if feature.has_ids:
                columns[f"{name}_segment_ids"] = list(ids)
                columns[f"{name}_positions"] = list(positions)
        for name in self._packing.loose:
            lists: list[list[Any]] = [[] for _ in range(used)]
            for chosen, element in zip(self._fit.chosen, self._elements, strict=True):
                lists[chosen].append(element[name])
            columns[name] = lists
        names = sorted(columns)
        return dicts_of(names, [columns[name] for name in names])

    def table(self, number: int, bins: int) -> tuple[Any, Any, Any]:
        """One feature of the first bins: its cells, their segment ids and positions."""
        feature, arrays, fit = self._packing.features[number], self._arrays[number], self._fit
        length, like = feature.length, arrays[0]
        begins = np.array(fit.chosen, np.int64) * length
        begins += np.array(fit.begins_of(number), np.int64)
        sizes = np.fromiter(map(len, arrays), np.int64, len(arrays))
        # In the order of the cells. Empty sequences would stand anywhere, and are not needed.
        order = begins.argsort(kind="stable")
        order = order[sizes[order] > 0]
        begins, sizes = begins[order], sizes[order]
        # The empty cells before each sequence, and after the last one.
        gaps = np.append(begins, bins * length)
        gaps[1:] -= begins + sizes
        (where,) = gaps.nonzero()
        empty = gaps[where]
        pad = padding(int(gaps.max()), like, feature.padding)
        ordered = [arrays[index] for index in order.tolist()]
        pieces: list[Any] = []
        done = 0
        for place, gap in zip(where.tolist(), empty.tolist(), strict=True):
            pieces += ordered[done:place]
            pieces.append(pad[:gap])
            done = place
        pieces += ordered[done:] or [pad[:0]]
        data = joined(pieces, bins * length, like).reshape(bins, length, *like.shape[1:])
        if not feature.has_ids:
            return data, None, None
        numbers = np.insert(np.array(fit.numbers, np.int64)[order], where, 0)
        ids, positions = places(np.insert(sizes, where, empty), numbers)
        return data, ids.reshape(bins, length), positions.reshape(bins, length)


def _put(row: Row, path: Sequence[Any], value: Any) -> None:
    for name in path[:-1]:
        row = row.setdefault(name, {})
    row[path[-1]] = value


def _sequence(value: Any) -> npt.NDArray[Any]:
    """A single value as a sequence of one."""
    if isinstance(value, (list, dict, tuple)) or value is None:
        raise BatchError(
            f"packing takes arrays and single values, and got a {type(value).__name__}: "
            f"{value!r:.100}. Make it an array in a `map` before."
        )
    array = np.asarray(int(value) if type(value) is bool else value)
    return array[None] if array.ndim == 0 else array


def order_of_rows(
    rows: Sequence[Row], seed: int, group_by: str | None
) -> "npt.NDArray[np.intp] | Sequence[int]":
    """A random order of rows; grouped, rows with the same value of a feature stay together."""
    order = np.random.default_rng(seed).permutation(len(rows))
    if group_by is None:
        return order
    keys = np.array([_mean_of_distinct(row[group_by]) for row in rows])
    return np.lexsort((order, keys))


def _mean_of_distinct(values: Any) -> float:
    distinct = np.unique(values)
    distinct = distinct[distinct != 0]
    return float(np.nan_to_num(distinct.mean())) if len(distinct) else 0.0


def _no_feature(element: Any, feature: Feature) -> FeatureError:
    has = f"keys {list(element)[:20]}" if isinstance(element, dict) else f"{element!r:.100}"
    return FeatureError(
        f"`pack` was given a length for the feature {feature.name!r}, which an element does not "
        f"have; it has {has}. `pack` takes a dict from the names of features to lengths, as in "
        '`pack({"tokens": 2048})`.'
    )
