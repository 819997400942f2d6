"""Integers of protocol buffers: varints, seven bits to a byte.

2c         44: below 128, one byte
ac 02      300: the highest bit of a byte says that the number goes on in the next one
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.errors import RecordError

_Integers = npt.NDArray[np.int64]

_MOST = (1 << 64) - 1
# The number of bytes up to which a loop is faster than protobuf, and than numpy.
_FEW, _SOME = 24, 160
# For each size from 1 to 8 bytes, the bits of a number in the eight bytes from its start.
_OWN = np.array([0x7F7F7F7F7F7F7F7F & (1 << 8 * size) - 1 for size in range(1, 9)], np.uint64)
# Closes the gaps between groups of 7 bits, then of 14, then of 28: the groups that stay, those that
# move down, and by how many bits.
_GAPS = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]


def varint_at(data: bytes, place: int) -> tuple[int, int]:
    """A number, and the place after it."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _MOST, place
        shift += 7
        if shift > 63:
            raise RecordError(f"a number has more than ten bytes, at byte {place - 10}.")


def varints_of(data: bytes) -> _Integers:
    """Consecutive numbers.

    >>> varints_of(bytes([1, 128, 1, 5]))
    array([  1, 128,   5])
    """
    if data.isascii():  # All are below 128, so each is a byte.
        return np.frombuffer(data, dtype=np.uint8).astype(np.int64)
    if data[-1] > 127:
        raise RecordError("a list of numbers ends within one.")
    if len(data) <= _FEW:
        return by_loop(data)
    library = by_protobuf()
    if library is not None:
        return library(data)
    return by_loop(data) if len(data) <= _SOME else by_numpy(data)


def by_loop(data: bytes) -> _Integers:
    """The same, byte by byte."""
    values: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        if byte < 128:
            values.append(value & _MOST)
            value = shift = 0
        elif shift == 63:
            raise RecordError("a number has more than ten bytes.")
        else:
            shift += 7
    return np.array(values, dtype=np.uint64).view(np.int64)


def by_numpy(data: bytes) -> _Integers:
    """The same, for all numbers at once: the eight bytes from the start of each are a word."""
    encoded = np.frombuffer(data + bytes(9), dtype=np.uint8)
    ends = np.flatnonzero(encoded[: len(data)] < 128)
    starts = np.concatenate([[0], ends[:-1] + 1])
    further = ends - starts
    longest = int(further.max()) + 1
    if longest > 10:
        raise RecordError("a number has more than ten bytes.")
    words: Any = np.ndarray((len(data),), "<u8", encoded.data, strides=(1,)).take(starts)
    words &= _OWN.take(further, mode="clip")
    for stay, move, by in _GAPS[: (longest - 1).bit_length()]:
        words = (words & stay) | ((words & move) >> by)
    for place in range(8, longest):
        longer = np.flatnonzero(further >= place)
        bits = (encoded.take(starts[longer] + place) & 127).astype(np.uint64)
        words[longer] |= bits << np.uint64(7 * place)
    values: _Integers = words.astype(np.uint64, copy=False).view(np.int64)
    return values


@cache
def by_protobuf() -> Callable[[bytes], _Integers] | None:
    """The same, by the C code of protobuf, if there is a version that returns numbers to numpy."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        return None
    file = descriptor_pb2.FileDescriptorProto(name="integers.proto", syntax="proto3")
    field = file.message_type.add(name="Integers").field.add(name="value", number=1)
    field.label, field.type = field.LABEL_REPEATED, field.TYPE_INT64
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    parse = message_factory.GetMessageClass(pool.FindMessageTypeByName("Integers")).FromString
    if not hasattr(parse(b"").value, "__array__"):
        return None  # Before version 7 it makes an object of each number, slower than numpy.

    def integers(data: bytes) -> _Integers:
        try:
            values = parse(b"\x0a" + encoded_varint(len(data)) + data).value
        except Exception:
            return by_numpy(data)  # It raises what is wrong.
        return np.array(values, dtype=np.int64)

    return integers


def encoded_varint(value: int) -> bytes:
    """Writes a number of at most 64 bits.

    >>> encoded_varint(300).hex()
    'ac02'
    """
    if value < 128:
        return value.to_bytes(1, "little")
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
