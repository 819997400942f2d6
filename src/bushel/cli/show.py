"""Shows records on the command line: as text or JSON, with the kinds and sizes of their parts."""

import math
from typing import Any

import numpy as np

from bushel.core.tree import leaves_with_paths, map_leaves

_MOST_TEXT = 60
_MOST_NUMBERS = 6


def as_json(value: Any) -> Any:
    """A record as plain values of JSON; what is no such value is described.

    >>> as_json({"x": np.arange(3), "data": b"abc"})
    {'x': [0, 1, 2], 'data': {'bytes': 3, 'begins': 'abc'}}
    """
    if isinstance(value, dict):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(part) for part in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return {"bytes": len(data), "begins": _as_text(data)}
    if isinstance(value, np.ndarray):
        if value.size > 64 or value.dtype.hasobject:
            return {"array": str(value.dtype), "shape": list(value.shape)}
        return as_json(value.tolist())
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # Of such numbers, not every program that reads JSON knows.
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def brief(value: Any) -> str:
    """A value on a part of a line.

    >>> brief(np.arange(100).reshape(10, 10)), brief(b"\\x00ab"), brief("word")
    ('[0 1 2 3 4 5 ...]', "3 bytes: '\\\\x00ab'", "'word'")
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return f"{len(data):,} bytes: {_as_text(data)!r}" if data else "no bytes"
    if isinstance(value, np.ndarray) and value.ndim:
        numbers = " ".join(str(number) for number in value.ravel()[:_MOST_NUMBERS])
        return f"[{numbers}{' ...' * (value.size > _MOST_NUMBERS)}]"
    text = str(value) if isinstance(value, np.generic) else repr(value)
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."


def _as_text(data: bytes) -> str:
    return data[:40].decode("ascii", "backslashreplace")


def kind_of(value: Any) -> str:
    """What kind of value a leaf of a record is.

    >>> kind_of(np.zeros((2, 3), np.float32)), kind_of("a")
    ('float32[2, 3]', 'str')
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape) if value.ndim else ''}"
    if isinstance(value, np.generic):
        return str(value.dtype)
    return type(value).__name__


def leaves_of(record: Any) -> list[tuple[str, Any]]:
    """The parts of a record with their names; lists count as one part.

    >>> leaves_of({"a": {"b": 1}, "c": [1, 2]})
    [('a.b', 1), ('c', [1, 2])]
    """
    if isinstance(record, dict):
        found: list[tuple[str, Any]] = []
        for name, part in record.items():
            for rest, leaf in leaves_of(part):
                found.append((f"{name}.{rest}" if rest else str(name), leaf))
        return found
    if isinstance(record, tuple):
        return [
            (f"{number}.{rest}" if rest else str(number), leaf)
            for number, part in enumerate(record)
            for rest, leaf in leaves_of(part)
        ]
    return [("", record)]


def bytes_in(record: Any) -> int:
    """About how many bytes the values of a record take."""
    total = 0

    def count(leaf: Any) -> Any:
        nonlocal total
        if isinstance(leaf, (np.ndarray, np.generic)):
            total += leaf.nbytes
        elif isinstance(leaf, str):
            total += len(leaf.encode("utf-8", "surrogatepass"))
        elif isinstance(leaf, (bytes, bytearray, memoryview)):
            total += len(leaf)
        else:
            total += 8
        return leaf

    if list(leaves_with_paths(record)):
        map_leaves(count, record)
    return total


def size(number: float) -> str:
    """A number of bytes in words.

    >>> size(1_500_000)
    '1.5 MB'
    """
    for name in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {name}" if name == "bytes" else f"{number:.1f} {name}"
        number /= 1000
    return f"{number:.1f} TB"
