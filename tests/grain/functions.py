"""Records and functions of random programs, by their names."""

import zlib
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

# What records look like, by kind: the i-th record of a list.

Point = namedtuple("Point", "x y")

RECORDS: dict[str, Callable[[int], Any]] = {
    "int": lambda i: 7 * i - 3,
    "float": lambda i: i / 3,
    "bool": lambda i: i % 2 == 0,
    "text": lambda i: "abcdef"[: 1 + i % 5],
    "bytes": lambda i: b"abcdef"[: 1 + i % 5],
    "big": lambda i: 2**70 + i,
    "none": lambda i: None if i % 3 == 1 else i,
    "mixed": lambda i: (i, i / 2, i % 2 == 0, np.int8(i % 100))[i % 4],
    "scalar": lambda i: np.float32(i / 3),
    "array": lambda i: np.arange(3, dtype=np.int16) + i,
    "point_array": lambda i: np.array(i),
    "ragged": lambda i: np.full(i % 3, i, dtype=np.float32),
    "dict": lambda i: {"b": i, "a": np.full((2, 1), i, dtype=np.uint8)},
    "nested": lambda i: {"x": (i, [i + 0.5, str(i)]), "y": {"z": np.float64(i)}},
    "tuple": lambda i: (i, np.full(2, i)),
    "point": lambda i: Point(i, np.int32(-i)),
    "hole": lambda i: {"a": None, "b": i},
    "hollow": lambda i: {"a": None if i % 4 == 2 else i},
    "empty": lambda i: ((), {}, [])[i % 1],
}

DTYPES = (
    "bool int8 uint16 int64 float16 float32 float64 complex64 datetime64[D] <U3 S2 object"
).split()


def array_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    if dtype == "bool":
        return numbers % 3 == 0
    return (numbers % 100).astype(dtype)


# User functions, by name. They take any element, so that they fit after anything.


def digest(value: Any) -> int:
    """A number that depends on everything about a value, its types included."""
    return zlib.crc32(_canonical(value).encode())


def _canonical(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return f"{value.shape}{[_canonical(item) for item in value.ravel().tolist()]}"
        return f"{value.dtype.str}{value.shape}{value.tolist()}"
    if isinstance(value, dict):
        items = sorted((str(name), _canonical(item)) for name, item in value.items())
        return f"{type(value).__name__}{items}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[_canonical(item) for item in value]}"
    return f"{type(value).__name__}{value!r}"


class Boom(RuntimeError):
    """What a failing user function raises."""


def _boom(value: Any) -> Any:
    if digest(value) % 4 == 0:
        raise Boom(digest(value))
    return value


MAPS: dict[str, Callable[[Any], Any]] = {
    "same": lambda x: x,
    "number": lambda x: digest(x) % 1000,
    "fraction": lambda x: digest(x) % 1000 / 7,
    "text": lambda x: "x" * (digest(x) % 4),
    "byte": lambda x: np.uint8(digest(x) % 256),
    "row": lambda x: np.full((2, 2), digest(x) % 100, dtype=np.float32),
    "ragged": lambda x: np.zeros(digest(x) % 3, dtype=np.int32),
    "none": lambda x: None if digest(x) % 3 == 0 else x,
    "pair": lambda x: (x, digest(x) % 10),
    "names": lambda x: {"value": x, "id": np.int64(digest(x) % 10)},
    "mixed": lambda x: (digest(x) % 5, digest(x) % 5 / 2)[digest(x) % 2],
    "boom": _boom,
}

INDEX_MAPS: dict[str, Callable[[int, Any], Any]] = {
    "index": lambda i, x: i,
    "both": lambda i, x: (i, x),
    "type": lambda i, x: (type(i).__name__, i),
    "none": lambda i, x: None if i % 3 == 2 else i,
}


def _words(x: Any, rng: np.random.Generator) -> Any:
    return rng.integers(0, 2**32, size=3, dtype=np.uint32), rng.random()


# An odd number of 32-bit draws leaves half a word behind, which the next element must not see.
RANDOM_MAPS: dict[str, Callable[[Any, np.random.Generator], Any]] = {
    "integer": lambda x, rng: int(rng.integers(1000)),
    "float": lambda x, rng: (x, rng.random()),
    "word": lambda x, rng: rng.integers(0, 2**32, dtype=np.uint32),
    "words": _words,
    "half": lambda x, rng: (rng.random(dtype=np.float32), rng.standard_normal(2)),
    "order": lambda x, rng: rng.permutation(4),
    "unused": lambda x, rng: x,
}

FILTERS: dict[str, Callable[[Any], Any]] = {
    "most": lambda x: digest(x) % 4 != 0,
    "half": lambda x: digest(x) % 2,
    "few": lambda x: digest(x) % 5 == 0,
    "all": lambda x: True,
    "array": lambda x: np.array([digest(x) % 3 > 0]),
    "boom": lambda x: digest(_boom(x)) % 2 == 0,
}

BATCH_FUNCTIONS: dict[str | None, Callable[[Any], Any] | None] = {
    None: None,
    "list": list,
    "summary": lambda rows: (type(rows).__name__, len(rows), digest(rows)),
}

FLAT_MAPS: dict[str, Callable[[Any], Any]] = {
    "copies": lambda x: [x] * (digest(x) % 4),
    "numbered": lambda x: [(k, x) for k in range(3)],
    "nothing": lambda x: [],
    "holes": lambda x: [x, None][: digest(x) % 3],
    "too_many": lambda x: [x] * (2 + digest(x) % 3),
}
