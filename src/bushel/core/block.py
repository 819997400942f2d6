"""Blocks: n elements that travel together, as rows or columns; `Failure`, an element that failed.

    rows     a list of n elements
    columns  a tree of arrays with a common leading axis, and optionally the keys that
             select n of its entries: nothing is copied until somebody needs the values

A block also carries the positions of its elements (what `map_with_index` and random
operations see) and, when evaluation stopped early, the failure that stands in the place
of element n.
"""

from collections.abc import Sequence
from itertools import compress
from types import TracebackType
from typing import Any

import numpy as np

from bushel.core.frozen import plain
from bushel.core.positions import Keys, Positions
from bushel.core.room import room
from bushel.core.tree import leaves_with_paths, map_leaves, open_node


class Columns:
    """A tree of arrays with a common leading axis, read through `keys` if there are any.

    >>> lazy = Columns({"x": np.arange(10) * 10}, np.array([3, 1]))
    >>> lazy.gather()
    {'x': array([30, 10])}
    >>> lazy.rows()
    [{'x': np.int64(30)}, {'x': np.int64(10)}]
    """

    __slots__ = ("_rows", "keys", "size", "tree")
    # Whether all entries have the same structure, so that each part can be one array.
    stackable = True

    def __init__(self, tree: Any, keys: Keys | None = None, size: int | None = None) -> None:
        self.tree = tree
        self.keys = keys
        if size is None:
            size = len(keys) if keys is not None else len(first_leaf(tree))
        self.size = size
        self._rows: list[Any] | None = None

    def __len__(self) -> int:
        return self.size

    def gather(self) -> Any:
        """Returns the values as arrays of their own (without keys: the tree as it is)."""
        return self.tree if self.keys is None else _take(self.tree, self.keys)

    def rows(self) -> list[Any]:
        """Returns the entries as a list, made once, as several filters may read it."""
        if self._rows is None:
            self._rows = unstack(self.gather(), self.size)
        return self._rows

    def part(self, start: int, stop: int) -> "Columns":
        if self.keys is not None:
            return Columns(self.tree, self.keys[start:stop])
        start, stop, _ = slice(start, stop).indices(self.size)
        return Columns(map_leaves(lambda array: array[start:stop], self.tree), None, stop - start)

    def select(self, indices: Keys) -> "Columns":
        keys = indices if self.keys is None else self.keys.take(indices)
        selected = Columns(self.tree, keys)
        if self._rows is not None:
            selected._rows = [self._rows[index] for index in indices.tolist()]
        return selected


def _take(tree: Any, keys: Keys) -> Any:
    # The two commonest shapes are spelt out, in a plain loop: this runs once for each batch.
    # Keys are in range by construction; "clip" spares numpy the check and a buffer.
    if type(tree) is np.ndarray:
        if room.make is None or tree.dtype.hasobject:
            return tree.take(keys, 0, None, "clip")
        return tree.take(keys, 0, room.make((len(keys), *tree.shape[1:]), tree.dtype), "clip")
    if type(tree) is dict:
        taken = {}
        for name, leaf in tree.items():
            taken[name] = _take(leaf, keys)
        return taken
    if isinstance(tree, Scattered):
        return _take_scattered(tree, keys)
    return map_leaves(lambda array: _take(array, keys), tree)


class Scattered(np.ndarray[Any, Any]):
    """A column whose entries do not lie one after the other in memory.

    `take` would first copy all of such an array. A class of its own spares all other columns the
    check.
    """


def column_of(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """An array as a column of a source."""
    plain = np.asarray(array)
    if plain.flags.c_contiguous and plain.flags.aligned:
        return plain
    return plain.view(Scattered)


def _take_scattered(array: Scattered, keys: Keys) -> Any:
    taken = array.view(np.ndarray)[keys]
    if room.make is None or array.dtype.hasobject:
        return np.ascontiguousarray(taken)
    made = room.make(taken.shape, array.dtype)
    made[...] = taken
    return made


@plain
class Failure:
    """An exception of a user's function, standing where the element would have been."""

    error: Exception | None

    def release(self) -> Exception:
        """Returns the exception, and drops the reference to it.

        The exception's traceback keeps the frames through which the block was passed, and some of
        these frames refer to this object. Without dropping the exception, that would be a cycle,
        which would keep the iterator and its threads alive until the garbage collector runs.
        """
        error, self.error = self.error, None
        assert error is not None
        return error


def failure_of(error: Exception) -> Failure:
    """Makes a failure of an exception, without the frames of bushel above those of the user.

    Frames of bushel would tell the user nothing, and their variables would keep iterators (and so
    threads) alive as long as the exception.
    """
    trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    while (
        trace is not None
        and trace.tb_next is not None
        and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "bushel"
    ):
        trace = trace.tb_next
    # The user's class may have overridden the method and the attribute.
    return Failure(BaseException.with_traceback(error, trace))


@plain
class Block:
    """n elements with their positions; see the module's text."""

    values: list[Any] | Columns
    positions: Positions
    failure: Failure | None = None
    # The sampler's metadata of each element, for loaders with a sampler of the user's own; all
    # others need only the position.
    metadata: list[Any] | None = None
    # Bad records met while the block was evaluated, each with the index of its element. The stream
    # that counts them takes them from here.
    bad: list[tuple[int, Any]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def rows(self) -> list[Any]:
        """Returns the elements as a list (the block's own, where it is one already)."""
        values = self.values
        return values if type(values) is list else values.rows()  # type: ignore[union-attr]

    def part(self, start: int, stop: int) -> "Block":
        """Returns the elements from `start` up to `stop`, without the failure."""
        values = self.values
        return Block(
            values[start:stop] if type(values) is list else values.part(start, stop),  # type: ignore[union-attr]
            self.positions[start:stop],
            metadata=None if self.metadata is None else self.metadata[start:stop],
        )

    def select(self, indices: Keys, kept: Sequence[bool] | None = None) -> "Block":
        """Returns the elements at these indices, in their order, the failure still at the end.

        `kept` says for each element whether it is selected, if the caller knows: that is faster.
        """
        values = self.values
        chosen: list[Any] | Columns
        if isinstance(values, list):
            if kept is None:
                chosen = [values[index] for index in indices.tolist()]
            else:
                chosen = list(compress(values, kept))
        else:
            chosen = values.select(indices)
        metadata = self.metadata
        if metadata is not None:
            metadata = [metadata[index] for index in indices.tolist()]
        return Block(chosen, self.positions.take(indices), self.failure, metadata)

    def at(self, positions: Positions) -> "Block":
        """Returns the same elements with other positions."""
        return Block(self.values, positions, self.failure, self.metadata)


# What numpy reads and stacks to the same type. Strings and objects do not (a stack of strings
# is as wide as its longest one), so they travel as rows.
_COLUMN_KINDS = frozenset("biufcmM")


def is_stackable(tree: Any) -> bool:
    """Tells whether columns are the same as the stack of their rows, types included.

    >>> is_stackable({"x": np.zeros(3)}), is_stackable(np.array(["a", "bc"]))
    (True, False)
    """
    return all(
        type(leaf) is np.ndarray and is_stackable_array(leaf) for _, leaf in leaves_with_paths(tree)
    )


def is_stackable_array(array: "np.ndarray[Any, Any]") -> bool:
    """Tells whether an array is the same as the stack of its rows, type included."""
    dtype = array.dtype
    return dtype.kind in _COLUMN_KINDS and dtype.isnative


def first_leaf(tree: Any) -> Any:
    """Returns the first leaf of a tree.

    >>> first_leaf({"a": [7, 8]})
    7
    """
    if type(tree) is np.ndarray:
        return tree
    for _, leaf in leaves_with_paths(tree):
        return leaf
    raise ValueError(f"a tree without leaves: {tree!r}")


def unstack(tree: Any, size: int) -> list[Any]:
    """Turns a tree of n-long arrays into n elements of the same structure.

    >>> unstack({"x": np.array([1, 2]), "y": np.array([[3], [4]])}, 2)
    [{'x': np.int64(1), 'y': array([3])}, {'x': np.int64(2), 'y': array([4])}]
    """
    if isinstance(tree, np.ndarray):
        return list(tree)
    if type(tree) is dict:
        if not tree:
            return [{} for _ in range(size)]
        return dicts_of(list(tree), [unstack(child, size) for child in tree.values()])
    opened = open_node(tree)
    if opened is None:
        return list(tree)
    _, children, rebuild = opened
    if not children:
        return [rebuild([]) for _ in range(size)]
    parts = [unstack(child, size) for child in children]
    if type(tree) is tuple:
        return list(zip(*parts, strict=True))
    return [rebuild(list(row)) for row in zip(*parts, strict=True)]


def dicts_of(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Makes rows of columns: a dict for each.

    >>> dicts_of(["x", "y"], [[1, 2], "ab"])
    [{'x': 1, 'y': 'a'}, {'x': 2, 'y': 'b'}]
    """
    if not names:
        return []
    # One column after the other, as a `zip` for each row takes several times as long.
    first, *others = names
    rows: list[dict[str, Any]] = [{first: value} for value in columns[0]]
    for name, column in zip(others, columns[1:], strict=True):
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return rows


def join(blocks: Sequence[Block]) -> Block:
    """Joins blocks end to end; of failures, the last block's remains."""
    if len(blocks) == 1:
        return blocks[0]
    positions = np.concatenate([block.positions for block in blocks])
    metadata: list[Any] | None = None
    if blocks[0].metadata is not None:
        metadata = [item for block in blocks for item in block.metadata or ()]
    columns = _join_columns([block.values for block in blocks])
    if columns is not None:
        return Block(columns, positions, blocks[-1].failure, metadata)
    rows = [row for block in blocks for row in block.rows()]
    return Block(rows, positions, blocks[-1].failure, metadata)


def merge_columns(size: int, parts: Sequence[tuple[Positions, Block]]) -> Columns | None:
    """Makes columns of n entries from columns that each fill some of the places.

    Returns None where the parts are not all columns of one structure and type.
    """
    columns = [block.values for _, block in parts if isinstance(block.values, Columns)]
    kinds = {type(part) for part in columns}
    if len(columns) != len(parts) or len(kinds) != 1 or not columns[0].stackable:
        return None
    trees = [part.gather() for part in columns]
    if any(_outline(tree) != _outline(trees[0]) for tree in trees[1:]):
        return None
    leaves = [iter([leaf for _, leaf in leaves_with_paths(tree)]) for tree in trees]

    def filled(first: Any) -> Any:
        column = np.empty((size, *first.shape[1:]), dtype=first.dtype)
        for (places, _), its_leaves in zip(parts, leaves, strict=True):
            column[places] = next(its_leaves)
        return column

    return kinds.pop()(map_leaves(filled, trees[0]), None, size)


def _outline(tree: Any) -> Any:
    opened = open_node(tree)
    if opened is None:
        return tree.shape[1:], tree.dtype
    names, children, _ = opened
    return type(tree), names, [_outline(child) for child in children]


def _join_columns(values: Sequence[list[Any] | Columns]) -> Columns | None:
    first = values[0]
    if not isinstance(first, Columns) or first.keys is None:
        return None
    keys = []
    for part in values:
        # Only selections of one and the same table can be joined without a copy.
        if not isinstance(part, Columns) or part.tree is not first.tree or part.keys is None:
            return None
        keys.append(part.keys)
    return Columns(first.tree, np.concatenate(keys))
