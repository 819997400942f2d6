"""Rows that are taken apart come back as they were, and cost no pickle each."""

import math
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.core.block import Columns
from bushel.core.ragged import Lists, Objects, RaggedRows, Run, Struct, Text, take_apart
from bushel.transport.arena import Arena
from bushel.transport.rows import pack_values, unpack_values
from bushel.transport.slots import Ring
from tests.property.profile import tried


class Named(str):
    """A string of a type of its own."""

    __slots__ = ()


_scalars = st.one_of(
    st.integers(),
    st.integers(-5, 5),
    st.booleans(),
    st.floats(),
    st.none(),
    st.text(max_size=3),
    st.just("long " * 900),
    st.just("lang\u00e4" * 900),
    st.just("half of a pair \ud800" * 200),
    st.binary(max_size=3),
    st.just(b"long" * 900),
    st.just(Named("n")),
)


@st.composite
def _arrays(draw: st.DrawFn) -> Any:
    dtype = draw(st.sampled_from(["i4", "i8", "u1", "f8", "c8", "?", ">i4", "U3", "M8[s]", "O"]))
    inner = draw(st.sampled_from([(), (), (2,), (0,)]))
    array = np.ones((draw(st.integers(0, 4)), *inner), dtype)
    return draw(st.sampled_from([array, array[::2], array[:1], array.reshape(-1), array.copy("F")]))


def _read_only(array: Any) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


_leaves = st.one_of(
    _scalars,
    _arrays(),
    _arrays().map(_read_only),
    st.sampled_from([np.int32(1), np.float64(2), np.array(3), np.bool_(True), np.str_("s")]),
)
_makers = st.sampled_from([dict, OrderedDict])
_elements = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", 1, True]), inner, max_size=2),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(OrderedDict),
    ),
    max_leaves=4,
)


def _alike(element: Any, draw: Any) -> Any:
    """An element of the same structure, of another length here and there."""
    if type(element) is list and element:
        return [
            _alike(draw(st.sampled_from(element)), draw) for _ in range(draw(st.integers(0, 4)))
        ]
    if type(element) is tuple:
        return tuple(_alike(item, draw) for item in element)
    if type(element) is dict:
        return {name: _alike(item, draw) for name, item in element.items()}
    if type(element) is np.ndarray and element.ndim and not draw(st.booleans()):
        return np.repeat(element, draw(st.integers(0, 3)), axis=0)
    if type(element) is int:
        return draw(st.one_of(st.just(element), st.integers(-9, 9)))
    return element


@st.composite
def some_rows(draw: st.DrawFn) -> list[Any]:
    """Rows that are mostly alike."""
    first = draw(_elements)
    rows = [_alike(first, draw) for _ in range(draw(st.integers(1, 7)))]
    if draw(st.integers(0, 3)) == 0:
        rows[draw(st.integers(0, len(rows) - 1))] = draw(_elements)
    return rows


def assert_same(one: Any, other: Any) -> None:
    """Equal, type for type and bit for bit."""
    assert type(one) is type(other)
    if isinstance(one, (np.ndarray, np.generic)):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.dtype.hasobject or one.tobytes() == other.tobytes()
        if isinstance(one, np.ndarray):
            assert one.flags.writeable == other.flags.writeable
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, others in zip(one, other, strict=True):
            assert_same(mine, others)
    elif isinstance(one, dict):
        assert [(type(name), name) for name in one] == [(type(name), name) for name in other]
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, float):
        assert math.copysign(1, one) == math.copysign(1, other)
        assert one == other or (math.isnan(one) and math.isnan(other))
    else:
        assert one == other


def _sent(value: Any) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(pickled, buffers=[memoryview(bytearray(raw.raw())) for raw in buffers])


@tried
@given(some_rows(), st.data())
def test_rows_come_back_as_they_were(rows: list[Any], data: Any) -> None:
    expected = pickle.loads(pickle.dumps(rows, protocol=5))
    packed = pack_values(rows)
    arrived = packed if isinstance(packed, list) else _sent(packed)
    if isinstance(arrived, list):
        assert arrived is rows
        return
    assert isinstance(arrived, RaggedRows) and len(arrived) == len(rows)
    index = data.draw(st.integers(0, len(rows) - 1))
    assert_same(arrived[index], expected[index])
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    assert_same(arrived.part(start, stop).rows(), expected[start:stop])
    again = pack_values(arrived.part(start, stop))
    assert_same(unpack_values(_sent(again)), expected[start:stop])
    chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=3)), np.int64)
    assert_same(arrived.select(chosen).rows(), [expected[at] for at in chosen])
    assert_same(unpack_values(arrived), expected)


_OF_MANY = {
    "arrays": lambda i: np.arange(i % 50, dtype=np.int32),
    "long arrays": lambda i: np.ones(40_000 + i, dtype=np.uint8),
    "dicts of arrays": lambda i: {"x": np.arange(i % 7), "y": np.ones((i % 5, 3))},
    "tuples": lambda i: (np.arange(i % 7), i, float(i), np.float32(i)),
    "lists of numbers": lambda i: {"tokens": list(range(i % 9))},
    "lists of lists": lambda i: [[i] * (i % 3), [i]],
    "bytes": lambda i: {"image": b"x" * (2000 + i), "label": i},
    "texts": lambda i: "a word " * (200 + i),
    "nested": lambda i: {"a": {"b": (np.arange(i % 4),)}, "c": [np.arange(i % 3)]},
}


@pytest.mark.parametrize("kind", _OF_MANY)
def test_nothing_is_pickled_for_each_row(kind: str) -> None:
    def counted(count: int) -> tuple[int, int]:
        buffers: list[Any] = []
        packed = pack_values([_OF_MANY[kind](i) for i in range(count)])
        return len(pickle.dumps(packed, 5, buffer_callback=buffers.append)), len(buffers)

    few, many = counted(20), counted(2000)
    assert many[1] == few[1]  # Arrays.
    assert many[0] < few[0] + 20  # And what is beside them: the counts have more digits.


@pytest.mark.parametrize("kind", _OF_MANY)
def test_arrays_are_made_where_they_are_sent_from(kind: str) -> None:
    arena = Arena(Ring(), 1 << 22)
    rows = [_OF_MANY[kind](i) for i in range(20)]
    packed = pack_values(rows, arena.allocate)
    assert_same(unpack_values(packed), rows)
    buffers: list[Any] = []
    pickle.dumps(packed, 5, buffer_callback=buffers.append)
    large = [np.frombuffer(raw.raw(), np.uint8) for raw in buffers if raw.raw().nbytes > 1000]
    slot = arena.slot  # None where there was nothing to put in it.
    own = [
        array
        for array in large
        if slot is None or not 0 <= array.ctypes.data - slot.address < slot.size
    ]
    # Where rows begin, and Python's numbers, are few bytes.
    assert sum(array.nbytes for array in own) <= 20 * 100


def test_what_is_in_two_places_stays_one() -> None:
    shared = [1, 2, 3]
    rows = [{"a": shared, "b": shared, "at": [i]} for i in range(5)]
    assert pack_values(rows) is rows
    array = np.arange(3)
    assert take_apart([array] * 5) is None
    ring: list[Any] = []
    ring.append(ring)
    assert take_apart([ring, [ring], [ring], [ring]]) is None


def test_few_arrays_stay_as_they_are_and_so_do_large_ones() -> None:
    assert take_apart([np.arange(i) for i in range(3)]) is None
    assert take_apart([{"x": np.ones(20_000), "n": 2}]) is None
    assert take_apart([np.ones(20_000 + i) for i in range(9)]) is None


def test_one_long_list_is_enough() -> None:
    apart = take_apart([{"tokens": list(range(1000))}])
    assert apart is not None and apart.rows() == [{"tokens": list(range(1000))}]
    text = take_apart(["a word " * 1000])
    assert text is not None and isinstance(text.tree, Text)


def test_only_what_is_odd_is_kept() -> None:
    rows = [{"x": np.arange(i), "odd": object} for i in range(5)]
    apart = take_apart(rows)
    assert apart is not None and isinstance(apart.tree, Struct)
    assert [type(column) for column in apart.tree.columns] == [Run, Objects]
    assert_same(apart.rows(), rows)


def test_short_texts_are_pickled_together() -> None:
    apart = take_apart([("word", "long " * 500)] * 4)
    assert apart is not None and [type(part) for part in apart.tree.columns] == [Objects, Text]


def test_they_stack_like_rows() -> None:
    apart = take_apart([{"x": [i, i + 1]} for i in range(4)])
    assert isinstance(apart, Columns) and isinstance(apart.tree.columns[0], Lists)
    assert apart.gather()["x"][1].tolist() == [1, 2, 3, 4]
    unlike = take_apart([np.arange(i) for i in range(4)])
    assert unlike is not None
    with pytest.raises(ValueError, match="needs elements of one shape"):
        unlike.gather()


def test_some_features() -> None:
    apart = take_apart([{"x": [i], "y": np.arange(i), "z": i} for i in range(4)])
    assert apart is not None
    kept = apart.only(["z", "other", "x"])
    assert kept is not None and kept.rows()[2] == {"z": 2, "x": [2]}
    assert list(kept[1]) == ["z", "x"]
    assert apart.only(["other"]) is None
    numbers = take_apart(list(range(4)))
    assert numbers is not None and numbers.only(["x"]) is None


_ODD = {
    "read-only": _read_only(np.arange(3)),
    "not contiguous": np.arange(6)[::2],
    "another type": np.arange(3.0),
    "another byte order": np.arange(3).astype(">i8"),
    "another shape": np.ones((2, 2), np.int64),
    "no axes": np.array(3),
    "a list": [1, 2],
    "nothing": None,
}


@pytest.mark.parametrize("odd", _ODD)
@pytest.mark.parametrize("place", [0, 2])
def test_one_odd_array_keeps_all_as_they_are(odd: str, place: int) -> None:
    rows: list[Any] = [np.arange(i) for i in range(1, 5)]
    rows[place] = _ODD[odd]
    assert pack_values(rows) is rows
    named = [{"x": row, "y": [i]} for i, row in enumerate(rows)]
    apart = take_apart(named)
    assert apart is not None and isinstance(apart.feature("x"), Objects)
    assert_same(apart.rows(), named)


@pytest.mark.parametrize("odd", [True, 2.0, 1 << 63, None, "2", np.int64(2)])
def test_one_odd_number_keeps_lists_as_they_are(odd: Any) -> None:
    rows = [[1, 2], [3], [], [4, odd, 5]]
    assert take_apart(rows) is None
