"""Rebatching: joins and cuts batches along their first axis, to batches of another size."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import numpy as np

from bushel.batch.regroup import Machine, ManyMade, Regroup
from bushel.core.block import dicts_of, first_leaf
from bushel.core.frozen import frozen, plain
from bushel.core.node import Node
from bushel.core.state import State
from bushel.core.state_fields import Fields, Inner, Whole
from bushel.core.stream import Stream
from bushel.core.tree import Path, leaves_with_paths, map_leaves, show_path
from bushel.errors import BatchError, StateError

_dtype_of, _ndim_of = attrgetter("dtype"), attrgetter("ndim")
# The most bytes of batches that are joined before they are cut: a new batch that the user keeps
# keeps all of them in memory.
_SMALL = 1 << 20


@frozen
class RebatchNode(Regroup):
    """Joins and cuts batches along their first axis."""

    input: Node
    batch_size: int
    drop_remainder: bool

    def machine(self) -> Machine:
        return _Rebatcher(self)

    def describe(self) -> str:
        drop = ", drop_remainder=True" if self.drop_remainder else ""
        return f"rebatch({self.batch_size}{drop})"


class _Rebatcher(Machine):
    """One batch is a group. The number of rows used of an input batch is carried to the next."""

    cuts_elements = True

    def __init__(self, node: RebatchNode) -> None:
        self._node = node
        self._missing = node.batch_size
        self._start = 0
        self._pieces: list[Any] = []
        # The batches seen last, joined; the rows of them that are in the new batch, and the next
        # one.
        self._offered: Sequence[Any] = ()
        self._table: _JoinedBatches | None = None
        self._first = self._last = 0
        self._next = 0

    def begin(self, carried: Any) -> None:
        self._start, self.carried = carried or 0, None
        self._pieces, self._missing, self.complete = [], self._node.batch_size, False
        self._first = self._last = 0

    def add_many(self, elements: Sequence[Any], start: int) -> int:
        if elements is not self._offered:
            self._keep()
            self._offered, self._table = elements, _table_of(elements, start)
        table = self._table
        if table is None:
            return 0
        at = self._next = start - table.start
        begin = table.ends[at] + self._start
        if begin > table.ends[at + 1]:
            return 0
        taken = bisect_right(table.ends, begin + self._missing, at) - 1 - at
        if taken <= 0 or (self._pieces and not table.continues(self._pieces[0])):
            return 0
        self._take(begin, table.ends[at + taken])
        self._start = 0
        self._next += taken
        self.complete = not self._missing
        return taken

    def add(self, element: Any) -> bool:
        size = len(element if type(element) is np.ndarray else first_leaf(element))
        if not size:
            raise BatchError("`rebatch` got a batch of no elements, which it cannot count with.")
        start, self._start = self._start, 0
        if start > size:
            raise StateError(
                f"this state is after row {start} of a batch that has {size}: it belongs to other "
                "data."
            )
        stop = min(size, start + self._missing)
        if stop > start:
            if self._pieces:
                _check_same(self._pieces[0], element)
            if self._table is not None:
                before = self._table.ends[self._next]
                self._take(before + start, before + stop)
            else:
                self._pieces.append(_part(element, start, stop, size))
                self._missing -= stop - start
        if stop < size:
            self.carried = stop
            return False
        self.complete = not self._missing
        return True

    makes_many = True

    def make_many(self, elements: Sequence[Any], start: int, most: int) -> ManyMade | None:
        table, size = self._table, self._node.batch_size
        if table is None or elements is not self._offered:
            return None
        first = table.ends[start - table.start] + (self.carried or 0)
        count = min(most, (table.ends[-1] - first) // size)
        if count < 2:
            return None
        self._first = self._last = 0
        return _ManyCut(table, first, size, table.parts(first, size, count))

    def _take(self, first: int, last: int) -> None:
        """Takes rows of the table, which follow those taken before."""
        if self._first == self._last:
            self._first = first
        self._last = last
        self._missing -= last - first

    def _keep(self) -> None:
        """Cuts out the rows taken of the table, before it is replaced."""
        if self._table is not None and self._first < self._last:
            self._pieces.append(self._table.part(self._first, self._last))
        self._first = self._last = 0

    def end(self, made_before: int) -> list[Any]:
        self._keep()
        if not self._pieces or (self._missing and self._node.drop_remainder):
            return []
        return [_joined(self._pieces)]

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        return {"parent": parent, "batch_idx": carried or 0}

    def fields(self, input: Stream) -> Fields:
        return Fields(parent=Inner(input), batch_idx=Whole())

    def read(self, state: State) -> tuple[Any, Any, int, int]:
        return state["parent"], state["batch_idx"], 0, 0


@plain
class _JoinedBatches:
    """Small batches of one structure, joined."""

    start: int
    # The number of rows up to the end of each batch.
    ends: list[int]
    batch: Any

    def part(self, first: int, last: int) -> Any:
        return _part(self.batch, first, last, -1)

    def parts(self, first: int, size: int, count: int) -> list[Any]:
        """New batches of `size` rows that follow each other."""
        starts = range(first, first + count * size, size)
        if type(self.batch) is np.ndarray:
            return [self.batch[start : start + size] for start in starts]
        cut = [[column[start : start + size] for start in starts] for column in self.batch.values()]
        return dicts_of(list(self.batch), cut)

    def continues(self, piece: Any) -> bool:
        """Whether a piece from elsewhere may be joined with these."""
        if type(piece) is np.ndarray or type(self.batch) is np.ndarray:
            return type(piece) is type(self.batch)
        return _is_flat(piece) and piece.keys() == self.batch.keys()


class _ManyCut(ManyMade):
    """New batches that were cut out of a table, one after the other."""

    def __init__(self, table: _JoinedBatches, first: int, size: int, made: list[Any]) -> None:
        self._start, self._ends = table.start, table.ends
        self._first, self._size, self.made = first, size, made

    def begin(self, index: int) -> tuple[int, Any]:
        row = self._first + index * self._size
        batch = bisect_right(self._ends, row) - 1
        return self._start + batch, row - self._ends[batch] or None


def _table_of(batches: Sequence[Any], start: int) -> _JoinedBatches | None:
    """Joins batches in advance, if that is cheap: new batches are then only cut out."""
    shown = batches[start:]
    first = shown[0]
    columns: dict[Any, Sequence[Any]]
    if type(first) is np.ndarray:
        columns = {None: shown}
    elif all(map(_is_flat, shown)) and all(list(batch) == list(first) for batch in shown):
        columns = {name: [batch[name] for batch in shown] for name in first}
    else:
        return None
    sizes: list[int] | None = None
    nbytes = 0
    for arrays in columns.values():
        if set(map(type, arrays)) != {np.ndarray} or not _are_rows_alike(arrays):
            return None
        counts = list(map(len, arrays))
        if not all(counts) or sizes not in (None, counts):
            return None
        nbytes += arrays[0].nbytes // counts[0] * sum(counts)
        if nbytes > _SMALL:
            return None
        sizes = counts
    assert sizes is not None
    joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    whole = joined if type(first) is dict else joined[None]
    return _JoinedBatches(start, list(accumulate(sizes, initial=0)), whole)


def _are_rows_alike(arrays: Sequence[Any]) -> bool:
    """Whether arrays have rows, all of the same type and shape."""
    # Nearly always their type is one and the same object.
    kinds = list(map(_dtype_of, arrays))
    if len(set(map(id, kinds))) > 1 and len(set(kinds)) > 1:
        return False
    dimensions = set(map(_ndim_of, arrays))
    if len(dimensions) > 1 or 0 in dimensions:
        return False
    return dimensions == {1} or len({array.shape[1:] for array in arrays}) == 1


def _part(batch: Any, start: int, stop: int, size: int) -> Any:
    # The two commonest shapes are written out, as this runs for each batch.
    if not start and stop == size:
        return batch
    if type(batch) is np.ndarray:
        return batch[start:stop]
    if _is_flat(batch):
        return {name: array[start:stop] for name, array in batch.items()}
    return map_leaves(lambda leaf: leaf[start:stop], batch)


def _joined(pieces: list[Any]) -> Any:
    first = pieces[0]
    if len(pieces) == 1:
        return first
    if type(first) is np.ndarray:
        return np.concatenate(pieces)
    if all(map(_is_flat, pieces)):
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in first}
    # By path, as dicts may have their keys in another order.
    tables = [dict(leaves_with_paths(piece)) for piece in pieces]
    joined = iter([np.concatenate([table[path] for table in tables]) for path in tables[0]])
    return map_leaves(lambda _: next(joined), pieces[0])


def _is_flat(batch: Any) -> bool:
    return type(batch) is dict and set(map(type, batch.values())) == {np.ndarray}


def _check_same(first: Any, batch: Any) -> None:
    if type(first) is type(batch) is np.ndarray:
        return
    if _is_flat(first) and _is_flat(batch) and first.keys() == batch.keys():
        return
    one, other = dict(leaves_with_paths(first)), dict(leaves_with_paths(batch))
    if one.keys() != other.keys():
        raise BatchError(
            "`rebatch` joins batches of one structure, and these differ: one has "
            f"{_names(one)}, another one {_names(other)}."
        )


def _names(table: dict[Path, Any]) -> str:
    return ", ".join(map(show_path, table))
