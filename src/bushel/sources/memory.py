"""Sources in memory: ranges, sequences of records, and columns."""

import os
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, SupportsIndex

import numpy as np

from bushel.core.block import Block, Columns, Failure, column_of, is_stackable
from bushel.core.frozen import frozen
from bushel.core.naming import source_name
from bushel.core.node import FetchMany, Source, failed
from bushel.core.positions import Keys, Positions, split_epochs
from bushel.core.tree import leaves_with_paths, map_leaves, open_node, show_path
from bushel.errors import EmptyDatasetError, SourceError, add_note, note_place, place_noted
from bushel.sources.base import ColumnReader, ColumnSource, check_equally_long
from bushel.sources.torch_datasets import refuse_iterable


class RangeDataSource:
    """The integers of a range, as a source.

    >>> source = RangeDataSource(start=2, stop=8, step=3)
    >>> len(source), source[1]
    (2, 5)
    """

    def __init__(self, start: int, stop: int, step: int) -> None:
        self._start, self._stop, self._step = start, stop, step
        if -(-(stop - start) // step) < 0:
            raise AssertionError(
                f"RangeDataSource(start={start}, stop={stop}, step={step}) has a negative length."
            )
        self._range = range(start, stop, step)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, record_key: SupportsIndex) -> int:
        key = record_key.__index__()
        if not 0 <= key < len(self._range):
            raise IndexError(f"{self!r} has no record {key}; it has {len(self._range)}.")
        return self._range[key]

    def __repr__(self) -> str:
        return f"RangeDataSource(start={self._start}, stop={self._stop}, step={self._step})"


class IntegerColumn(Columns):
    """A column of integers whose rows are plain Python integers."""

    __slots__ = ()

    def rows(self) -> list[Any]:
        return self.gather().tolist()  # type: ignore[no-any-return]

    def part(self, start: int, stop: int) -> "IntegerColumn":
        return IntegerColumn(self.tree[start:stop])

    def select(self, indices: Keys) -> "IntegerColumn":
        return IntegerColumn(self.tree.take(indices))


# From here on numpy's integers might not do.
_FAR = 2**62


@frozen
class RangeNode(Source):
    """The integers of a range."""

    numbers: range
    wraps = True

    def length(self) -> int:
        return len(self.numbers)

    def keys(self, positions: Positions) -> Keys:
        return wrap(positions, len(self.numbers), self)

    @property
    def _is_near(self) -> bool:
        numbers = self.numbers
        if -_FAR < numbers.start < _FAR and -_FAR < numbers.stop < _FAR:
            return True
        return not numbers or max(abs(numbers[0]), abs(numbers[-1])) < _FAR

    def fetch(self, keys: Keys, positions: Positions) -> Block:
        numbers = self.numbers
        start, step = numbers.start, numbers.step
        if not self._is_near:
            return Block([numbers[key] for key in keys.tolist()], positions)
        # An array of its own, whatever the range: elements belong to the user.
        return Block(IntegerColumn((keys if step == 1 else keys * step) + start), positions)

    @classmethod
    def fetch_many(cls, sources: Sequence[Any]) -> FetchMany | None:
        ranges: list[RangeNode] = list(sources)
        if not all(source._is_near and abs(source.numbers.step) < _FAR for source in ranges):
            return None
        starts = np.array([source.numbers.start for source in ranges], dtype=np.int64)
        steps = np.array([source.numbers.step for source in ranges], dtype=np.int64)
        return lambda which, keys: IntegerColumn(keys * steps.take(which) + starts.take(which))

    @property
    def likeness(self) -> Hashable:
        return RangeNode, self.numbers.start, self.numbers.stop, self.numbers.step

    def describe(self) -> str:
        numbers = self.numbers
        return f"range({numbers.start}, {numbers.stop}, {numbers.step})"


@frozen
class SequenceNode(Source):
    """Anything with a length and records by key."""

    source: Any
    # Whether it is a `ColumnReader`.
    reads_columns: bool = False
    wraps = True

    @property
    def records(self) -> Any | None:
        together = self.reads_columns or hasattr(self.source, "__getitems__")
        return None if together else self.source

    def length(self) -> int:
        return len(self.source)

    def keys(self, positions: Positions) -> Keys:
        return wrap(positions, len(self.source), self)

    def fetch(self, keys: Keys, positions: Positions) -> Block:
        if self.reads_columns:
            columns = _read_columns(self.source, keys)
            if columns is not None:
                return Block(columns, positions)
        # Our own sources would only make an array of a list again.
        own = getattr(self.source, "takes_arrays", False) is True
        rows, failure = read_records(self, self.source, keys if own else keys.tolist(), keys)
        return Block(rows, positions[: len(rows)], failure)

    @property
    def at_a_time(self) -> int:
        return int(getattr(self.source, "records_at_a_time", 1))

    @property
    def likeness(self) -> Hashable:
        return SequenceNode, id(self.source), self.reads_columns

    def describe(self) -> str:
        return f"source({source_name(self.source)}, length={len(self.source)})"

    @property
    def label(self) -> str:
        return f"source({source_name(self.source)})"


@frozen
class ColumnsNode(Source):
    """A tree of equally long arrays; record i is the tree of their i-th entries."""

    tree: Any
    size: int
    # Whether batches are cut from the columns. With strings or objects among them records
    # are read one by one, so that a batch does not depend on what was read along with it.
    stay_columns: bool = True
    wraps = True

    def length(self) -> int:
        return self.size

    def keys(self, positions: Positions) -> Keys:
        return wrap(positions, self.size, self)

    @property
    def reads_later(self) -> bool:
        return self.stay_columns

    @property
    def likeness(self) -> Hashable:
        return ColumnsNode, id(self.tree), self.size, self.stay_columns

    def fetch(self, keys: Keys, positions: Positions) -> Block:
        columns = Columns(self.tree, keys)
        return Block(columns if self.stay_columns else columns.rows(), positions)

    def describe(self) -> str:
        names = [
            show_path(path).removeprefix("element") for path, _ in leaves_with_paths(self.tree)
        ]
        columns = ", ".join(name for name in names if name)
        return f"source(columns {columns}, length={self.size})".replace("columns ,", "array,")


def wrap(positions: Positions, length: int, node: Source) -> Keys:
    """Maps positions of any epoch to keys."""
    if not length:
        raise EmptyDatasetError(f"`{node.label}` is empty: it has no element at any position.")
    return split_epochs(positions, length)[1]


def read_records(
    node: Source, source: Any, keys: Sequence[Any] | Keys, positions: Positions
) -> tuple[list[Any], Failure | None]:
    """Reads records, up to the first one that fails."""
    read_many = getattr(source, "__getitems__", None)
    rows: list[Any] = []
    whole_block_error: Exception | None = None
    if callable(read_many):
        try:
            rows = list(read_many(keys))
            if len(rows) == len(keys):
                return rows, None
            whole_block_error = SourceError(
                f"{source_name(source)}.__getitems__ was asked for {len(keys)} records and "
                f"returned {len(rows)}."
            )
        except Exception as error:
            whole_block_error = error
        # Record by record, to find the one that fails (or none, if the trouble has passed).
        rows = []
    try:
        rows.extend(map(source.__getitem__, keys))
    except Exception as error:
        key = keys[len(rows)]
        key = key.item() if isinstance(key, np.generic) else key
        add_note(error, f"bushel: the source {source_name(source)} failed on key {key}.")
        note_file(error, source, key)
        return rows, failed(error, node, int(positions[len(rows)]))
    if isinstance(whole_block_error, SourceError):
        return [], failed(whole_block_error, node, int(positions[0]))
    if len(rows) < len(keys):
        stopped = RuntimeError(f"{source_name(source)}.__getitem__ raised StopIteration.")
        return rows, failed(stopped, node, int(positions[len(rows)]))
    return rows, None


def note_file(error: BaseException, source: Any, key: Any) -> None:
    """Adds where a record is that failed, if the source knows that."""
    place_of = getattr(source, "place_of", None)
    if callable(place_of) and place_noted(error) is None:
        with suppress(Exception):  # The file may be gone by now.
            path, record, offset = place_of(key)
            note_place(error, path, record, offset)


def source_node(source: Any) -> Source:
    """Picks the way to read what a user gave as a source."""
    if any(kind.__module__.startswith("datasets.") for kind in type(source).__mro__):
        from bushel.sources.huggingface import hugging_face_source

        source = hugging_face_source(source)
    if isinstance(source, (str, os.PathLike)):
        raise SourceError(
            f"a source is records, and got the {type(source).__name__} {os.fspath(source)!r:.100}. "
            "To read a file, write `MapDataset.source(bushel.open(path))`; for the characters of a "
            "text, `MapDataset.source(list(text))`."
        )
    columns = _columns_of(source)
    if columns is not None:
        return columns
    refuse_iterable(source)
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise SourceError(
            "a source needs `__len__` and `__getitem__` (or is an array, or a dict or tuple of "
            f"equally long arrays), and {type(source).__name__} has not: {source!r:.100}. "
            "Put the records of an iterator in a list first."
        )
    if isinstance(source, range):
        return RangeNode(source)
    return SequenceNode(source, isinstance(source, ColumnReader))


def _read_columns(source: ColumnReader, keys: Keys) -> Columns | None:
    """Reads columns; None where there are none, or a record among them fails."""
    try:
        tree = source.read_columns(keys)
    except Exception:
        return None  # It is found record by record.
    if tree is None or isinstance(tree, Columns):
        return tree  # With rows of their own kind.
    return Columns(tree, None, len(keys))


def _stacks_to_itself(array: Any) -> bool:
    return type(array) in (np.ndarray, np.memmap) and is_stackable(np.asarray(array))


def _columns_of(source: Any) -> ColumnsNode | None:
    if isinstance(source, ColumnSource):
        columns = source.columns
        return None if columns is None else _columns_of(columns)
    if isinstance(source, np.ndarray):
        if source.ndim and _stacks_to_itself(source):
            return ColumnsNode(column_of(source), len(source))
        return None
    is_table = (
        isinstance(source, dict) and source and all(isinstance(name, str) for name in source)
    ) or (isinstance(source, tuple) and source)
    if not is_table:
        return None
    leaves = list(leaves_with_paths(source))
    if not leaves or not all(isinstance(leaf, np.ndarray) for _, leaf in leaves):
        _refuse_half_columns(source, leaves)
        return None
    arrays = [leaf for _, leaf in leaves]
    check_equally_long(leaves)
    size = len(leaves[0][1])
    return ColumnsNode(map_leaves(column_of, source), size, all(map(_stacks_to_itself, arrays)))


def _refuse_half_columns(source: Any, leaves: Sequence[tuple[Any, Any]]) -> None:
    """A dict with names for keys is no sequence; say what is missing to make it columns."""
    if not isinstance(source, dict):
        return
    for path, leaf in leaves:
        if not isinstance(leaf, np.ndarray):
            raise SourceError(
                "a dict is a source when all its values are numpy arrays of one length, and "
                f"{show_path(path)} is a {type(leaf).__name__}. Convert it with `numpy.asarray`."
            )
    if open_node(source) is not None and not leaves:
        raise SourceError("a dict without columns is no source.")
