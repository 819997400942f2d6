"""Python's values of Arrow's arrays, against those that pyarrow makes."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.sources.arrow_python import python_values
from tests.property.profile import tried

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.timestamp("us"): st.datetimes(),
}


def within(described: Any) -> Any:
    """Lists and dicts of what was described: a type, and values of it."""
    kind, values = described
    maybe = st.none() | values
    return st.sampled_from(
        [
            (pa.list_(kind), st.lists(maybe, max_size=4)),
            (pa.large_list(kind), st.lists(values, max_size=4)),
            (pa.list_(kind, 2), st.lists(maybe, min_size=2, max_size=2)),
            (pa.struct({"a": kind}), st.fixed_dictionaries({"a": maybe})),
        ]
    )


TYPES = st.recursive(st.sampled_from(list(LEAVES.items())), lambda inner: inner.flatmap(within))


def types_of(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: types_of(value) for name, value in values.items()}
    return list(map(types_of, values)) if isinstance(values, list) else type(values)


@tried
@given(st.data())
def test_the_values_of_pyarrow(data: st.DataObject) -> None:
    kind, values = data.draw(TYPES)
    array = pa.array(data.draw(st.lists(st.none() | values, max_size=8)), kind)
    start = data.draw(st.integers(0, len(array)))
    count = data.draw(st.integers(0, len(array)))
    for part in (array, array.slice(start, count), array.slice(start).slice(0, count)):
        found = python_values(part)
        assert found == part.to_pylist()
        assert types_of(found) == types_of(part.to_pylist())


@pytest.mark.parametrize(
    "array",
    [
        pa.array([{}, None], pa.struct([])),
        pa.StructArray.from_arrays([pa.array([1.5])], ["x"]).slice(1),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([1.5, None], pa.float16()),
        pa.nulls(3),
    ],
    ids=lambda array: str(array.type),
)
def test_other_kinds(array: Any) -> None:
    assert python_values(array) == array.to_pylist()
    assert types_of(python_values(array)) == types_of(array.to_pylist())
