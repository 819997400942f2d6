"""Protocol buffers, as bytes: numbered fields, one after the other."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.errors import RecordError

Bytes: TypeAlias = bytes | bytearray | memoryview
Fields: TypeAlias = list[tuple[int, Any]]

_VARINT, _EIGHT, _BYTES, _GROUP, _END, _FOUR = range(6)
_MOST = (1 << 64) - 1
# With fewer values a loop is faster than numpy.
_FEW = 24


def fields_of(data: Any, what: str) -> Fields:
    """The fields of a message: numbers and their values.

    Values are integers, or bytes: of a length of their own, or the four or eight of a number.
    """
    if not isinstance(data, bytes):
        raise RecordError(f"{what!r} should be a message, and is {data!r:.100}.")
    fields: Fields = []
    place, size = 0, len(data)
    try:
        while place < size:
            tag = data[place]
            place += 1
            if tag > 127:
                tag, place = varint_at(data, place - 1)
            kind = tag & 7
            if kind == _BYTES:
                length = data[place]
                place += 1
                if length > 127:
                    length, place = varint_at(data, place - 1)
                end = place + length
                if end > size:
                    raise IndexError
                fields.append((tag >> 3, data[place:end]))
                place = end
            elif kind == _VARINT:
                value, place = varint_at(data, place)
                fields.append((tag >> 3, value))
            elif kind in (_EIGHT, _FOUR):
                end = place + (8 if kind == _EIGHT else 4)
                if end > size:
                    raise IndexError
                fields.append((tag >> 3, data[place:end]))
                place = end
            elif kind == _GROUP:
                place = _behind_group(data, place, tag >> 3)
            else:
                raise RecordError(f"{what!r} is no message: byte {place - 1} of it is no field.")
            if not tag >> 3:
                raise RecordError(f"{what!r} is no message: it has a field with the number 0.")
    except IndexError:
        raise RecordError(
            f"{what!r} is cut short, or no message: it ends within a field."
        ) from None
    return fields


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


def _behind_group(data: bytes, place: int, number: int) -> int:
    """Passes over a group, an old kind of field that ends with a mark of its own."""
    open_groups = [number]
    while open_groups:
        tag, place = varint_at(data, place)
        kind = tag & 7
        if kind == _GROUP:
            open_groups.append(tag >> 3)
        elif kind == _END:
            if open_groups.pop() != tag >> 3:
                raise RecordError(f"a group ends that did not begin, before byte {place}.")
        elif kind == _VARINT:
            _, place = varint_at(data, place)
        elif kind == _BYTES:
            length, place = varint_at(data, place)
            place += length
        elif kind in (_EIGHT, _FOUR):
            place += 8 if kind == _EIGHT else 4
        else:
            raise RecordError(f"byte {place - 1} is no field.")
        if place > len(data):
            raise IndexError
    return place


def varints_of(data: bytes) -> npt.NDArray[np.int64]:
    """Numbers that stand one after the other.

    >>> varints_of(bytes([1, 128, 1, 5]))
    array([  1, 128,   5])
    """
    if data.isascii():  # All below 128, and so a byte each.
        return np.frombuffer(data, dtype=np.uint8).astype(np.int64)
    if data[-1] > 127:
        raise RecordError("a list of numbers ends within one.")
    if len(data) <= _FEW:
        values, place = [], 0
        while place < len(data):
            value, place = varint_at(data, place)
            values.append(value)
        return np.array(values, dtype=np.uint64).view(np.int64)
    encoded = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(encoded < 128)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise RecordError("a number has more than ten bytes.")
    # Each byte is worth its seven bits, at the place that it has in its number.
    places = np.arange(len(encoded)) - np.repeat(starts, lengths)
    worth = (encoded & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(worth, starts).view(np.int64)


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


def encoded_field(number: int, data: bytes) -> bytes:
    """Writes a field of bytes."""
    return bytes([number << 3 | _BYTES]) + encoded_varint(len(data)) + data
