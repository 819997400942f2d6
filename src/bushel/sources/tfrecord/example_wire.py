"""The wire format of protocol buffers: numbered fields, one after the other."""

from typing import Any, TypeAlias

from bushel.errors import RecordError
from bushel.sources.tfrecord.varints import encoded_varint, varint_at

Bytes: TypeAlias = bytes | bytearray | memoryview
Fields: TypeAlias = list[tuple[int, Any]]

_VARINT, _EIGHT, _BYTES, _GROUP, _END, _FOUR = range(6)


def fields_of(data: Any, what: str) -> Fields:
    """The fields of a message: numbers and their values.

    Values are integers, or bytes: with a length, or the four or eight of a number.
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


def _behind_group(data: bytes, place: int, number: int) -> int:
    """Skips a group, an old kind of field that ends with its own mark."""
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


def encoded_field(number: int, data: bytes) -> bytes:
    """Writes a field of bytes."""
    return bytes([number << 3 | _BYTES]) + encoded_varint(len(data)) + data
