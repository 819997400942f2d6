"""Elements as bytes, without pickles: a description in JSON, and the bytes of arrays.

An element is an array, a number, a string, bytes or None, or a dict, list or tuple of those. Its
description has its structure; numbers are in the description. The description of elements with the
same structure is written once.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.dtypes import dtype_of, text_of
from bushel.core.frozen import frozen
from bushel.core.memory_file import aligned
from bushel.core.tree import Path, show_path

# Enough for any number type.
_ALIGNMENT = 16
_PLAIN = {int: "i", float: "f", bool: "b"}
# The most bits of integers in JSON: Python reads and writes 4,300 digits.
_MOST_BITS = 14_000

HOLDS = "arrays, numbers, strings, bytes, None, and dicts, lists and tuples of those"


class UnheldError(Exception):
    """A part of an element that cannot be written: completes "...['x'] is"."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{show_path(path)} is {what}")


@frozen
class Later:
    """An array that is written once its memory is allocated."""

    dtype: "np.dtype[Any]"
    shape: tuple[int, ...]
    fill: Callable[[npt.NDArray[Any]], None]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=object))


# Stores bytes or an array, and returns the place.
Put: TypeAlias = "Callable[[bytes | npt.NDArray[Any] | Later], int]"


class Encoder:
    """Encodes elements, in the state that they have when they are added.

    >>> encoder = Encoder()
    >>> encoder.add({"x": np.array([1, 2]), "name": "a"})
    >>> encoder.add((b"bytes", None, 2.5))
    >>> decode(*encoder.parts())
    [{'x': array([1, 2]), 'name': 'a'}, (b'bytes', None, 2.5)]
    """

    def __init__(self) -> None:
        # Structures of elements, as text, each with a number.
        self._shapes: dict[str, int] = {}
        self._rows: list[tuple[int, list[Any]]] = []
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size(self) -> int:
        """The approximate number of bytes so far."""
        return len(self._data) + 64 * len(self._rows)

    def add(self, row: Any) -> None:
        values: list[Any] = []
        shape = json.dumps(describe(row, values, self._put))
        self._rows.append((self._shapes.setdefault(shape, len(self._shapes)), values))

    def parts(self) -> tuple[bytes, bytes]:
        """A description of the elements, and the bytes that it refers to."""
        shapes = [json.loads(shape) for shape in self._shapes]
        return json.dumps({"shapes": shapes, "rows": self._rows}).encode(), bytes(self._data)

    def _put(self, value: Any) -> int:
        data = self._data
        data += bytes(aligned(len(data), _ALIGNMENT) - len(data))
        start = len(data)
        data += value if type(value) is bytes else value.tobytes()
        return start


def decode(description: bytes, data: bytes) -> list[Any]:
    """Makes the elements; their arrays are new, and can be written to."""
    told = json.loads(description)
    memory = bytearray(data)
    rows = []
    for number, values in told["rows"]:
        rows.append(made(told["shapes"][number], iter(values), memory))
    return rows


def describe(value: Any, values: list[Any], put: Put, path: Path = ()) -> Any:
    """The structure of an element, for JSON; its contents go to `values` and to `put`."""
    kind = type(value)
    if kind is dict:
        for name in value:
            if type(name) is not str and type(name) is not int:
                raise UnheldError(path, f"a dict with the key {name!r:.100}")
        return ["d", list(value), [describe(value[n], values, put, (*path, n)) for n in value]]
    if kind is tuple or kind is list:
        parts = [describe(item, values, put, (*path, at)) for at, item in enumerate(value)]
        return ["t" if kind is tuple else "l", parts]
    if value is None:
        return "n"
    if kind in _PLAIN:
        if kind is int and value.bit_length() > _MOST_BITS:
            raise UnheldError(path, f"a number of {value.bit_length():,} bits")
        values.append(value)
        return _PLAIN[kind]
    if kind is str or kind is bytes:
        # In Python, half of a surrogate pair is a character like any other.
        encoded = value.encode("utf-8", "surrogatepass") if kind is str else value
        values.append([put(encoded), len(encoded)])
        return "s" if kind is str else "y"
    if isinstance(value, np.generic) and value.dtype.type is kind:
        return _describe_array("g", value, values, put, path)
    if kind is np.ndarray or kind is Later:
        return _describe_array("a", value, values, put, path)
    raise UnheldError(path, f"a {kind.__name__}")


def _describe_array(letter: str, value: Any, values: list[Any], put: Put, path: Path) -> Any:
    text = text_of(value.dtype)
    if text is None:
        raise UnheldError(path, f"an array of type {value.dtype}")
    values.append([put(value), *value.shape])
    # A type of numpy, or another one.
    return [letter + text] if isinstance(text, str) and text[0] in "<>|" else ["x", letter, text, 0]


def made(shape: Any, values: Iterator[Any], memory: Any) -> Any:
    """Makes an element from its description; its arrays are in the given memory.

    Damaged bytes raise a LookupError, TypeError or ValueError.
    """
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
        return _made_array(shape[0][0], shape[0][1:], next(values), memory)
    if shape[0] == "x":
        return _made_array(shape[1], shape[2], next(values), memory)
    if shape[0] == "d":
        _, names, parts = shape
        return {name: made(part, values, memory) for name, part in zip(names, parts, strict=True)}
    items = [made(part, values, memory) for part in shape[1]]
    return tuple(items) if shape[0] == "t" else items


def _made_array(letter: str, text: Any, place: Any, memory: Any) -> Any:
    start, *lengths = place
    dtype = dtype_of(text)
    if start < 0 or any(length < 0 for length in lengths):
        raise ValueError(f"an array of {lengths} cannot begin at {start}")
    # An array without bytes has no address that numpy would accept. (An empty text has one byte,
    # which must be zero.)
    if 0 in lengths or not dtype.itemsize:
        array: Any = np.zeros(lengths, dtype)
    else:
        array = np.ndarray(lengths, dtype, memory, start)
    return array if letter == "a" else array[()]
