"""Packing: sequences of different lengths laid side by side in rows of one length.

A group is a set of open rows, the bins. Each sequence goes into the first bin that has room
for it, or into the one that it fills best; one for which there is none closes the group, and
begins the next.
"""

import operator
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.errors import BatchError, PlanError
from bushel.frozen import plain
from bushel.tree import Path

Row: TypeAlias = dict[str, Any]


@plain
class Feature:
    """One array of an element, and how it is packed."""

    path: Path
    length: int
    alignment: int
    padding: Any
    # Whether the rows tell which sequence a cell belongs to, and its place in it.
    has_ids: bool

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))


@plain
class Packing:
    """What is packed, into what, and how."""

    features: list[Feature]
    # Features of no length of their own: a row has the list of its elements' values.
    loose: list[str]
    bins: int
    best_fit: bool
    most_in_bin: int | None

    def begin(self) -> "Bins":
        """A set of empty bins."""
        return Bins(self)


def packing_of(
    length_struct: Any,
    num_packing_bins: int,
    best_fit: bool,
    meta_features: Sequence[str],
    pack_alignment_struct: Any,
    padding_struct: Any,
    max_sequences_per_bin: int | None,
) -> Packing:
    """Checks what the user wrote, and puts it in order."""
    if not isinstance(length_struct, Mapping):
        raise PlanError(
            "`length_struct` must be a dict from features to lengths, and is "
            f"{type(length_struct).__name__}: {length_struct!r:.100}."
        )
    if max_sequences_per_bin is not None and operator.index(max_sequences_per_bin) <= 0:
        raise PlanError(
            f"`max_sequences_per_bin` must be a positive integer, and is {max_sequences_per_bin}."
        )
    if num_packing_bins <= 0:
        raise PlanError(f"`num_packing_bins` must be positive, and is {num_packing_bins}.")
    metas = names_of(meta_features, "meta_features")
    features = []
    for path, length in leaves_of(length_struct):
        if len(path) > 1 and path[0] not in metas:
            raise PlanError(
                f"the feature {path[0]!r} is a dict of features, of which no segment ids can be "
                f"made. Name it in `meta_features`, or bring {'/'.join(path)!r} to the top."
            )
        if not isinstance(length, (int, np.integer)) or length < 0:
            raise PlanError(
                f"the length of feature {'/'.join(path)!r} must be a whole number, and is "
                f"{length!r}. (A feature without a length goes into `meta_features`.)"
            )
        alignment = _at(pack_alignment_struct, path, "pack_alignment_struct")
        if alignment is not None and not (
            isinstance(alignment, (int, np.integer)) and alignment > 0
        ):
            raise PlanError(
                f"the alignment of feature {'/'.join(path)!r} must be a positive whole number, and "
                f"is {alignment!r:.100}."
            )
        padding = _at(padding_struct, path, "padding_struct")
        features.append(
            Feature(path, int(length), int(alignment or 1), padding, has_ids=path[0] not in metas)
        )
    loose = [name for name in metas if name not in length_struct]
    if not features and not loose:
        raise PlanError("`length_struct` has no features.")
    _check_names(features, {*length_struct, *loose})
    return Packing(features, loose, num_packing_bins, best_fit, max_sequences_per_bin)


def names_of(names: Iterable[str], what: str) -> list[str]:
    """Returns the names of features, of which there may be one only."""
    if isinstance(names, str):
        raise PlanError(f"`{what}` is a list of names: write [{names!r}] instead of {names!r}.")
    return list(names)


def _check_names(features: Sequence[Feature], names: Collection[str]) -> None:
    for feature in features:
        for added in row_names(feature)[1:]:
            if added in names:
                raise PlanError(
                    f"a row has {added!r} for what it tells of feature {feature.name!r}, so no "
                    "feature can have that name. Rename it in a `map` before."
                )


def row_names(feature: Feature) -> list[str]:
    """What a row has of a feature."""
    name = feature.path[0]
    return [name, f"{name}_segment_ids", f"{name}_positions"] if feature.has_ids else [name]


def check_group_by(packing: Packing, name: str) -> None:
    """Raises where rows have nothing of this name that they could be ordered by."""
    names = [known for feature in packing.features for known in row_names(feature)]
    names += packing.loose
    if name not in names:
        raise PlanError(
            f"`shuffle_bins_group_by_feature` is {name!r}, and rows have only {sorted(set(names))}."
        )


def leaves_of(struct: Mapping[str, Any], path: Path = ()) -> Iterable[tuple[Path, Any]]:
    """The leaves of nested dicts with their paths, names sorted."""
    for name in sorted(struct):
        value = struct[name]
        if isinstance(value, Mapping):
            yield from leaves_of(value, (*path, name))
        else:
            yield (*path, name), value


def _at(struct: Any, path: Path, what: str) -> Any:
    if struct is None:
        return None
    for name in path:
        if not isinstance(struct, Mapping) or name not in struct:
            raise PlanError(
                f"`{what}` must have the same features as `length_struct`, and has no "
                f"{'/'.join(path)!r}: {struct!r:.100}."
            )
        struct = struct[name]
    return struct


class Bins:
    """Open rows, and the elements that were laid into them."""

    __slots__ = ("_counts", "_find", "_items", "_packing", "_sorted", "_starts", "used")

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        # For each feature: where in each bin the next sequence begins.
        self._starts = [[0] * packing.bins for _ in packing.features]
        self._counts = [0] * packing.bins
        # Bin, place among its elements, where in each feature, arrays, and the element.
        self._items: list[tuple[int, int, list[int], list[Any], Any]] = []
        # How many bins have something: always the first ones.
        self.used = 0
        # Bins by how full they are, of equally full ones the first one last (see `_fullest`).
        self._sorted: list[int] | None = None
        if packing.best_fit and len(packing.features) == 1:
            self._sorted = list(range(packing.bins))
            self._find = self._fullest
        elif len(packing.features) == 1:
            self._find = self._first_of_one
        else:
            self._find = self._best if packing.best_fit else self._first

    def __len__(self) -> int:
        return len(self._items)

    def add(self, element: Any) -> bool:
        """Lays an element into a bin; False where none has room for it."""
        packing = self._packing
        arrays = []
        for feature in packing.features:
            values = element
            for name in feature.path:
                values = values[name]
            array = values if type(values) is np.ndarray and values.ndim else _sequence(values)
            if len(array) > feature.length:
                raise BatchError(
                    f"a sequence of {len(array)} does not fit into a row: feature "
                    f"{feature.name!r} has length {feature.length}. Cut sequences in a `map` "
                    "before packing, or filter them out."
                )
            arrays.append(array)
        if self._items:
            self._check_shapes(arrays)
        for name in packing.loose:
            element[name]  # It fails now, or with it all of the group later.
        chosen = self._find(arrays)
        if chosen < 0:
            return False
        begins = [starts[chosen] for starts in self._starts]
        for number, feature in enumerate(packing.features):
            end = begins[number] + len(arrays[number])
            if feature.alignment > 1:
                end = -(-end // feature.alignment) * feature.alignment
            self._starts[number][chosen] = end
        count = self._counts[chosen] + 1
        self._counts[chosen] = count
        if count == packing.most_in_bin and packing.features:
            # Nothing fits any more, not even what is empty.
            self._starts[0][chosen] = packing.features[0].length + 1
        if self._sorted is not None:
            insort(self._sorted, self._starts[0][chosen] * packing.bins + packing.bins - 1 - chosen)
        self._items.append((chosen, count, begins, arrays, element))
        if chosen >= self.used:
            self.used = chosen + 1
        return True

    def _check_shapes(self, arrays: list[Any]) -> None:
        for feature, array, like in zip(
            self._packing.features, arrays, self._items[0][3], strict=True
        ):
            if array.shape[1:] != like.shape[1:]:
                raise BatchError(
                    "sequences of one feature must have the same shape behind their first axis, "
                    f"and {feature.name!r} has {like.shape[1:]} in the rows that are open, and "
                    f"{array.shape[1:]} here."
                )

    def _fullest(self, arrays: list[Any]) -> int:
        """The fullest bin with room, of one feature; it is taken out of the sorted ones."""
        assert self._sorted is not None
        bins = self._packing.bins
        last = self._packing.features[0].length - len(arrays[0])
        place = bisect_right(self._sorted, last * bins + bins - 1) - 1
        return bins - 1 - self._sorted.pop(place) % bins if place >= 0 else -1

    def _first_of_one(self, arrays: list[Any]) -> int:
        last = self._packing.features[0].length - len(arrays[0])
        for number, start in enumerate(self._starts[0]):
            if start <= last:
                return number
        return -1

    def _with_room(self, arrays: list[Any]) -> Iterator[int]:
        """The bins with room; of the empty ones only the first, as they are all alike."""
        features = self._packing.features
        lasts = [
            feature.length - len(array) for feature, array in zip(features, arrays, strict=True)
        ]
        most = self._packing.most_in_bin
        for number in range(min(self.used + 1, self._packing.bins)):
            if self._counts[number] == most:
                continue
            for starts, last in zip(self._starts, lasts, strict=True):
                if starts[number] > last:
                    break
            else:
                yield number

    def _first(self, arrays: list[Any]) -> int:
        return next(self._with_room(arrays), -1)

    def _best(self, arrays: list[Any]) -> int:
        # What is left over is least where most is in it; the first one of several.
        return max(
            self._with_room(arrays),
            key=lambda number: sum(starts[number] for starts in self._starts),
            default=-1,
        )

    def rows(self) -> list[Row]:
        """The rows of all bins that got something, with what tells sequences apart."""
        rows: list[Row] = [{} for _ in range(self.used)]
        if not rows:
            return rows
        for number, feature in enumerate(self._packing.features):
            data, ids, places = self.table(number, self.used)
            for index, row in enumerate(rows):
                _put(row, feature.path, data[index])
                if feature.has_ids:
                    row[f"{feature.path[0]}_segment_ids"] = ids[index]
                    row[f"{feature.path[0]}_positions"] = places[index]
        for name in self._packing.loose:
            for row in rows:
                row[name] = []
            for chosen, _, _, _, element in self._items:
                rows[chosen][name].append(element[name])
        return [dict(sorted(row.items())) for row in rows]

    def table(self, number: int, bins: int) -> tuple[Any, Any, Any]:
        """One feature of the first bins: its cells, and whose they are and where in it."""
        feature = self._packing.features[number]
        like = self._items[0][3][number]
        length, shape = feature.length, (bins, feature.length)
        if feature.padding is None:
            data = np.zeros((*shape, *like.shape[1:]), like.dtype)
        else:
            data = np.full((*shape, *like.shape[1:]), feature.padding, like.dtype)
        flat = data.reshape(-1, *like.shape[1:]) if data.size else data
        if not feature.has_ids:
            for chosen, _, begins, arrays, _ in self._items:
                begin = chosen * length + begins[number]
                flat[begin : begin + len(arrays[number])] = arrays[number]
            return data, None, None
        ids, places = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        flat_ids, flat_places = ids.reshape(-1), places.reshape(-1)
        counting = np.arange(length, dtype=np.int32)
        for chosen, count, begins, arrays, _ in self._items:
            array = arrays[number]
            begin = chosen * length + begins[number]
            end = begin + len(array)
            flat[begin:end] = array
            flat_ids[begin:end] = count
            flat_places[begin:end] = counting[: end - begin]
        return data, ids, places


def _put(row: Row, path: Path, value: Any) -> None:
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
    """A random order of rows; grouped, rows with like values of a feature stay together."""
    order = np.random.default_rng(seed).permutation(len(rows))
    if group_by is None:
        return order
    keys = np.array([_mean_of_distinct(row[group_by]) for row in rows])
    return np.lexsort((order, keys))


def _mean_of_distinct(values: Any) -> float:
    distinct = np.unique(values)
    distinct = distinct[distinct != 0]
    return float(np.nan_to_num(distinct.mean())) if len(distinct) else 0.0
