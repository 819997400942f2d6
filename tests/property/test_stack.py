"""Stacking is `numpy.stack`, leaf by leaf."""

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bushel.core.block import Columns, unstack
from bushel.core.stack import stack
from bushel.core.tree import leaves_with_paths, map_leaves
from tests.contract.events import freeze
from tests.property.profile import tried

Point = namedtuple("Point", "x y")

_NUMBERS = ("bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64")
_dtypes = st.sampled_from([*_NUMBERS, "complex64", "datetime64[s]", "S3", "U3", ">i4"])
_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
_leaf_kinds = st.one_of(
    st.tuples(st.just("array"), _dtypes, _shapes),
    st.tuples(st.just("scalar"), _dtypes, st.just(())),
    st.tuples(st.sampled_from(["int", "float", "bool", "str", "bytes"]), st.just(""), st.just(())),
)
_outlines = st.recursive(
    _leaf_kinds,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(OrderedDict),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: ["list", *items]),
        st.tuples(inner, inner).map(lambda items: Point(*items)),
        st.none(),
    ),
    max_leaves=5,
)


def _element(outline: Any, rng: np.random.Generator) -> Any:
    """Makes an element of a given structure."""
    if outline is None:
        return None
    if isinstance(outline, dict):
        return type(outline)((name, _element(inner, rng)) for name, inner in outline.items())
    if isinstance(outline, list):
        return [_element(inner, rng) for inner in outline[1:]]
    if isinstance(outline, Point):
        return Point(*(_element(inner, rng) for inner in outline))
    kind, dtype, shape = outline
    if kind in ("array", "scalar"):
        array = rng.integers(0, 100, size=shape).astype("int64").astype(np.dtype(dtype))
        return np.asarray(array) if kind == "array" else np.asarray(array)[()]
    number = int(rng.integers(0, 100))
    return {"int": int, "float": float, "bool": bool, "str": str, "bytes": lambda n: b"%d" % n}[
        kind
    ](number)


@given(_outlines, st.integers(1, 5), st.integers(0, 2**32 - 1))
@tried
def test_stack_is_numpy_stack_of_leaves(outline: Any, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [_element(outline, rng) for _ in range(count)]
    leaves = [[leaf for _, leaf in leaves_with_paths(row)] for row in rows]
    expected = iter([np.stack(column) for column in zip(*leaves, strict=True)])
    assert freeze(stack(rows)) == freeze(map_leaves(lambda _: next(expected), rows[0]))


@given(_outlines.filter(lambda outline: outline is not None), st.integers(1, 5), st.integers(0, 99))
@tried
def test_unstack_undoes_stack(outline: Any, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [_element(outline, rng) for _ in range(count)]
    again = stack(unstack(stack(rows), count))
    assert [path for path, _ in leaves_with_paths(again)] == [
        path for path, _ in leaves_with_paths(stack(rows))
    ]
    for (_, one), (_, other) in zip(
        leaves_with_paths(again), leaves_with_paths(stack(rows)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@given(st.lists(st.integers(0, 19), max_size=30), st.data())
@tried
def test_columns_are_lists(keys: list[int], data: st.DataObject) -> None:
    table = {"a": np.arange(20) * 10, "b": (np.arange(40).reshape(20, 2),)}
    rows = [{"a": table["a"][key], "b": (table["b"][0][key],)} for key in keys]
    columns = Columns(table, np.array(keys, dtype=np.int64))
    assert len(columns) == len(keys)
    assert [freeze(row) for row in columns.rows()] == [freeze(row) for row in rows]
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 30), st.integers(0, 30))))
    assert [freeze(r) for r in columns.part(start, stop).rows()] == [
        freeze(r) for r in rows[start:stop]
    ]
    gathered = Columns(columns.gather(), None, len(keys))
    assert [freeze(r) for r in gathered.part(start, stop).rows()] == [
        freeze(r) for r in rows[start:stop]
    ]
    if keys:
        picks = data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=9))
        for source in (columns, gathered):
            selected = source.select(np.array(picks, dtype=np.int64)).rows()
            assert [freeze(r) for r in selected] == [freeze(rows[pick]) for pick in picks]
