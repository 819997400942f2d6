"""Sources in memory: ranges and columns; `source_node` makes any source's node, or refuses it."""

import os
from collections.abc import Hashable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from bushel.core.block import Block, Columns, column_of, is_stackable
from bushel.core.frozen import frozen
from bushel.core.node import FetchMany, Source
from bushel.core.positions import Keys, Positions
from bushel.core.tree import leaves_with_paths, map_leaves, open_node, show_path
from bushel.errors import SourceError
from bushel.sources.base import ColumnReader, ColumnSource, check_equally_long, wrap
from bushel.sources.read_records import SequenceNode
from bushel.sources.torch_datasets import refuse_iterable


class RangeDataSource:
    """The integers of a range, as a source.

    >>> source = RangeDataSource(start=2, stop=8, step=3)
    >>> len(source), source[1]
    (2, 5)
    """

    def __init__(self, start: int, stop: int, step: int) -> None:
        self._start, self._stop, self._step = start, stop, step
        if not step:
            raise AssertionError(
                f"the `step` of RangeDataSource(start={start}, stop={stop}, step=0) must not be 0."
            )
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


# numpy's integers may overflow from here on.
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
        # A new array, whatever the range: elements belong to the user.
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
class ColumnsNode(Source):
    """A tree of equally long arrays; record i is the tree of their i-th entries."""

    tree: Any
    size: int
    # Whether batches are cut from the columns. If some are strings or objects, records are read one
    # by one, so that a batch does not depend on which records were read together.
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


def source_node(source: Any) -> Source:
    """Picks the way to read a user's source."""
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
    """Raises for a dict with names as keys, which is no sequence: says what columns need."""
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
