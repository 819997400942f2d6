"""`tf.train.Example`: read and written without TensorFlow.

Example         1: Features
Features        1: entries of 1: name, 2: Feature
Feature         1: bytes, 2: floats, 3: integers; in each 1: values
SequenceExample 1: Features (the context), 2: entries of 1: name, 2: 1: Features, in order
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from bushel.errors import PlanError, RecordError
from bushel.sources.tfrecord.example_quick import FLOATS, INTS, quickly_parsed
from bushel.sources.tfrecord.example_wire import (
    Bytes,
    Fields,
    encoded_field,
    fields_of,
)
from bushel.sources.tfrecord.varints import encoded_varint, varints_of

# By name: the kind of values; or kind and shape, for arrays or single values.
Features: TypeAlias = Mapping[str, Any] | Iterable[str]

_BYTES, _FLOATS, _INTS = 1, 2, 3
_KINDS = {_BYTES: "bytes", _FLOATS: "float32", _INTS: "int64"}
_EMPTY = b""


_TAGS = {_FLOATS: FLOATS, _INTS: INTS}


class _WantedFeatures:
    """The wanted features, checked once."""

    def __init__(self, features: Features) -> None:
        self.specs: dict[str, tuple[int, tuple[int, ...] | None] | None] = {}
        if isinstance(features, Mapping):
            for name, spec in features.items():
                self.specs[name] = _spec(name, spec)
        else:
            self.specs = dict.fromkeys(features)

    def shapes(self) -> dict[str, tuple[int, tuple[int, ...]]] | None:
        """The shapes for `parse_columns`; None if features are not arrays of one shape."""
        found = {}
        for name, spec in self.specs.items():
            if spec is None or spec[1] is None or spec[0] not in _TAGS:
                return None
            found[name] = _TAGS[spec[0]], spec[1]
        return found or None


def check_features(features: Features | None) -> "_WantedFeatures | None":
    """Checks the argument of `parse_example` once, so that this is not needed for each record."""
    if features is None or isinstance(features, _WantedFeatures):
        return features
    if isinstance(features, (str, bytes)):
        raise PlanError(f"`features` are several, and not {features!r}: give `[{features!r}]`.")
    return _WantedFeatures(features)


def _spec(name: str, spec: Any) -> tuple[int, tuple[int, ...] | None] | None:
    if spec is None:
        return None
    kind, shape = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, None)
    try:
        dtype = np.dtype(kind)
        code = {"i": _INTS, "f": _FLOATS, "S": _BYTES}[dtype.kind]
        exact = kind in (int, float, bytes) or dtype in (np.int64, np.float32)
        whole = None if shape is None else tuple(int(length) for length in shape)
    except (TypeError, KeyError, ValueError):
        code, exact, whole = 0, False, None
    if not exact:
        raise PlanError(
            f"the feature {name!r} cannot be {spec!r}. Features have the type `bytes`, "
            "`np.float32` (or `float`) or `np.int64` (or `int`): give a type for any number of "
            "values, or a type and a shape, as `(np.float32, (28, 28))`, or `(int, ())` for one."
        )
    return code, whole


def parse_example(data: Bytes, features: Any = None) -> dict[str, Any]:
    """Reads the features of a serialised `tf.train.Example`.

    Integers and floats become arrays of int64 and float32, bytes become lists.

    >>> parse_example(encode_example({"x": [1.5, 2.5], "label": 3, "name": b"cat"}))
    {'x': array([1.5, 2.5], dtype=float32), 'label': array([3]), 'name': [b'cat']}
    >>> parse_example(encode_example({"x": [1, 2, 3, 4], "y": 5}), {"x": (int, (2, 2))})
    {'x': array([[1, 2], [3, 4]])}

    Args:
        features: Which ones are wanted, all if None: their names; or by name the kind of their
            values (`int`, `float` or `bytes`), alone for any number of them, or with a shape,
            `(float, (28, 28))`. With the shape `()` a feature is one value.
    """
    if not isinstance(data, bytes):
        data = bytes(data)
    wanted = check_features(features)
    specs = None if wanted is None else wanted.specs
    found = quickly_parsed(data, specs)
    if found is None:
        found = {}
        for number, value in fields_of(data, "Example"):
            if number == 1:
                _read_features(value, found, specs)
    if specs is None:
        return found
    return {name: _shaped(name, spec, found) for name, spec in specs.items()}


def parse_sequence_example(data: Bytes) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Reads a serialised `tf.train.SequenceExample`: its context, and its lists by name."""
    context: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {}
    for number, value in fields_of(data, "SequenceExample"):
        if number == 1:
            _read_features(value, context, None)
        elif number == 2:
            for inner, entry in fields_of(value, "FeatureLists"):
                if inner == 1:
                    name, feature_list = _entry(entry)
                    lists[name] = [
                        _values(feature, name)
                        for kind, feature in fields_of(feature_list, "FeatureList")
                        if kind == 1
                    ]
    return context, lists


def _read_features(data: Any, found: dict[str, Any], specs: Mapping[str, Any] | None) -> None:
    for number, entry in fields_of(data, "Features"):
        if number == 1:
            name, feature = _entry(entry)
            if specs is None or name in specs:
                found[name] = _values(feature, name)


def _entry(data: Any) -> tuple[str, Bytes]:
    name, feature = _EMPTY, _EMPTY
    for number, value in fields_of(data, "entry"):
        if number == 1:
            name = value
        elif number == 2:
            feature = value
    try:
        return str(name, "utf-8"), feature
    except (UnicodeDecodeError, TypeError):
        raise RecordError(f"the name of a feature is no text: {name!r:.100}.") from None


def _values(feature: Bytes, name: str) -> Any:
    """The values of a feature; of several kinds of values the last one counts."""
    kind, parts = 0, Fields()
    for number, value in fields_of(feature, name):
        if number in _KINDS:
            if number != kind:
                kind, parts = number, Fields()
            parts += fields_of(value, name)
    values = [value for number, value in parts if number == 1]
    if kind == _BYTES:
        if not all(isinstance(value, bytes) for value in values):
            raise RecordError(f"the feature {name!r} has bytes that are none.")
        return values
    try:
        if kind == _FLOATS:
            return _floats(values)
        if kind == _INTS:
            return _ints(values)
    except (ValueError, TypeError) as error:
        raise RecordError(
            f"the feature {name!r} has {_KINDS[kind]} values that are none: {error}"
        ) from None
    return []


def _floats(values: list[Any]) -> Any:
    # Packed into one, or each by itself; four bytes each in any case.
    joined = values[0] if len(values) == 1 else b"".join(values)
    return np.frombuffer(joined, dtype="<f4").astype(np.float32, copy=True)


def _ints(values: list[Any]) -> Any:
    if len(values) == 1 and isinstance(values[0], bytes):
        return varints_of(values[0])
    parts = [
        varints_of(value) if isinstance(value, bytes) else np.array([value], np.uint64)
        for value in values
    ]
    if not parts:
        return np.empty(0, dtype=np.int64)
    return np.concatenate([part.view(np.int64) for part in parts])


def _shaped(name: str, spec: tuple[int, tuple[int, ...] | None] | None, found: Any) -> Any:
    values = found.get(name)
    if values is None:
        raise RecordError(f"there is no feature {name!r}.")
    if spec is None:
        return values
    code, shape = spec
    kind = _INTS if getattr(values, "dtype", None) == np.int64 else _FLOATS
    if isinstance(values, list):
        kind = _BYTES
        if not values and code != _BYTES:  # A feature without values is of every kind.
            values, kind = np.empty(0, np.int64 if code == _INTS else np.float32), code
    if kind != code:
        raise RecordError(f"the feature {name!r} is {_KINDS[kind]}, and not {_KINDS[code]}.")
    if shape is None:
        return values
    if len(values) != math.prod(shape):
        raise RecordError(
            f"the feature {name!r} has {len(values)} values, and the shape {shape} takes "
            f"{math.prod(shape)}."
        )
    if shape == ():
        return values[0]
    if kind == _BYTES:
        return values if len(shape) == 1 else np.array(values, dtype=object).reshape(shape)
    return values.reshape(shape)


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Writes a `tf.train.Example`: what `parse_example` reads.

    Values are bytes, strings (written as UTF-8), whole numbers and booleans, floats, or
    sequences and arrays of them, which lose their shape.

    >>> encode_example({"a": 1}).hex(" ")
    '0a 0c 0a 0a 0a 01 61 12 05 1a 03 0a 01 01'
    """
    entries = []
    for name, value in features.items():
        if not isinstance(name, str):
            raise RecordError(f"features go by their names, and {name!r} is none.")
        feature = _encoded_feature(name, value)
        entry = encoded_field(1, name.encode()) + encoded_field(2, feature)
        entries.append(encoded_field(1, entry))
    return encoded_field(1, b"".join(entries))


def _encoded_feature(name: str, value: Any) -> bytes:
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    try:
        array = np.asarray(value)
        if array.dtype.kind in "SU" and not isinstance(value, np.ndarray):
            # numpy drops zeros at the end of bytes, and converts numbers beside text to text.
            array = np.asarray(value, dtype=object)
    except ValueError:  # It has sequences of different lengths.
        array = np.array(None, dtype=object)
    flat = array.ravel()
    if array.dtype.kind in "SU" or (
        array.dtype.kind == "O" and all(isinstance(item, (bytes, str)) for item in flat)
    ):
        return _encoded_bytes(flat.tolist())
    if not len(flat) and not isinstance(value, np.ndarray):
        return b""  # Of no kind, since it has no values.
    if array.dtype.kind in "bi" or (array.dtype.kind == "u" and not (flat > _LAST).any()):
        varints = b"".join(map(encoded_varint, flat.astype(np.int64).view(np.uint64).tolist()))
        return encoded_field(_INTS, encoded_field(1, varints) if len(flat) else b"")
    if array.dtype.kind == "f":
        floats = flat.astype("<f4").tobytes()
        return encoded_field(_FLOATS, encoded_field(1, floats) if len(flat) else b"")
    raise RecordError(
        f"the feature {name!r} is {value!r:.100}, and an Example holds bytes, strings, 64-bit "
        "integers and floats, and sequences of one of these."
    )


_LAST = np.iinfo(np.int64).max


def _encoded_bytes(values: Iterable[Any]) -> bytes:
    items = [value.encode() if isinstance(value, str) else bytes(value) for value in values]
    return encoded_field(_BYTES, b"".join([encoded_field(1, item) for item in items]))
