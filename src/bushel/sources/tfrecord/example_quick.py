"""Parses Examples in their usual encoding in one pass over the bytes.

Messages may be encoded in many ways: values one by one, fields in any order. An unusual encoding is
left to the parser in `example.py`, which handles all of them and says what is wrong.
"""

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from bushel.sources.tfrecord.varints import varint_at, varints_of

# The tags of fields of bytes, with these numbers; and those of a feature.
_ONE, _TWO, _THREE = BYTES, FLOATS, INTS = 0x0A, 0x12, 0x1A
# Names come again with every record.
_NAMES: dict[bytes, str] = {}
_MOST_NAMES = 10_000


def quickly_parsed(data: bytes, wanted: Container[str] | None) -> dict[str, Any] | None:
    """The features of an Example; None if its encoding is unusual."""
    try:
        return _walked(data, wanted, _values)
    except (IndexError, ValueError):
        return None


def spans_of(data: bytes) -> dict[str, tuple[int, int, int]] | None:
    """For each feature its kind, and the start and end of its values; None as above."""
    try:
        return _walked(data, None, _span)
    except (IndexError, ValueError):
        return None


def _walked(
    data: bytes, wanted: Container[str] | None, read: Callable[[bytes, int, int], Any]
) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    size = len(data)
    if not size:
        return found
    place, end = _field(data, 0, _ONE)
    if end != size:
        return None
    while place < end:
        place, entry_end = _field(data, place, _ONE)
        place, name_end = _field(data, place, _ONE)
        name = _name(data[place:name_end])
        place, stop = _field(data, name_end, _TWO)
        if stop != entry_end or stop > end:
            return None
        if wanted is None or name in wanted:
            found[name] = read(data, place, stop)
        place = stop
    return found


def _field(data: bytes, place: int, tag: int) -> tuple[int, int]:
    """The start and end of a field's bytes."""
    if data[place] != tag:
        raise ValueError
    length = data[place + 1]
    if length < 128:
        return place + 2, place + 2 + length
    further = data[place + 2]
    if further < 128:
        return place + 3, place + 3 + (length & 127 | further << 7)
    length, place = varint_at(data, place + 1)
    return place, place + length


def _name(name: bytes) -> str:
    known = _NAMES.get(name)
    if known is None:
        known = name.decode()
        if len(_NAMES) < _MOST_NAMES:
            _NAMES[name] = known
    return known


def _values(data: bytes, place: int, end: int) -> Any:
    kind, place, end = _span(data, place, end)
    if kind == BYTES:
        values = []
        while place < end:
            place, stop = _field(data, place, _ONE)
            values.append(data[place:stop])
            place = stop
        if place != end:
            raise ValueError
        return values
    if kind == FLOATS:
        return np.frombuffer(data, "<f4", (end - place) // 4, place).astype(np.float32)
    return varints_of(data[place:end])


def _span(data: bytes, place: int, end: int) -> tuple[int, int, int]:
    kind = data[place] if place < end else 0
    place, stop = _field(data, place, kind)
    if stop != end or place == end or kind not in (BYTES, FLOATS, INTS):
        raise ValueError
    if kind == BYTES:
        return kind, place, end
    place, stop = _field(data, place, _ONE)
    if stop != end or (kind == FLOATS and (stop - place) % 4):
        raise ValueError
    return kind, place, end
