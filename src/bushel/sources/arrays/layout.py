"""The layout of records in one piece of shared memory.

    ┌───────┬────────┬─────────────┬─────────┬─────────┬─────┐
    │ MAGIC │ length │ description │ array 0 │ array 1 │ ... │
    └───────┴────────┴─────────────┴─────────┴─────────┴─────┘

Columns are stored unchanged: one array each. So are arrays of one shape and type, stacked. Records
of other kinds take three arrays: the kind of each; its value, or the place of its bytes; and all
the bytes. Numbers are their own value. The bytes of an array follow its shape.

The description is that of an element (`files/elements.py`): the tree of the columns, the arrays,
and the types of records that are arrays. It is data, never code to run. MAGIC is written last: a
reader that finds it finds the rest.
"""

import json
import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.block import Columns
from bushel.core.dtypes import dtype_of, text_of
from bushel.core.frozen import frozen
from bushel.core.memory_file import aligned
from bushel.core.positions import Keys
from bushel.core.tree import leaves_with_paths, map_leaves, show_path
from bushel.errors import SourceError
from bushel.files.elements import Later, UnheldError, describe, made
from bushel.sources.base import check_equally_long

Memory: TypeAlias = npt.NDArray[np.uint8]
Array: TypeAlias = npt.NDArray[Any]

_MAGIC = b"bushel 2"
_PREFIX_BYTES = 16
_ALIGNMENT = 64  # A cache line, and as much as any vector instruction needs.
_ALIGNMENT_IN_BYTES = 16  # Enough for any number type, and little waste for a short record.

# The kind of a record. From _ARRAY on, it is an array, whose type is in a table.
_NONE, _BOOL, _INT, _FLOAT, _STR, _BYTES, _LARGE_INT, _ARRAY = range(8)
_PLAIN: dict[type, int] = {
    type(None): _NONE,
    bool: _BOOL,
    int: _INT,
    float: _FLOAT,
    str: _STR,
    bytes: _BYTES,
}
_LETTERS = {_NONE: "x", _BOOL: "?", _INT: "q", _FLOAT: "d"}
_INT64 = np.iinfo(np.int64)
# Errors of decoding bytes that are not as they were written.
_NOT_OURS = (
    AttributeError, ImportError, LookupError, RecursionError, StopIteration, TypeError, ValueError,
)  # fmt: skip


@frozen
class _ArrayKind:
    """The type and number of axes that arrays, or numpy's scalars, have in common."""

    dtype: "np.dtype[Any]"
    ndim: int
    is_scalar: bool

    def described(self) -> list[Any]:
        return [text_of(self.dtype), self.ndim, self.is_scalar]


_NO_BYTES = Later(np.dtype(np.uint8), (0,), lambda room: None)


# Writing.


class LayoutWriter:
    """Records that have been examined: the memory that they need, and how to fill it.

    >>> packing = LayoutWriter(["a", 1, None])
    >>> memory = np.zeros(packing.size, np.uint8)
    >>> packing.write(memory)
    >>> Packed(memory).records([2, 1, 0])
    [None, 1, 'a']
    """

    def __init__(self, elements: Any) -> None:
        tree, parts, kinds = _columns(elements) or _stacked_or_rows(elements)
        # The tree of the columns if the description cannot express it, such as a named tuple, and
        # the reason. Only a process that receives it with the memory can read that.
        self.tree: Any = None
        self.unheld: UnheldError | None = None
        try:
            element = self._describe(tree, parts)
        except UnheldError as error:
            self.tree, self.unheld = tree, error
            element = self._describe(None, parts)
        types = None if kinds is None else [kind.described() for kind in kinds]
        self._description = json.dumps([*element, types]).encode()
        self._start = aligned(_PREFIX_BYTES + len(self._description), _ALIGNMENT)
        self.size = self._start + self._end

    def _describe(self, tree: Any, parts: list[Later]) -> tuple[Any, list[Any]]:
        self._parts: list[tuple[Later, int]] = []
        self._end = 0
        values: list[Any] = []
        return describe((tree, parts), values, self._put), values

    def _put(self, part: Any) -> int:
        offset = self._end
        self._parts.append((part, offset))
        self._end = aligned(offset + part.nbytes, _ALIGNMENT)
        return offset

    def write(self, memory: Memory) -> None:
        """Fills memory of the right size: each array is copied once."""
        for part, offset in self._parts:
            part.fill(np.ndarray(part.shape, part.dtype, memory, self._start + offset))
        length = len(self._description)
        memory[8:16] = np.frombuffer(length.to_bytes(8, "little"), np.uint8)
        memory[16 : 16 + length] = np.frombuffer(self._description, np.uint8)
        memory[:8] = np.frombuffer(_MAGIC, np.uint8)


_Looked: TypeAlias = tuple[Any, list[Later], list[_ArrayKind] | None]


def _columns(elements: Any) -> _Looked | None:
    """Lays out a tree of equally long arrays, if the records are one."""
    if not isinstance(elements, (dict, tuple, np.ndarray)):
        return None
    leaves = list(leaves_with_paths(elements))
    others = [(path, leaf) for path, leaf in leaves if not isinstance(leaf, np.ndarray)]
    if not isinstance(elements, dict) and (others or not leaves):
        return None  # A tuple of records.
    if not leaves or others:
        path, leaf = others[0] if others else ((), {})
        what = "has no columns" if not others else f"{show_path(path)} is {_a_type(leaf)}"
        raise SourceError(
            "a dict is a source when all its values are numpy arrays of one length, and here "
            f"{what}. Convert columns with `numpy.asarray`; give records as a list."
        )
    check_equally_long(leaves)
    for path, leaf in leaves:
        _check_array(leaf, f"the column {show_path(path)}")
    numbers = iter(range(len(leaves)))
    tree = map_leaves(lambda _: next(numbers), elements)
    return tree, [_copied(leaf) for _, leaf in leaves], None


def _stacked_or_rows(elements: Iterable[Any]) -> _Looked:
    try:
        rows = list(elements)
    except TypeError:
        raise SourceError(
            f"the elements of a source must be a sequence, and {_a_type(elements)} is none."
        ) from None
    first = rows[0] if rows else None
    alike = (
        isinstance(first, np.ndarray)
        and first.ndim > 0
        and all(
            isinstance(row, np.ndarray) and row.shape == first.shape and row.dtype == first.dtype
            for row in rows
        )
    )
    if first is None or not alike:
        return _rows(rows)
    for index, row in enumerate(rows):
        _check_array(row, f"element {index}")
    stacked = Later(first.dtype, (len(rows), *first.shape), lambda room: _stack(rows, room))
    return 0, [stacked], None


def _rows(rows: Sequence[Any]) -> _Looked:
    """Lays out records of any kinds."""
    numbers = _numbers(rows)
    if numbers is not None:
        kind, values = numbers
        return None, [_copied(np.full(len(rows), kind, np.int32)), _copied(values), _NO_BYTES], []
    what = np.empty(len(rows), np.int32)
    values = np.zeros(len(rows), np.int64)
    pieces: list[tuple[int, Any]] = []  # The place of each array or bytes.
    kinds: dict[tuple[Any, ...], int] = {}
    end = 0
    for index, row in enumerate(rows):
        kind = _PLAIN.get(type(row), -1)
        if kind == _FLOAT:
            values[index : index + 1].view(np.float64)[0] = row
        elif kind == _INT and not _INT64.min <= row <= _INT64.max:
            kind = _LARGE_INT
            row = row.to_bytes(row.bit_length() // 8 + 1, "little", signed=True)
        elif kind == _STR:
            # As in Python's own memory: a file name that is not valid text remains the same.
            row = row.encode("utf-8", "surrogatepass")
        elif kind in (_BOOL, _INT):
            values[index] = row
        elif kind < 0:
            array = _as_array(row, index)
            key = (array.dtype, array.ndim, isinstance(row, np.generic))
            kind = _ARRAY + kinds.setdefault(key, len(kinds))
            row = array
        what[index] = kind
        if kind >= _STR:
            values[index] = end
            pieces.append((end, row))
            end += _stored_bytes(row)
    parts = [
        _copied(what),
        _copied(values),
        Later(np.dtype(np.uint8), (end,), lambda room: _fill_bytes(room, pieces)),
    ]
    return None, parts, [_ArrayKind(*key) for key in kinds]


def _numbers(rows: Sequence[Any]) -> tuple[int, npt.NDArray[np.int64]] | None:
    """Turns records into their values at once, if all are numbers of one kind."""
    types = set(map(type, rows))
    kind = _PLAIN.get(types.pop()) if len(types) == 1 else None
    if kind not in (_BOOL, _INT, _FLOAT):
        return None
    if kind == _FLOAT:
        return kind, np.array(rows, np.float64).view(np.int64)
    try:
        return kind, np.array(rows, np.int64)
    except OverflowError:
        return None  # A number needs more than 64 bits.


def _as_array(row: Any, index: int) -> Array:
    if not isinstance(row, (np.ndarray, np.generic)):
        raise SourceError(
            f"element {index} is {_a_type(row)}, which shared memory cannot hold: elements are "
            "numpy arrays, numbers, strings, bytes or None. Give records of several fields as a "
            "dict of equally long arrays, and anything else pickled, as bytes."
        )
    _check_array(row, f"element {index}")
    return np.asarray(row)


def _check_array(array: Any, name: str) -> None:
    if array.dtype.hasobject:
        raise SourceError(
            f"{name} is an array of Python objects (dtype {array.dtype}), which mean nothing to "
            "another process. Give it a dtype of numbers or of fixed-width strings."
        )
    if text_of(array.dtype) is None:
        raise SourceError(
            f"{name} is an array of type {array.dtype}, which cannot be written as text. Give it "
            "a dtype of numpy's own."
        )
    if isinstance(array, np.ma.MaskedArray):
        raise SourceError(
            f"{name} is a masked array, and the mask would be lost. Give `.filled()`, or data "
            "and mask as two columns."
        )


def _stored_bytes(piece: Any) -> int:
    if isinstance(piece, bytes):
        return aligned(8 + len(piece), 8)
    return _shape_bytes(piece.ndim) + aligned(piece.nbytes, _ALIGNMENT_IN_BYTES) + 8


def _shape_bytes(ndim: int) -> int:
    return aligned(8 * ndim, _ALIGNMENT_IN_BYTES)


def _fill_bytes(room: Array, pieces: Sequence[tuple[int, Any]]) -> None:
    view = room.data
    for start, piece in pieces:
        if isinstance(piece, bytes):
            view[start : start + 8] = len(piece).to_bytes(8, "little")
            view[start + 8 : start + 8 + len(piece)] = piece
            continue
        start = aligned(start, _ALIGNMENT_IN_BYTES)
        np.ndarray((piece.ndim,), np.int64, room, start)[:] = piece.shape
        np.ndarray(piece.shape, piece.dtype, room, start + _shape_bytes(piece.ndim))[...] = piece


def _copied(array: Array) -> Later:
    return Later(array.dtype, array.shape, lambda room: np.copyto(room, array))


def _stack(rows: Sequence[Array], room: Array) -> None:
    for row, place in zip(rows, room, strict=True):
        place[...] = row


def _a_type(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


# Reading.


class Packed:
    """Memory that a `LayoutWriter` has filled, for reading.

    Every record is a new object that belongs to the caller. Many functions for `map` change
    elements in place, and memory that other processes read must not change.
    """

    def __init__(self, memory: Memory, tree: Any = None) -> None:
        """`tree` has the tree of the columns, if the memory does not describe it."""
        # Read-only, so that no code changes what other processes read.
        memory = memory[:]
        memory.flags.writeable = False
        if memory[:8].tobytes() != _MAGIC:
            raise SourceError(
                "this memory does not hold the records of a SharedMemoryDataSource, or they are "
                "still being written. Open it once its maker has been constructed."
            )
        self.memory, self.tree = memory, tree
        self.columns: Any = None
        self._kinds: list[_ArrayKind] | None = None
        try:
            self._lay_out(tree)
        except _NOT_OURS as error:
            raise SourceError(f"this shared memory is damaged: {error}.") from error

    def _lay_out(self, tree: Any) -> None:
        length = int.from_bytes(self.memory[8:16].tobytes(), "little")
        if length > len(self.memory):
            raise ValueError(f"its description is {length:,} bytes long")
        shape, values, kinds = json.loads(self.memory[16 : 16 + length].tobytes())
        start = aligned(_PREFIX_BYTES + length, _ALIGNMENT)
        found, arrays = made(shape, iter(values), self.memory[start:])
        self.length = len(arrays[0])
        if kinds is None:
            tree = found if tree is None else tree
            self.columns = map_leaves(lambda number: arrays[number], tree)
            return
        self._kinds = [_ArrayKind(dtype_of(text), ndim, scalar) for text, ndim, scalar in kinds]
        self._what, self._values, self._bytes = arrays
        self._floats = self._values.view(np.float64)
        self._view = self._bytes.data

    def record(self, key: int) -> Any:
        """Returns the record at a key from 0 up to the length."""
        if self._kinds is None:
            return map_leaves(lambda column: _own(column[key]), self.columns)
        return self._row(key)

    def records(self, keys: Sequence[int]) -> list[Any]:
        """Returns many records, read at once if they are columns or numbers of one kind."""
        numbers = _checked(keys, self.length)
        if self._kinds is None:
            return Columns(self.columns, numbers).rows()
        what = self._what.take(numbers)
        kind = int(what[0]) if len(what) else _NONE
        if kind in (_BOOL, _INT, _FLOAT) and (what == kind).all():
            values = (self._floats if kind == _FLOAT else self._values).take(numbers)
            return (values.astype(bool) if kind == _BOOL else values).tolist()  # type: ignore[no-any-return]
        return list(map(self._row, numbers.tolist()))

    def _row(self, key: int) -> Any:
        kind = self._what.item(key)
        if kind == _FLOAT:
            return self._floats.item(key)
        value = self._values.item(key)
        if kind == _INT:
            return value
        if kind in (_STR, _BYTES, _LARGE_INT):
            return self._from_bytes(kind, value)
        if kind >= _ARRAY:
            return self._array(kind, value)
        return None if kind == _NONE else bool(value)

    def _from_bytes(self, kind: int, start: int) -> Any:
        size = int.from_bytes(self._view[start : start + 8], "little")
        stored = self._view[start + 8 : start + 8 + size]
        if kind == _STR:
            return str(stored, "utf-8", "surrogatepass")
        return bytes(stored) if kind == _BYTES else int.from_bytes(stored, "little", signed=True)

    def _array(self, kind: int, start: int) -> Any:
        assert self._kinds is not None
        found = self._kinds[kind - _ARRAY]
        start = aligned(start, _ALIGNMENT_IN_BYTES)
        shape = np.ndarray((found.ndim,), np.int64, self._bytes, start).tolist()
        stored: Array = np.ndarray(
            shape, found.dtype, self._bytes, start + _shape_bytes(found.ndim)
        )
        copied = stored.copy()
        return copied[()] if found.is_scalar else copied

    def format(self) -> str:
        """Writes the types as text: those of columns, or a letter for each row."""
        if self._kinds is None:
            return str(
                map_leaves(lambda column: f"{column.dtype}{list(column.shape)}", self.columns)
            )
        return "".join(
            _LETTERS.get(kind, "a" if kind >= _ARRAY else "s") for kind in self._what.tolist()
        )


def _own(entry: Any) -> Any:
    """Makes an entry of a column independent of it; plain numbers are so already."""
    return entry.copy() if isinstance(entry, (np.ndarray, np.void)) else entry


def _checked(keys: Sequence[int], length: int) -> Keys:
    """Turns keys into an array of them, counted from the front."""
    numbers = np.asarray(keys)
    if not numbers.size:
        return np.empty(0, np.int64)
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"keys must be integers, and {next(iter(keys))!r} is among them.")
    wrong = (numbers < -length) | (numbers >= length)
    if wrong.any():
        raise IndexError(f"there is no record {numbers[wrong][0]}; there are {length}.")
    return np.where(numbers < 0, numbers + length, numbers).astype(np.int64, copy=False)


def checked_key(key: Any, length: int) -> int:
    """Turns one key into the number of a record, counted from the front."""
    number = operator.index(key)
    if not -length <= number < length:
        raise IndexError(f"there is no record {number}; there are {length}.")
    return number + length if number < 0 else number
