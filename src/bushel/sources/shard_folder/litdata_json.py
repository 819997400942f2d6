"""JSON values in litdata: as text, or in litdata's binary form."""

import json
import struct
from typing import Any

_NUMBER = struct.Struct("<I")
_TEXT, _STRINGS, _INTEGERS, _FLOATS, _BOOLS, _DICT, _ROWS = range(7)
_STRING, _INTEGER, _FLOAT, _BOOL, _NULL = range(7, 12)
# Values in rows have type numbers of their own.
_IN_ROWS = {0x10: _NULL, 0x11: _STRING, 0x12: _INTEGER, 0x13: _FLOAT, 0x14: _BOOL}
_DEEPEST = 100


def parse_json(data: bytes) -> Any:
    """The value that the bytes encode.

    >>> parse_json(b'{"a": [1]}'), parse_json(bytes([1, 1, 0, 0, 0, 2, 0, 0, 0]) + b"hi")
    ({'a': [1]}, ['hi'])
    """
    if data[0] > _NULL:
        return json.loads(data)  # Text begins with a letter, which is a higher number.
    reader = _JsonReader(data)
    value = reader.value(0)
    if reader.place != len(data):
        raise ValueError(f"a JSON value ends at byte {reader.place} of {len(data)}")
    return value


class _JsonReader:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("a JSON value is nested too deeply")
        kind = self._byte()
        if kind == _TEXT:
            return json.loads(self._bytes(self._number()))
        if kind == _STRINGS:
            return [self._string() for _ in range(self._many(4))]
        if kind == _INTEGERS:
            return list(self._numbers("q", self._many(8)))
        if kind == _FLOATS:
            return list(self._numbers("d", self._many(8)))
        if kind == _BOOLS:
            return [bool(byte) for byte in self._bytes(self._number())]
        if kind == _DICT:
            return {self._string(): self.value(depth + 1) for _ in range(self._many(5))}
        if kind == _ROWS:
            rows, width = self._number(), self._many(4)
            if rows * max(width, 1) > len(self._data):
                raise ValueError("a JSON value has fewer rows than it says")
            names = [self._string() for _ in range(width)]
            return [
                {name: self._plain(_IN_ROWS[self._byte()]) for name in names} for _ in range(rows)
            ]
        return self._plain(kind)

    def _plain(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _INTEGER:
            return self._numbers("q", 1)[0]
        if kind == _FLOAT:
            return self._numbers("d", 1)[0]
        if kind == _BOOL:
            return bool(self._byte())
        if kind == _NULL:
            return None
        raise ValueError(f"there is no JSON value of the kind {kind}")

    def _bytes(self, number: int) -> bytes:
        start, self.place = self.place, self.place + number
        if self.place > len(self._data):
            raise ValueError("a JSON value goes on after its end")
        return self._data[start : self.place]

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _number(self) -> int:
        return int(_NUMBER.unpack(self._bytes(4))[0])

    def _many(self, least: int) -> int:
        """A count of things that take at least so many bytes each."""
        number = self._number()
        if number * least > len(self._data) - self.place:
            raise ValueError("a JSON value has fewer parts than it says")
        return number

    def _numbers(self, kind: str, number: int) -> tuple[Any, ...]:
        return struct.unpack(f"<{number}{kind}", self._bytes(8 * number))

    def _string(self) -> str:
        return self._bytes(self._number()).decode()
