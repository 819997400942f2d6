"""The checksum of an element for recordings, equal in any process and on any machine."""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.tree import open_node

# Bytes in a row of the tables that large arrays are divided into, and the least number of rows.
_ROW_BYTES, _MANY_ROWS = 4096, 8


class _NotKnownError(Exception):
    """The element contains an object whose bytes are unknown."""


def checksum(element: Any) -> str | None:
    """The CRC-32 of an element's arrays (for large ones, of sums over them), texts and numbers.

    Nesting counts, too.

    The memory layout of arrays does not matter, and neither does the order of the keys of a dict.
    None if the element contains anything else.

    >>> checksum({"x": np.arange(3), "y": "text"}) == checksum({"y": "text", "x": np.arange(3)})
    True
    >>> checksum(np.arange(3)) == checksum(np.arange(3.0))
    False
    >>> checksum(object()) is None
    True
    """
    try:
        return f"{_add(element, 0):08x}"
    except (_NotKnownError, RecursionError):
        return None


def _add(value: Any, crc: int) -> int:
    if value is None or isinstance(value, (bool, int, float, complex)):
        if not isinstance(value, np.generic):
            # Plain numbers, also of subclasses, such as enumerations.
            kind = next(kind for kind in (bool, int, float, complex, object) if _is(value, kind))
            return _text(f"{kind.__name__} {_number(value, kind)}", crc)
    elif isinstance(value, str):
        return _bytes("str", value.encode("utf-8", "surrogatepass"), crc)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes("bytes", bytes(value), crc)
    elif isinstance(value, dict):
        names = sorted(value, key=lambda name: (type(name).__name__, repr(name)))
        crc = _text(f"dict {len(names)}", crc)
        for name in names:
            crc = _add(value[name], _add(name, crc))
        return crc
    elif isinstance(value, (list, tuple)):
        return _several("list" if isinstance(value, list) else "tuple", value, crc)
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(np.asarray(value), crc)
    if hasattr(type(value), "__array__") or hasattr(type(value), "__array_interface__"):
        return _array(_as_array(value), crc)
    # (An iterator would be empty afterwards.)
    opened = None if isinstance(value, Iterator) else open_node(value)
    if opened is None:
        raise _NotKnownError
    return _several(type(value).__name__, opened[1], crc)


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind)


def _number(value: Any, kind: type) -> str:
    if kind is int:
        return f"{int(value):x}"  # In hexadecimal, as decimal ones are limited in length.
    return repr(None if value is None else kind(value))


def _as_array(value: Any) -> Any:
    """An array of another library as an array of numpy."""
    try:
        return np.asarray(value)
    except Exception as error:
        # Any error of that library: parts of the array may be on other machines.
        raise _NotKnownError from error


def _array(array: Any, crc: int) -> int:
    dtype = array.dtype
    if dtype.names is not None:
        # Field by field, as the bytes between fields are arbitrary.
        crc = _text(f"fields {array.shape} {dtype.names}", crc)
        for name in dtype.names:
            crc = _array(array[name], crc)
        return crc
    if dtype.subdtype is None and (dtype.hasobject or dtype.char in "OTgG"):
        # Objects, texts of any length, and numbers with padding bytes.
        if dtype.char in "gG":
            return _text(f"{dtype.name} {array.shape} {list(map(repr, array.flat))}", crc)
        return _several(f"objects {array.shape}", array.flat, crc, array.size)
    order = dtype.newbyteorder("<")
    name = dtype.name if dtype.kind == "V" else order.str
    crc = _text(f"{name} {array.shape}", crc)
    flat = np.ascontiguousarray(array.astype(order, copy=False)).reshape(-1)
    return _of_memory(flat.view(np.uint8), crc) if flat.nbytes else crc


def _of_memory(data: npt.NDArray[np.uint8], crc: int) -> int:
    """Adds bytes; for many, sums of which at least one changes if a byte does, or its place.

    Sums are as fast as reading memory, many times as fast as a CRC.
    """
    table = len(data) // _ROW_BYTES * _ROW_BYTES
    if table >= _MANY_ROWS * _ROW_BYTES:
        words = data[:table].view("<u8").reshape(-1, _ROW_BYTES // 8)
        for axis in (0, 1):
            sums = np.add.reduce(words, axis=axis).astype("<u8", copy=False)
            crc = zlib.crc32(sums.data, crc)
        data = data[table:]
    return zlib.crc32(data.data, crc)


def _several(name: str, values: Iterable[Any], crc: int, count: int | None = None) -> int:
    crc = _text(f"{name} {len(values) if count is None else count}", crc)  # type: ignore[arg-type]
    for value in values:
        crc = _add(value, crc)
    return crc


def _bytes(name: str, data: bytes, crc: int) -> int:
    return zlib.crc32(data, _text(f"{name} {len(data)}", crc))


def _text(text: str, crc: int) -> int:
    return zlib.crc32(text.encode(), crc)
