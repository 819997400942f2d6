"""Hugging Face datasets, read from their Arrow tables where the records are the same.

Whatever has to be decoded (images, audio), transformed, or put into tensors is asked of the
library; numbers, strings, lists and dicts lie in the table as they are.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bushel.core.block import Columns, dicts_of, unstack
from bushel.core.positions import Keys
from bushel.errors import SourceError
from bushel.sources.arrow.buffers import stretch_of
from bushel.sources.arrow.items import has_items
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.table_parts import Reader, TablePart
from bushel.sources.arrow.values import values_of
from bushel.sources.keyed import KeyedSource

# Features whose values are stored as they are given out.
_PLAIN_FEATURES = frozenset({"Value", "ClassLabel", "List", "LargeList", "Sequence"})


def hugging_face_source(dataset: Any) -> Any:
    """Picks what reads something of the library's; an error where nothing can."""
    home, name = type(dataset).__module__, type(dataset).__name__
    if home == "datasets.iterable_dataset" or name == "IterableDatasetDict":
        raise SourceError(
            f"a source has records by index, and a Hugging Face {name} has only a first and a next "
            "one. Load it without `streaming=True`, or save it with `save_to_disk` or "
            "`to_parquet`; then it can be shuffled, split and resumed at any record."
        )
    if home == "datasets.dataset_dict":
        splits = ", ".join(map(repr, dataset))
        raise SourceError(
            f"a source is one split of a Hugging Face DatasetDict. It has {splits}; write "
            f"`ds[{next(iter(dataset), 'train')!r}]`."
        )
    # A class of the user's own may give out other records.
    is_its_own = (home, name) == ("datasets.arrow_dataset", "Dataset")
    return HuggingFaceDataset(dataset) if is_its_own else dataset


class HuggingFaceDataset(KeyedSource):
    """A `datasets.Dataset` as a source; record i is `dataset[i]`.

    >>> import datasets
    >>> dataset = datasets.Dataset.from_dict({"x": [1, 2, 3], "name": ["a", "b", "c"]})
    >>> HuggingFaceDataset(dataset).__getitems__([2, 0])
    [{'x': 3, 'name': 'c'}, {'x': 1, 'name': 'a'}]
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._length = len(dataset)
        self._begun = False
        self._table: _DatasetTable | None = None

    def _begin(self) -> "_DatasetTable | None":
        """The table to read from; None where the library does all."""
        if not self._begun:
            self._table = _table_of(self._dataset)
            self._begun = True
        return self._table

    def __len__(self) -> int:
        return self._length

    def _records(self, keys: Keys) -> list[Any]:
        table = self._begin()
        if table is not None:
            return table.records(keys)
        records: list[Any] = self._dataset.__getitems__(keys.tolist())
        return records

    def read_columns(self, keys: Keys) -> Columns | None:
        """Many records as columns, where all of them are numbers."""
        table = self._begin()
        return None if table is None else table.columns(keys)

    def __reduce__(self) -> tuple[Any, ...]:
        # The library sends names of files, where a dataset is on disk.
        return HuggingFaceDataset, (self._dataset,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._length:,} records)"


class _DatasetColumns(Columns):
    """Columns whose rows are as the library makes them."""

    __slots__ = ()

    def part(self, start: int, stop: int) -> "_DatasetColumns":
        tree = {name: column[start:stop] for name, column in self.tree.items()}
        return type(self)(tree, None, len(range(*slice(start, stop).indices(self.size))))

    def select(self, indices: Keys) -> "_DatasetColumns":
        return type(self)(Columns(self.tree, indices).gather(), None, len(indices))


class PythonColumns(_DatasetColumns):
    """Columns of which a record has Python's numbers, and which are stacks of those.

    >>> PythonColumns({"x": np.array([1, 2])}).rows()
    [{'x': 1}, {'x': 2}]
    """

    __slots__ = ()

    def rows(self) -> list[Any]:
        return _dicts(self.gather(), lambda column: column.tolist())


class NumpyColumns(_DatasetColumns):
    """Columns in the library's "numpy" format: what is no number is an array without axes."""

    __slots__ = ()

    def rows(self) -> list[Any]:
        return _dicts(self.gather(), _scalars)


def _scalars(column: Any) -> list[Any]:
    if column.ndim == 1 and column.dtype.kind in "bmM":
        return list(map(np.asarray, column))
    return unstack(column, len(column))


def _dicts(tree: dict[str, Any], values: Callable[[Any], list[Any]]) -> list[Any]:
    return dicts_of(list(tree), list(map(values, tree.values())))


class _DatasetTable:
    """The Arrow table of a dataset, with the rows of it that the dataset has."""

    def __init__(self, table: Any, rows: Keys | None, kinds: dict[str, Any] | None) -> None:
        parts = _parts_of(table)
        self._names: list[str] = table.schema.names
        self._rows = rows
        # The types that columns have in the format "numpy"; None for Python's.
        self._kinds = kinds
        regular = _is_number_or_array if kinds is None else _is_regular_array
        ends = np.cumsum([part.length for part in parts], dtype=np.int64)
        self._reader = Reader(table.schema, ends, parts.__getitem__, regular=regular)
        numbers = _is_plain_number if kinds is None else _is_regular_array
        self._has_columns = all(map(numbers, table.schema.types))

    def columns(self, keys: Keys) -> Columns | None:
        if not self._has_columns:
            return None
        tree = self._reader.columns(self._in_table(keys))
        if tree is None:
            return None
        if self._kinds is None:
            return PythonColumns({name: _as_stacked(tree[name]) for name in tree}, None, len(keys))
        kinds = self._kinds
        changed = {name: tree[name].astype(kinds[name], copy=False) for name in tree}
        return NumpyColumns(changed, None, len(keys))

    def records(self, keys: Keys) -> list[Any]:
        columns = self.columns(keys)
        if columns is not None:
            return columns.rows()
        rows = self._in_table(keys)
        if self._kinds is None:
            lists = self._reader.lists(rows, _to_python, _to_python, python=True)
        else:
            found = self._reader.lists(rows, values_of, lambda column: column)
            kinds = self._kinds.values()
            lists = [_of_kind(column, kind) for column, kind in zip(found, kinds, strict=True)]
        return dicts_of(self._names, lists)

    def _in_table(self, keys: Keys) -> Keys:
        return keys if self._rows is None else self._rows.take(keys).astype(np.int64, copy=False)


def _parts_of(table: Any) -> list[TablePart]:
    """The batches of a table: neighbours that are in one file, together."""
    groups: list[tuple[Any, list[Any]]] = []
    last = None
    for batch in table.to_batches():
        stretch = stretch_of([batch])
        where = None if stretch is None else (stretch.address, stretch.size)
        if where is None or where != last:
            groups.append((stretch, []))
        groups[-1][1].append(batch)
        last = where
    return [TablePart(batches, 0, stretch) for stretch, batches in groups]


def _to_python(values: Any) -> list[Any]:
    """The values of an array of Arrow's or numpy's."""
    found: list[Any] = values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()
    return found


def _of_kind(column: Any, kind: Any) -> list[Any]:
    """The values of a column in the format "numpy": rows of one shape, or of several."""
    if isinstance(column, np.ndarray):
        return _scalars(column.astype(kind, copy=False))
    return [row.astype(kind, copy=False) for row in column]


def _table_of(dataset: Any) -> _DatasetTable | None:
    """The table of a dataset, if its records are in it as the library gives them out."""
    try:
        form = dataset._format_type
        if form not in (None, "numpy") or dataset._format_kwargs or dataset._output_all_columns:
            return None
        names = dataset._format_columns or dataset.column_names
        if not names or not all(_is_plain(dataset.features[name]) for name in names):
            return None
        names = [name for name in dataset.column_names if name in names]
        table = dataset.data.table.select(names)
        indices = dataset._indices
    except (AttributeError, KeyError):
        return None  # Of a version that has these things elsewhere.
    rows = None if indices is None else indices.column(0).to_numpy()
    if form is None:
        return _DatasetTable(table, rows, None)
    return _numpy_table(dataset, table, rows)


def _numpy_table(dataset: Any, table: Any, rows: Keys | None) -> _DatasetTable | None:
    """The table of a dataset in the format "numpy"; which types that has, a record tells."""
    if not len(dataset) or not all(map(_is_any_array, table.schema.types)):
        return None
    if any(_has_nulls(chunk) for column in table.columns for chunk in column.chunks):
        return None
    first = dataset[0]
    kinds = {name: getattr(first[name], "dtype", None) for name in table.schema.names}
    if None in kinds.values():
        return None
    made = _DatasetTable(table, rows, kinds)
    try:
        (record,) = made.records(np.zeros(1, np.int64))
    except (TypeError, ValueError):
        return None
    same = all(_is_same(record[name], first[name]) for name in first)
    return made if same and list(record) == list(first) else None


def _is_same(one: Any, other: Any) -> bool:
    return (
        type(one) is type(other)
        and one.dtype == other.dtype
        and np.shape(one) == np.shape(other)
        and np.asarray(one).tobytes() == np.asarray(other).tobytes()
    )


def _is_plain(feature: Any) -> bool:
    """Whether the values of a feature are stored as they are given out."""
    if isinstance(feature, dict):
        return all(map(_is_plain, feature.values()))
    if isinstance(feature, (list, tuple)):
        return all(map(_is_plain, feature))
    if type(feature).__name__ not in _PLAIN_FEATURES:
        return False
    inner = getattr(feature, "feature", None)
    return inner is None or _is_plain(inner)


def _is_plain_number(kind: Any) -> bool:
    """Whether Python's numbers of a column are stacked to 64 bits, and booleans to booleans."""
    types = arrow().types
    small = types.is_integer(kind) and not types.is_uint64(kind)
    return bool(small or types.is_floating(kind) or types.is_boolean(kind))


def _is_number_or_array(kind: Any) -> bool:
    """Whether numpy makes the same lists and numbers of a column as pyarrow."""
    types = arrow().types
    if types.is_fixed_size_list(kind):
        return _is_number_or_array(kind.value_type)
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_any_array(kind: Any) -> bool:
    """Whether rows of a column are numbers or arrays in the format "numpy"."""
    types = arrow().types
    if _is_list(kind):
        return has_items(kind)
    return _is_number_or_array(kind) or bool(types.is_timestamp(kind))


def _is_regular_array(kind: Any) -> bool:
    return _is_any_array(kind) and not _is_list(kind)


def _is_list(kind: Any) -> bool:
    return bool(arrow().types.is_list(kind) or arrow().types.is_large_list(kind))


def _has_nulls(array: Any) -> bool:
    if array.null_count:
        return True
    nested = _is_list(array.type) or arrow().types.is_fixed_size_list(array.type)
    return nested and _has_nulls(array.flatten())


def _as_stacked(column: Any) -> Any:
    """A column with the type that a stack of Python's numbers has."""
    kind = column.dtype.kind
    if kind == "b":
        return column
    return column.astype(np.float64 if kind == "f" else np.int64, copy=False)
