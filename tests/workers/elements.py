"""Elements of every kind that a pipeline may produce, and whether two of them are the same."""

import array
import collections
import datetime
import decimal
import enum
import fractions
import pathlib
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tests.workers import library_elements


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Sample:
    image: np.ndarray[Any, Any]
    label: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frozen:
    values: np.ndarray[Any, Any]


class Plain:
    """An object with nothing special about it."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Reduced:
    """An object that says itself how it is pickled."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __reduce__(self) -> Any:
        return _restored, (self.array,)


def _restored(array: Any) -> Reduced:
    return Reduced(array)


class Colour(enum.Enum):
    RED = "red"


class Weekday(enum.IntFlag):
    MONDAY = 1


class Tagged(np.ndarray[Any, Any]):
    """An array class of a user's own."""


class Measured(np.ndarray[Any, Any]):
    """One that has something to say."""

    unit: str | None

    def __array_finalize__(self, base: Any) -> None:
        self.unit = getattr(base, "unit", None)


def measured(unit: str) -> Measured:
    made = np.arange(6.0).reshape(2, 3).view(Measured)
    made.unit = unit
    return made


class Slotted:
    """An object without a `__dict__`."""

    __slots__ = ("__weakref__", "left", "right")

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


class OwnDict(dict[str, Any]):
    """A dict of a user's own."""


def _readonly(array: Any) -> Any:
    array.flags.writeable = False
    return array


def objects(*items: Any) -> Any:
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


_GRID = np.arange(24, dtype=np.float32).reshape(4, 6)
RECORD = np.dtype([("id", "<i4"), ("box", ">f8", (2,)), ("name", "S5")])


def _on_a_file() -> Any:
    with tempfile.TemporaryFile() as file:
        file.write(np.arange(12, dtype=np.int16).tobytes())
        file.flush()
        return np.memmap(file, dtype=np.int16, mode="r", shape=(4, 3))


def _shared_leaf() -> Any:
    array = np.arange(5)
    return {"one": array, "other": array, "part": array[2:]}


MAKE: dict[str, Callable[[], Any]] = {
    # Plain Python.
    "none": lambda: None,
    "numbers": lambda: [0, -1, 2**80, True, 1.5, float("inf"), -0.0, 2 + 3j],
    "not a number": lambda: {"nan": float("nan"), "array": np.array([np.nan, 1.0])},
    "strings": lambda: ["", "plain", "ünï ☃ 𝄞", "nul\0inside", "\ud800"],
    "bytes": lambda: [b"", b"\0\xff" * 5, bytearray(b"abc"), b"x" * 300_000],
    "empty containers": lambda: [{}, [], (), set(), frozenset(), "", b""],
    "nested": lambda: {"a": [1, {"b": (2, [3, None])}], ("t", 1): {"c": np.int8(4)}, 5: None},
    "order of keys": lambda: {"z": 1, "a": 2, "m": 3},
    "ordered dict": lambda: collections.OrderedDict(z=np.arange(3), a=1),
    "default dict": lambda: collections.defaultdict(list, x=[1]),
    "deque": lambda: collections.deque([1, np.arange(3)], maxlen=4),
    "named tuple": lambda: Pair(np.arange(4), Pair("x", None)),
    "dataclass": lambda: Sample(_GRID.copy(), "cat", {"w": np.float64(0.5)}),
    "frozen dataclass": lambda: Frozen(np.arange(7)),
    "object": lambda: Plain(array=np.arange(1000), name="x", inner=Plain(deep=[1, 2])),
    "reduced object": lambda: Reduced(np.arange(5.0)),
    "enum, dates and numbers": lambda: [
        Colour.RED,
        datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
        decimal.Decimal("0.1"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=7),
        range(3, 9, 2),
        slice(1, None, 2),
        Ellipsis,
        int,
    ],
    "sets": lambda: [{1, "a", (2,)}, frozenset([1, 2]), {"a": {3}}],
    "own dict": lambda: OwnDict(a=1, b=np.arange(2)),
    "counter": lambda: collections.Counter("abca"),
    "other enums": lambda: [Weekday.MONDAY, Weekday(0)],
    "dates and paths": lambda: [
        datetime.date(2020, 1, 2),
        datetime.timedelta(microseconds=1),
        datetime.timezone(datetime.timedelta(hours=2)),
        pathlib.PurePosixPath("a/b"),
    ],
    "complex": lambda: [complex("nan+infj"), -0.0 + 0j],
    "slotted object": lambda: Slotted(np.arange(3), Slotted(1, None)),
    "array of Python": lambda: array.array("d", [1.5, 2.5]),
    "memoryviews": lambda: [
        memoryview(b"abc"),
        memoryview(bytearray(b"abc")),
        memoryview(b""),
        memoryview(np.arange(6).reshape(2, 3)),
        memoryview(_readonly(np.arange(6.0))),
        memoryview(b"abcdefgh")[::2],
        memoryview(bytes(8)).cast("i"),
        memoryview(np.arange(3, dtype=">i4")),
        memoryview(np.empty((0, 3))),
        memoryview(bytes(300_000)),
    ],
    "exception as a value": lambda: ValueError("a value, not an error"),
    "a large object in many parts": lambda: [{"id": i, "text": "t" * i} for i in range(500)],
    # Scalars and arrays of numpy.
    "scalars": lambda: [
        np.int8(-3),
        np.uint64(2**64 - 1),
        np.float16(0.1),
        np.bool_(True),
        np.complex64(1j),
        np.str_("s"),
        np.bytes_(b"b"),
        np.datetime64("2020-01-02T03:04"),
        np.timedelta64(5, "ms"),
        np.float32("nan"),
    ],
    "every dtype": lambda: {code: np.arange(5).astype(code) for code in "?bhilqBHILQefdgFDG"},
    "0-d": lambda: [np.array(5), np.array("text"), np.array(None, dtype=object)],
    "zero size": lambda: [
        np.empty(0),
        np.empty((3, 0, 2), np.int8),
        np.empty((0, 5), "<U7"),
        np.empty(0, object),
    ],
    "big-endian": lambda: {"i": np.arange(5, dtype=">i4"), "f": np.arange(5, dtype=">f8")},
    "fortran order": lambda: np.asfortranarray(np.arange(60.0).reshape(3, 4, 5)),
    "transposed": lambda: _GRID.copy().T,
    "reversed": lambda: np.arange(10)[::-1],
    "strided": lambda: [np.arange(100)[::7], _GRID.copy()[::2, 1::3], np.arange(9)[4:4]],
    "broadcast": lambda: np.broadcast_to(np.arange(3), (200, 3)),
    "large and strided": lambda: np.arange(400_000).reshape(1000, 400)[::3, ::-2],
    "read-only": lambda: {"a": _readonly(np.arange(9)), "b": np.arange(9)},
    "structured": lambda: np.array([(1, (2.5, 3.5), b"one"), (2, (0, 1), b"two")], RECORD),
    "structured scalar": lambda: np.array([(1, (2.5, 3.5), b"one")], RECORD)[0],
    "record array": lambda: np.rec.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f4")]),
    "dates": lambda: [
        np.array(["2020-01-01", "NaT"], "datetime64[D]"),
        np.arange(4).astype("timedelta64[us]"),
    ],
    "text arrays": lambda: [np.array(["a", "ünï"]), np.array([b"abc", b""]), np.array([], "<U1")],
    "object arrays": lambda: {
        "mixed": objects(1, None, "x", [1, 2], np.arange(3)),
        "grid": np.array([[1, None], ["x", 2.5]], dtype=object),
    },
    "masked": lambda: np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0], fill_value=-9),
    "masked in other ways": lambda: [
        np.ma.masked_array([1.0, 2.0]),
        np.ma.masked_array([1, 2], mask=False),
        np.ma.masked_array([1, 2], mask=[1, 0], hard_mask=True),
        np.ma.masked_array(np.arange(6).reshape(2, 3), mask=np.eye(2, 3, dtype=bool)),
        np.ma.masked_array([(1, 2.0)], mask=[(0, 1)], dtype=[("a", int), ("b", float)]),
        np.ma.masked_array(np.arange(100_000.0), mask=np.arange(100_000) % 3 == 0),
        np.ma.masked,
    ],
    "text of numpy's own": lambda: np.array(["a", "long" * 20], np.dtypes.StringDType()),
    "characters": lambda: np.char.array(["a", "bc"]),
    "small floats": lambda: {
        name: np.arange(4).astype(getattr(ml_dtypes, name))
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float4_e2m1fn")
    },
    "an array class with attributes": lambda: [measured("m"), measured("s").T, measured("kg")[1:]],
    "an array class of the user's own": lambda: np.arange(6).view(Tagged),
    "bfloat16": lambda: np.arange(8).astype(ml_dtypes.bfloat16),
    "an array twice": _shared_leaf,
    "one megabyte": lambda: np.arange(250_000, dtype=np.float32).reshape(500, 500),
    "matrix": lambda: np.arange(4).reshape(2, 2).view(np.matrix),
    "memory map": _on_a_file,
    "large pickled buffers": lambda: Plain(a=np.arange(200_000), b=bytes(300_000), c=[b"y" * 9]),
    **library_elements.MAKE,
}


class Elements:
    """A source of them all, by key."""

    def __len__(self) -> int:
        return len(MAKE)

    def __getitem__(self, key: int) -> Any:
        return list(MAKE.values())[key]()


def assert_same(got: Any, made: Any) -> None:
    """Compares two elements: types, dtypes, shapes, bits, order, and who may write to them."""
    assert type(got) is type(made)
    if made is np.ma.masked:
        assert got is made
    elif isinstance(made, np.ndarray):
        assert (got.dtype, got.dtype.byteorder, got.shape) == (
            made.dtype,
            made.dtype.byteorder,
            made.shape,
        )
        if 0 not in made.strides:  # What is repeated in place becomes an array of its own.
            assert got.flags.writeable == made.flags.writeable
        assert got.flags.aligned
        if made.flags.f_contiguous:
            assert got.flags.f_contiguous
        if isinstance(made, np.ma.MaskedArray):
            assert_same(np.ma.getmaskarray(got), np.ma.getmaskarray(made))
            assert got.fill_value == made.fill_value
            assert (got.mask is np.ma.nomask) == (made.mask is np.ma.nomask)
            assert got.hardmask == made.hardmask
            assert got.tolist() == made.tolist()
        elif made.dtype.char == "T":  # Strings that lie elsewhere.
            assert got.tolist() == made.tolist()
        elif made.dtype.hasobject:
            for one, other in zip(got.ravel(), made.ravel(), strict=True):
                assert_same(one, other)
        elif made.dtype.char in "gG":
            assert (got == made).all()  # There are bits in these that mean nothing.
        else:
            assert got.tobytes() == made.tobytes()
        assert getattr(got, "__dict__", {}).get("unit") == getattr(made, "unit", None)
    elif isinstance(made, np.generic):
        assert (got.dtype, got.tobytes()) == (made.dtype, made.tobytes())
    elif isinstance(made, (float, complex)):
        assert repr(got) == repr(made)
    elif isinstance(made, dict):
        assert [*map(repr, got)] == [*map(repr, made)]
        assert_same([*got.values()], [*made.values()])
    elif isinstance(made, (list, tuple, collections.deque)):
        assert len(got) == len(made)
        for one, other in zip(got, made, strict=True):
            assert_same(one, other)
    elif is_dataclass(made) and not isinstance(made, type):
        assert_same(
            [getattr(got, f.name) for f in fields(made)],
            [getattr(made, f.name) for f in fields(made)],
        )
    elif isinstance(made, Slotted):
        assert_same([got.left, got.right], [made.left, made.right])
    elif isinstance(made, (Plain, Reduced)):
        assert_same(vars(got), vars(made))
    elif isinstance(made, memoryview):
        assert (got.format, got.shape, got.readonly) == (made.format, made.shape, made.readonly)
        assert got.tobytes() == made.tobytes()
    elif isinstance(made, BaseException):
        assert got.args == made.args
    elif (within := library_elements.what_is_in(made)) is not None:
        assert_same(library_elements.what_is_in(got), within)
    else:
        assert got == made
