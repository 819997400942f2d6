"""The checksum of an element is that of its values, wherever they are and however they lie."""

import enum
import os
import subprocess
import sys
from collections import OrderedDict, namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from bushel.watch.checksum import checksum

Point = namedtuple("Point", "x y")


class Colour(enum.IntEnum):
    RED = 7


DTYPES = [
    "?", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "S5", "U5", "M8[ns]", "m8[s]", "g",
    ml_dtypes.bfloat16, "V3", np.dtype([("a", "i1"), ("b", "f8")], align=True), "O",
]  # fmt: skip


def array_of(dtype: Any) -> Any:
    numbers = np.arange(24, dtype=np.int64)
    if np.dtype(dtype) == np.dtype("V3"):
        return np.frombuffer(bytes(range(72)), "V3").reshape(2, 3, 4)
    if np.dtype(dtype).names:
        made = np.empty(24, dtype)
        made["a"], made["b"] = numbers, numbers / 2
        return made.reshape(2, 3, 4)
    return numbers.astype(dtype).reshape(2, 3, 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_does_not_matter(dtype: Any) -> None:
    array = array_of(dtype)
    wanted = checksum(array)
    assert wanted is not None
    wide = np.repeat(array, 2, axis=2)
    same = [np.asfortranarray(array), wide[:, :, ::2], array[::-1][::-1], array.copy()]
    same += [array.transpose(2, 0, 1).copy().transpose(1, 2, 0)]
    if not np.dtype(dtype).hasobject and np.dtype(dtype) != ml_dtypes.bfloat16:
        same.append(array.astype(array.dtype.newbyteorder()))
    assert [checksum(one) for one in same] == [wanted] * len(same)
    other = array.copy()
    other[1, 2, 3] = other[0, 0, 0]
    assert checksum(other) != wanted
    assert checksum(array.reshape(-1)) != wanted


def test_bytes_between_fields_do_not_matter() -> None:
    dtype = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    one, other = np.zeros(4, dtype), np.full(64, 255, np.uint8).view(dtype)
    other["a"], other["b"] = 0, 0.0
    assert checksum(one) == checksum(other)


def test_what_differs_has_another_one() -> None:
    values: list[Any] = [
        None, True, 1, 1.0, 1 + 0j, "1", b"1", [], (), {}, [1], (1,), [[1]], {"a": 1}, {"a": [1]},
        {"b": 1}, ["a", 1], ["a1"], ["a", "1"], [None], np.int64(1), np.int32(1), np.array([1]),
        np.array([[1]]), np.array([], np.int8), np.array([], np.int16), 10**5000, -(10**5000),
        float("nan"), 0.0, -0.0, "\ud800", np.array("1"), np.array(b"1"), 2, Point(1, 2), (2, 1),
    ]  # fmt: skip
    sums = [checksum(value) for value in values]
    assert None not in sums
    assert len(set(sums)) == len(sums)


def test_the_order_of_keys_does_not_matter() -> None:
    one = {"x": np.arange(3), "y": {"a": 1, 2: "b"}}
    assert checksum(one) == checksum({"y": {2: "b", "a": 1}, "x": np.arange(3)})
    assert checksum(OrderedDict(a=1, b=2)) == checksum({"b": 2, "a": 1})
    assert checksum(Colour.RED) == checksum(7)
    assert checksum(bytearray(b"x")) == checksum(memoryview(b"x")) == checksum(b"x")


class Broken:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise KeyError("no array")


def test_what_is_not_known_has_none() -> None:
    rows = iter([1, 2])
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), {"a": rows}, {1, 2}, endless, Broken(), np.array([object()])):
        assert checksum(value) is None
    assert next(rows) == 1


def test_other_processes_have_the_same() -> None:
    program = (
        "import numpy as np; from bushel.watch.checksum import checksum;"
        "print(checksum({name: np.arange(3) for name in {'a', 'b', 'c', 'd'}}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {checksum({name: np.arange(3) for name in "dcba"})}


@pytest.mark.parametrize("dtype", ["uint8", "<f4", ">i8", "bool", "<U3"])
@pytest.mark.parametrize("size", [1 << 15, 40_000, 1 << 17])
def test_large_arrays_differ_where_a_byte_or_its_place_does(dtype: str, size: int) -> None:
    random = np.random.default_rng(1)
    array = random.integers(0, 2, size).astype(dtype)
    known = checksum(array)
    assert checksum(array.copy()) == known
    assert checksum(np.stack([array, array], 1)[:, 0]) == known  # Not contiguous.
    rows = random.integers(0, size, 200)
    for one, other in rows.reshape(-1, 2).tolist():
        changed = array.copy()
        changed[one] = 1 - int(array[one])
        assert checksum(changed) != known
        if array[one] != array[other]:
            changed[other] = 1 - int(array[other])  # Two of them in each other's place.
            assert checksum(changed) != known
    assert checksum(np.roll(array, 4096)) != known
    assert checksum(array[::-1]) != known
