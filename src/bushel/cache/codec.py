"""Elements as bytes, without pickles: a description in JSON, and the bytes of arrays.

An element is an array, a number, a string, bytes or None, or a dict, list or tuple of those. Its
description says what it is made of; numbers stand in it. The description of elements that are
built alike is written once.
"""

import json
from typing import Any

import numpy as np

from bushel.core.memory_file import aligned
from bushel.core.tree import Path, show_path
from bushel.errors import BatchError

# Enough for any one number.
_ALIGNMENT = 16
_PLAIN = {int: "i", float: "f", bool: "b"}
# As many bits as numbers in JSON may have: Python reads and writes 4,300 digits.
_MOST_BITS = 14_000


class Encoder:
    """Writes elements, as they are when they are added.

    >>> encoder = Encoder()
    >>> encoder.add({"x": np.array([1, 2]), "name": "a"})
    >>> encoder.add((b"bytes", None, 2.5))
    >>> decode(*encoder.parts())
    [{'x': array([1, 2]), 'name': 'a'}, (b'bytes', None, 2.5)]
    """

    def __init__(self) -> None:
        # What elements are made of, as text, each with a number.
        self._shapes: dict[str, int] = {}
        self._rows: list[tuple[int, list[Any]]] = []
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size(self) -> int:
        """About how many bytes there are so far."""
        return len(self._data) + 64 * len(self._rows)

    def add(self, row: Any) -> None:
        values: list[Any] = []
        shape = json.dumps(_shape_of(row, values, self._data, ()))
        self._rows.append((self._shapes.setdefault(shape, len(self._shapes)), values))

    def parts(self) -> tuple[bytes, bytes]:
        """A description of the elements, and the bytes that it refers to."""
        shapes = [json.loads(shape) for shape in self._shapes]
        return json.dumps({"shapes": shapes, "rows": self._rows}).encode(), bytes(self._data)


def decode(description: bytes, data: bytes) -> list[Any]:
    """Makes the elements again; their arrays are theirs, and can be written to."""
    told = json.loads(description)
    memory = bytearray(data)
    rows = []
    for number, values in told["rows"]:
        rows.append(_made(told["shapes"][number], iter(values), memory))
    return rows


def _shape_of(value: Any, values: list[Any], data: bytearray, path: Path) -> Any:
    """What an element is made of; what is in it goes to `values` and `data`."""
    kind = type(value)
    if kind is dict:
        for name in value:
            if type(name) is not str and type(name) is not int:
                raise _refused(path, f"a dict with the key {name!r:.100}")
        return ["d", list(value), [_shape_of(value[n], values, data, (*path, n)) for n in value]]
    if kind is tuple or kind is list:
        parts = [_shape_of(item, values, data, (*path, at)) for at, item in enumerate(value)]
        return ["t" if kind is tuple else "l", parts]
    if value is None:
        return "n"
    if kind in _PLAIN:
        if kind is int and value.bit_length() > _MOST_BITS:
            raise _refused(path, f"a number of {value.bit_length():,} bits")
        values.append(value)
        return _PLAIN[kind]
    if kind is str or kind is bytes:
        # In Python a half of a surrogate pair is a character like others.
        encoded = value.encode("utf-8", "surrogatepass") if kind is str else value
        values.append([_put(data, encoded), len(encoded)])
        return "s" if kind is str else "y"
    if kind is np.ndarray or (isinstance(value, np.generic) and kind.__module__ == "numpy"):
        dtype = value.dtype
        if dtype.hasobject or np.dtype(dtype.str) != dtype:
            raise _refused(path, f"an array of type {dtype}")
        values.append([_put(data, value.tobytes()), *value.shape])
        return [("a" if kind is np.ndarray else "g") + dtype.str]
    raise _refused(path, f"a {kind.__name__}")


def _put(data: bytearray, value: bytes) -> int:
    data += bytes(aligned(len(data), _ALIGNMENT) - len(data))
    start = len(data)
    data += value
    return start


def _refused(path: Path, what: str) -> BatchError:
    return BatchError(
        "a cache on disk holds arrays, numbers, strings, bytes, None, and dicts, lists and tuples "
        f"of those, and {show_path(path)} is {what}. Make it one of those in a `map` before "
        "`cache(path)`, or remember it in memory: `cache()`."
    )


def _made(shape: Any, values: Any, memory: bytearray) -> Any:
    if shape == "n":
        return None
    if isinstance(shape, str):
        value = next(values)
        if shape not in "ys":
            return value
        start, size = value
        encoded = bytes(memory[start : start + size])
        return encoded if shape == "y" else encoded.decode("utf-8", "surrogatepass")
    if len(shape) == 1:
        start, *lengths = next(values)
        dtype = np.dtype(shape[0][1:])
        if dtype.hasobject:  # Its bytes would be taken for addresses.
            raise ValueError(f"an array of type {dtype} cannot be made of bytes")
        if start < 0 or any(length < 0 for length in lengths):
            raise ValueError(f"an array of {lengths} cannot begin at {start}")
        # One of no bytes has no place in memory that numpy would take.
        if 0 in lengths or not dtype.itemsize:
            array: Any = np.empty(lengths, dtype)
        else:
            array = np.ndarray(lengths, dtype, memory, start)
        return array if shape[0][0] == "a" else array[()]
    if shape[0] == "d":
        _, names, parts = shape
        return {name: _made(part, values, memory) for name, part in zip(names, parts, strict=True)}
    made = [_made(part, values, memory) for part in shape[1]]
    return tuple(made) if shape[0] == "t" else made


def size_of(value: Any) -> int:
    """About how much memory an element takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes + 112
    if isinstance(value, dict):
        return 64 + sum(64 + size_of(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return 56 + sum(8 + size_of(item) for item in value)
    if isinstance(value, (str, bytes)):
        return 49 + len(value)
    return 32
