"""Decodes the columns of MDS shards, by the names of their encodings.

No encoding runs code except `pkl`, which the user has to allow.
"""

import json
import math
import pickle
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.sources.images import decode_image_of_record
from bushel.sources.shard_folder.list_parts import parts_of_list
from bushel.sources.shard_folder.pixels import pixels

# Decodes a value.
Decode: TypeAlias = Callable[[bytes], Any]

SCALARS = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64"),
    )
}
# Types of arrays that contain it: the bits of a value, plus 1 for integers, 2 for floats.
_TYPES = {
    8 * dtype.itemsize + {"u": 0, "i": 1, "f": 2}[dtype.kind]: dtype for dtype in SCALARS.values()
}
_PICTURES = ("jpeg", "png", "jpeg_array", "jpegarray")


def decoder_of(encoding: str, decode: bool, allow_pickle: bool) -> tuple[int | None, Decode]:
    """The size of an encoding's values, if it is fixed, and their decoder.

    Raises a ValueError if there is none.

    >>> size, make = decoder_of("ndarray:int16:2,2", False, False)
    >>> size, make(bytes([1, 0, 2, 0, 3, 0, 4, 0])).tolist()
    (8, [[1, 2], [3, 4]])
    """
    if encoding in _PLAIN:
        return _PLAIN[encoding]
    if encoding in SCALARS:
        dtype = SCALARS[encoding]
        return dtype.itemsize, lambda data: np.frombuffer(data, dtype)[0]
    kind, _, rest = encoding.partition(":")
    if kind == "ndarray":
        return _array_decoder(rest)
    if encoding == "pkl":
        if not allow_pickle:
            raise ValueError(
                "is a pickle, and to read one can run any code. Leave the column out by "
                "`columns=`, or say `allow_pickle=True` if you trust who wrote the shards"
            )
        return None, pickle.loads
    if encoding.startswith("list[") and encoding.endswith("]"):
        inner = encoding[5:-1]
        if inner in ("pil", *_PICTURES):
            _, make = decoder_of(inner, decode, False)
            return None, lambda data: [make(part) for part in _list_parts(data)]
    if encoding in _PICTURES:
        return None, decode_image_of_record if decode else bytes
    known = ", ".join(sorted([*_PLAIN, *SCALARS, *_PICTURES, "ndarray", "pkl", "list[...]"]))
    raise ValueError(f"has an encoding that is not known; known are {known}")


def _int(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


_PLAIN: dict[str, tuple[int | None, Decode]] = {
    "bytes": (None, bytes),
    "str": (None, lambda data: data.decode()),
    "int": (8, _int),
    "str_int": (None, lambda data: int(data.decode())),
    "str_float": (None, lambda data: float(data.decode())),
    "str_decimal": (None, lambda data: Decimal(data.decode())),
    "json": (None, json.loads),
    "pil": (None, pixels),
}


def _list_parts(data: bytes) -> list[bytes]:
    """The parts of a list: a zero, their number, the length of each, and the parts."""
    zero, _ = struct.unpack_from("<2I", data)
    if zero:
        raise ValueError("a list should begin with a zero")
    return parts_of_list(data, 4)


def _array_decoder(rest: str) -> tuple[int | None, Decode]:
    name, _, sides = rest.partition(":")
    if not name:
        return None, _array_that_tells
    if name not in SCALARS:
        raise ValueError(f"is of arrays of {name!r:.30}, which is no type of MDS")
    dtype = SCALARS[name]
    if not sides:
        return None, lambda data: _shaped_array(data, 0, dtype)
    shape = tuple(int(side) for side in sides.split(","))
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize >= 1 << 32:
        raise ValueError(f"is of arrays of the shape {shape}, which no shard has room for")
    size = math.prod(shape) * dtype.itemsize
    return size, lambda data: np.frombuffer(data, dtype).reshape(shape).copy()


def _array_that_tells(data: bytes) -> npt.NDArray[Any]:
    dtype = _TYPES.get(data[0])
    if dtype is None:
        raise ValueError(f"there is no type of arrays with the number {data[0]}")
    return _shaped_array(data, 1, dtype)


def _shaped_array(data: bytes, start: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array after its shape: one byte has the number of axes, and the width of their lengths."""
    axes, width = divmod(data[start], 4)
    sides = np.frombuffer(data, f"<u{1 << width}", count=axes, offset=start + 1)
    start += 1 + sides.nbytes
    return np.frombuffer(data, dtype, offset=start).reshape([int(s) for s in sides]).copy()
