"""`tf.train.Example` without TensorFlow, compared with TensorFlow."""

import functools
import os
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.core.stack import stack
from bushel.errors import PlanError, RecordError
from bushel.sources import encode_example, parse_example, parse_sequence_example
from bushel.sources.tfrecord.example import check_features
from bushel.sources.tfrecord.example_columns import parse_columns
from bushel.sources.tfrecord.varints import (
    by_loop,
    by_numpy,
    by_protobuf,
    encoded_varint,
    varints_of,
)
from tests.grain.oracle import assert_same
from tests.property.profile import tried
from tests.sources.example_messages import messages
from tests.thorough import THOROUGH

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class _TensorFlow:
    """Imported by the first test that asks; whoever only collects tests does not wait for it."""

    @functools.cached_property
    def train(self) -> Any:
        return pytest.importorskip("tensorflow").train if THOROUGH else messages()


tf = _TensorFlow()

INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32, allow_nan=False)
VALUES = st.one_of(
    st.lists(st.binary(max_size=20), min_size=1, max_size=6),
    st.lists(INTS, min_size=1, max_size=40),
    st.lists(st.integers(0, 300), min_size=1, max_size=40),
    st.lists(FLOATS, min_size=1, max_size=6),
)
EXAMPLES = st.dictionaries(st.text(max_size=6), VALUES, max_size=5)


def feature(values: list[Any]) -> Any:
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def tensorflows(example: dict[str, list[Any]]) -> Any:
    features = {name: feature(values) for name, values in example.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


def parsed(values: list[Any]) -> Any:
    if not values or isinstance(values[0], bytes):
        return values
    return np.array(values, np.float32 if isinstance(values[0], float) else np.int64)


@tried
@given(EXAMPLES)
def test_what_tensorflow_writes_is_read(example: dict[str, list[Any]]) -> None:
    data = tensorflows(example).SerializeToString()
    read = parse_example(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bushel.sources.tfrecord.example.quickly_parsed", lambda *_: None)
        assert_same(parse_example(data), read)
    assert read.keys() == example.keys()
    for name, values in example.items():
        assert_same(read[name], parsed(values))


@tried
@given(EXAMPLES)
def test_tensorflow_reads_what_is_written(example: dict[str, list[Any]]) -> None:
    assert tf.train.Example.FromString(encode_example(example)) == tensorflows(example)


@tried
@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read(data: bytes) -> None:
    for parse in (parse_example, parse_sequence_example):
        try:
            parse(data)
        except RecordError as error:
            assert str(error)


@tried
@given(EXAMPLES, st.data())
def test_a_piece_of_an_example_is_no_example(example: dict[str, list[Any]], data: Any) -> None:
    """Cut within, it is refused, or the fields of another number are passed over."""
    whole = encode_example(example)
    cut = data.draw(st.integers(1, len(whole)))
    if cut < len(whole):
        with pytest.raises(RecordError, match="cut short"):
            parse_example(whole[:cut])


def packed(value: bytes) -> bytes:
    """A field of bytes with the number 1."""
    return b"\x0a" + bytes([len(value)]) + value


def with_feature(feature: bytes) -> bytes:
    return packed(packed(packed(b"a") + b"\x12" + bytes([len(feature)]) + feature))


# As TensorFlow reads them, though it does not write them so.
ODD = {
    "integers one by one": b"\x1a\x05\x08\x01\x08\xac\x02",
    "integers in two packs": b"\x1a\x07\x0a\x01\x05\x0a\x02\xac\x02",
    "integers in two lists": b"\x1a\x03\x0a\x01\x05\x1a\x03\x0a\x01\x06",
    "floats one by one": b"\x12\x0a\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40",
    "another kind after it": b"\x1a\x03\x0a\x01\x05\x0a\x03\x0a\x01x",
    "no values": b"\x1a\x00",
    "no kind": b"",
    "a negative number": b"\x1a\x0c\x0a\x0a" + b"\xff" * 9 + b"\x01",
    "a group that nobody knows": b"\x7b\x08\x01\x0b\x0c\x7c\x1a\x03\x0a\x01\x05",
    "numbers that nobody knows": b"\x50\x96\x01\x59" + bytes(8) + b"\x1a\x03\x0a\x01\x05",
}


@pytest.mark.parametrize("written", ODD.values(), ids=ODD.keys())
def test_odd_spellings(written: bytes) -> None:
    data = with_feature(written)
    theirs = tf.train.Example.FromString(data).features.feature["a"]
    kind = theirs.WhichOneof("kind")
    expected = list(getattr(theirs, kind).value) if kind else []
    dtype = {"int64_list": np.int64, "float_list": np.float32}.get(kind)
    found = parse_example(data)["a"]
    assert_same(found, expected if dtype is None else np.array(expected, dtype))


BROKEN = {
    "a length without end": (b"\x0a" + b"\xff" * 11, "more than ten bytes"),
    "an end without beginning": (b"\x0c", "byte 0 of it is no field"),
    "a field without number": (b"\x02\x00", "number 0"),
    "cut short": (b"\x0a\x05ab", "cut short"),
    "a number for a message": (b"\x08\x01", "should be a message, and is 1"),
    "floats of three bytes": (with_feature(b"\x12\x05\x0a\x03abc"), "'a' has float32 values"),
    "an integer cut short": (with_feature(b"\x1a\x03\x0a\x01\x80"), "ends within one"),
    "a name that is no text": (packed(packed(packed(b"\xff"))), "name of a feature is no text"),
}


@pytest.mark.parametrize(("data", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_wrong_is_told(data: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words) as caught:
        parse_example(data)
    assert isinstance(caught.value, ValueError)


EXAMPLE = encode_example({"x": [1.0, 2.0, 3.0, 4.0], "n": 7, "b": [b"a", b"b"], "none": []})


def test_features_are_chosen_and_shaped() -> None:
    assert_same(parse_example(EXAMPLE, ["n"]), {"n": np.array([7])})
    features = {"x": (np.float32, (2, 2)), "n": (int, ()), "b": bytes, "none": int}
    assert_same(
        parse_example(EXAMPLE, features),
        {
            "x": np.array([[1, 2], [3, 4]], np.float32),
            "n": np.int64(7),
            "b": [b"a", b"b"],
            "none": np.empty(0, np.int64),
        },
    )


WRONG_FEATURES: dict[str, tuple[Any, str]] = {
    "missing": ({"y": int}, "there is no feature 'y'"),
    "of another kind": ({"x": int}, "'x' is float32, and not int64"),
    "too few": ({"x": (float, (5,))}, r"'x' has 4 values, and the shape \(5,\) takes 5"),
    "not one": ({"b": (bytes, ())}, "'b' has 2 values"),
}


@pytest.mark.parametrize(("features", "words"), WRONG_FEATURES.values(), ids=WRONG_FEATURES.keys())
def test_examples_without_the_features(features: Any, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        parse_example(EXAMPLE, features)


@pytest.mark.parametrize("spec", [np.float64, "image", (int, "x"), np.uint8, object, (int,)])
def test_features_that_there_cannot_be(spec: Any) -> None:
    with pytest.raises(PlanError, match="the feature 'x' cannot be"):
        parse_example(EXAMPLE, {"x": spec})
    with pytest.raises(PlanError, match=re.escape("give `['x']`")):
        parse_example(EXAMPLE, "x")


def test_anything_that_fits_is_written() -> None:
    written = encode_example(
        {
            "text": "grün",
            "texts": ["a", b"b"],
            "flag": True,
            "matrix": np.arange(4, dtype=np.uint8).reshape(2, 2),
            "half": np.array([0.5], np.float16),
            "empty": np.empty(0, np.float64),
            "names": np.array(["x", "y"]),
        }
    )
    assert_same(
        parse_example(written),
        {
            "text": ["grün".encode()],
            "texts": [b"a", b"b"],
            "flag": np.array([1]),
            "matrix": np.arange(4),
            "half": np.array([0.5], np.float32),
            "empty": np.empty(0, np.float32),
            "names": [b"x", b"y"],
        },
    )


@pytest.mark.parametrize("value", [None, {"a": 1}, 2**63, 1j, [1, b"a"], np.uint64(2**63)])
def test_what_an_example_cannot_hold(value: Any) -> None:
    with pytest.raises(RecordError, match="the feature 'x' is"):
        encode_example({"x": value})


NUMBERS = st.tuples(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300), min_size=2, max_size=2),
    st.lists(FLOATS, min_size=3, max_size=3),
    st.binary(max_size=3),
)


@tried
@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_many_at_once(examples: list[tuple[list[int], list[float], bytes]]) -> None:
    """They come as a stack of what comes one by one, or not at all."""
    written = [
        encode_example({"n": numbers, "b": data, "x": floats}) for numbers, floats, data in examples
    ]
    features = check_features({"x": (float, (3, 1)), "n": (int, (2,))})
    assert features is not None
    columns = parse_columns(written, features.shapes() or {})
    if columns is not None:
        assert_same(columns, stack([parse_example(example, features) for example in written]))


def test_many_alike_are_read_at_once() -> None:
    written = [encode_example({"n": [number, 7], "x": 1.5}) for number in range(-5, 1000)]
    features = check_features({"n": (int, (2,)), "x": (float, ())})
    assert features is not None
    columns = parse_columns(written, features.shapes() or {})
    assert columns is not None
    assert columns["n"].tolist() == [[number, 7] for number in range(-5, 1000)]
    assert columns["x"].shape == (1005,)


@pytest.mark.parametrize(
    "odd", [{"n": 1}, {"n": [1, 2, 3], "x": 1.0}, {"n": 1.0, "x": 1.0}, {"n": [1, 2]}, {}]
)
def test_one_that_is_wrong_is_left_to_be_told(odd: dict[str, Any]) -> None:
    written = [encode_example({"n": [1, 2], "x": 1.5})] * 3 + [encode_example(odd)]
    features = check_features({"n": (int, (2,)), "x": (float, ())})
    assert features is not None
    assert parse_columns(written, features.shapes() or {}) is None
    with pytest.raises(RecordError):
        parse_example(written[-1], features)


def test_sequences() -> None:
    lists: dict[str, list[list[Any]]] = {"tokens": [[1, 2], [3]], "names": [[b"a"], []]}
    feature_lists = {
        name: tf.train.FeatureList(feature=[feature(values) for values in rows])
        for name, rows in lists.items()
    }
    written = tf.train.SequenceExample(
        context=tf.train.Features(feature={"length": feature([2])}),
        feature_lists=tf.train.FeatureLists(feature_list=feature_lists),
    ).SerializeToString()
    context, found = parse_sequence_example(written)
    assert_same(context, {"length": np.array([2])})
    assert_same(found["tokens"], [np.array([1, 2]), np.array([3])])
    assert found["names"] == [[b"a"], []]


# Lists of integers are read in three ways.

LISTS = st.lists(st.one_of(INTS, st.integers(0, 300)), min_size=1, max_size=60)


def _ways() -> list[Any]:
    library = by_protobuf()
    return [by_loop, by_numpy, varints_of, *([library] if library is not None else [])]


@tried
@given(LISTS)
def test_lists_of_integers_however_they_are_read(values: list[int]) -> None:
    data = b"".join(encoded_varint(value % 2**64) for value in values)
    for read in _ways():
        found = read(data)
        assert found.dtype == np.int64 and found.tolist() == values, read


def test_protobuf_reads_lists_where_it_hands_them_to_numpy() -> None:
    protobuf = pytest.importorskip("google.protobuf")
    assert (by_protobuf() is not None) == (int(protobuf.__version__.split(".")[0]) >= 7)


@pytest.mark.parametrize("count", [1, 40])
def test_integers_of_ten_bytes_have_64_bits(count: int) -> None:
    # The tenth byte has room for seven, of which one counts.
    data = (b"\x81" + b"\x80" * 8 + b"\x7f") * count
    for read in _ways():
        assert read(data).tolist() == [1 - 2**63] * count, read


@pytest.mark.parametrize("before", [0, 50])
def test_integers_of_more_than_ten_bytes_are_damage(before: int) -> None:
    data = bytes([0x90, 1]) * before + b"\x80" * 10 + b"\x01"
    for read in _ways():
        with pytest.raises(RecordError, match="more than ten bytes"):
            read(data)
    with pytest.raises(RecordError, match="ends within one"):
        varints_of(data[:-1])
