"""Decodes the leaves of litdata's records, by the names of their formats.

No format runs code except `pickle`, which the user has to allow. Tensors become arrays.
"""

import math
import pickle
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.sources.images import decode_image_of_record
from bushel.sources.shard_folder.list_parts import parts_of_list
from bushel.sources.shard_folder.litdata_json import parse_json
from bushel.sources.shard_folder.pixels import pixels

Decode: TypeAlias = Callable[[bytes], Any]

_NUMPY = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
)
# torch has two names for many a type. numpy has none for the tenth, bfloat16.
_TORCH = (
    *("float32", "float32", "float64", "float64", "complex64", "complex64", "complex128"),
    *("complex128", "float16", "float16", "", "uint8", "int8", "int16", "int16", "int32"),
    *("int32", "int64", "int64", "bool", "uint16"),
)
_FILES = ("file", "image", "audio", "video", "nifti", "mesh", "pdf", "tifffile", "bytes")
_PICTURES = ("jpeg", "image")


def decoder_of(format: str, decode: bool, allow_pickle: bool) -> Decode:
    """The decoder of a format. Raises a ValueError if there is none.

    >>> decoder_of("no_header_tensor:14", False, False)(bytes([1, 0, 2, 0])).tolist()
    [1, 2]
    """
    # After the colon is the type of an array, or the ending of a file's name.
    kind, _, more = format.partition(":")
    if kind in ("no_header_numpy", "no_header_tensor"):
        dtype = _type(_NUMPY if kind == "no_header_numpy" else _TORCH, int(more))
        return lambda data: np.frombuffer(data, dtype).copy()
    if kind == "pickle":
        if not allow_pickle:
            raise ValueError(
                "is a pickle, and to read one can run any code. (litdata pickles what it has no "
                "format for: `None`, scalars of numpy, objects.) Say `allow_pickle=True` if you "
                "trust who wrote the chunks"
            )
        return pickle.loads
    if decode and kind in _PICTURES:
        return decode_image_of_record
    if kind == "jpeg_array":
        make: Decode = decode_image_of_record if decode else bytes
        return lambda data: [make(part) for part in parts_of_list(data)]
    if kind in _FORMATS:
        return _FORMATS[kind]
    if kind in (*_FILES, *_PICTURES):
        return bytes
    known = ", ".join(sorted({*_FORMATS, *_FILES, *_PICTURES, "jpeg_array", "pickle"}))
    raise ValueError(f"is not known; known are {known}")


def token_type(format: str) -> np.dtype[Any]:
    """The type of tokens, given the format in which they were written."""
    kind, _, more = format.partition(":")
    names = {"no_header_numpy": _NUMPY, "no_header_tensor": _TORCH}.get(kind)
    if names is None or not more.isdecimal():
        raise ValueError(f"tokens are arrays of one axis, and not of the format {format!r:.50}")
    return _type(names, int(more))


def _type(names: tuple[str, ...], number: int) -> np.dtype[Any]:
    if not 0 <= number < len(names) or not names[number]:
        raise ValueError(f"is of arrays of the type number {number}, of which numpy has none")
    return np.dtype(names[number]).newbyteorder("<")


def _array(data: bytes, names: tuple[str, ...], order: str) -> npt.NDArray[Any] | None:
    """An array after the number of its type and its shape; None if it is something else."""
    number, axes = struct.unpack_from(f"{order}2I", data)
    if number >= len(names) or axes > 64 or len(data) < 8 + 4 * axes:
        return None
    shape = struct.unpack_from(f"{order}{axes}I", data, 8)
    dtype, start = _type(names, number), 8 + 4 * axes
    if start + math.prod(shape) * dtype.itemsize != len(data):
        return None
    return np.frombuffer(data, dtype, offset=start).reshape(shape).copy()


def _numpy(data: bytes) -> npt.NDArray[Any]:
    array = _array(data, _NUMPY, "<")
    if array is None:
        raise ValueError("an array does not have the size that its shape says")
    return array


def _tensor(data: bytes) -> npt.NDArray[Any]:
    # Numbers had their lowest byte first up to some version, and have had it last since. Only one
    # of the two orders fits the number of bytes.
    for order in "<>":
        array = _array(data, _TORCH, order)
        if array is not None:
            return array
    raise ValueError("a tensor does not have the size that its shape says")


def _float(data: bytes) -> float:
    return float(struct.unpack("<d", data)[0])


_FORMATS: dict[str, Decode] = {
    "str": lambda data: data.decode(),
    "text": lambda data: data.decode(),
    "bool": lambda data: data != b"\0",
    "int": lambda data: int.from_bytes(data, "little", signed=True),
    "float": _float,
    "json": parse_json,
    "pil": pixels,
    "numpy": _numpy,
    "tensor": _tensor,
}
