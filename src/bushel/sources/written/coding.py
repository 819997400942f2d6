"""The elements of `ds.write` to records of a format and back: what each format can hold exactly.

    arrayrecord, tfrecord   bytes as they are, text in UTF-8, all else as a tf.train.Example
    parquet, arrow          a row of a table, with a column for each field
    tar                     a sample, with a file for each field
    jsonl                   a line
    tokens                  an array of whole numbers, one after the other

If the format has fewer types than Python (an Example has 64-bit integers and 32-bit floats), the
layout in the manifest has the rest. Elements that could not be restored exactly are refused.
"""

import base64
import binascii
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from bushel.core.frozen import frozen
from bushel.sources.tfrecord.example import encode_example, parse_example
from bushel.sources.written.element_layout import ElementLayout, Field, MisfitError, has_shape

_INT64 = range(-(2**63), 2**63)
# Types of arrays whose values all fit into a table, JSON or an Example.
_NUMBERS = "biuf"
# The key of a sample, which is a name beside the others.
_KEY = "__key__"


@frozen
class Coding:
    """How the elements of a layout become records, and records elements."""

    # Arguments: an element, and its position in the dataset.
    encode: Callable[[Any, int], Any]
    decode: Callable[[Any], Any]
    # The columns of tables: name, kind and type of each.
    columns: tuple[tuple[str, str, "np.dtype[Any] | None"], ...] = ()


def coding_of(format: str, layout: ElementLayout) -> Coding:
    """The coding of a format; raises a MisfitError if it cannot hold elements of this layout."""
    return _CODINGS[format](layout)


def _value(field: Field, value: Any) -> Any:
    """Restores a value from what a file has for it."""
    if field.kind == "int":
        return int(value)
    if field.kind == "float":
        return float(value)
    if field.kind == "bool":
        return bool(value)
    if field.kind == "scalar":
        assert field.dtype is not None
        return np.array(value, dtype=field.dtype)[()]
    return value


def _check_int(field: Field, value: int) -> int:
    if value not in _INT64:
        raise MisfitError(field.name, f"is {value}, which is no 64-bit integer")
    return value


def _check_text(field: Field, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise MisfitError(field.name, f"is text that UTF-8 cannot say: {error.reason}") from None


def _check_names(layout: ElementLayout) -> None:
    for field in layout.fields:
        try:
            field.name.encode()
        except UnicodeEncodeError:
            raise MisfitError(field.name, "is a name that UTF-8 cannot say") from None


def json_text(value: Any) -> str:
    """A value of a "json" field as text."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _check_numbers(layout: ElementLayout, format: str, most_bytes: int = 16) -> None:
    for field in layout.fields:
        if field.dtype is not None and (
            field.dtype.kind not in _NUMBERS or field.dtype.itemsize > most_bytes
        ):
            raise MisfitError(
                field.name,
                f"is {field}, which {format} cannot hold: make it an array of numbers, or text, or "
                "write a tar file",
            )


# Records of bytes.


def _of_bytes(layout: ElementLayout) -> Coding:
    (field, *more) = layout.fields or (None,)
    if layout.is_one and field is not None and not more:
        if field.kind == "bytes":
            return Coding(lambda element, _: field.check(element), bytes)
        if field.kind == "text":
            return Coding(
                lambda element, _: _check_text(field, field.check(element)),
                lambda record: str(record, "utf-8"),
            )
    _check_names(layout)
    _check_numbers(layout, "an Example")
    raw = [_is_raw(field) for field in layout.fields]

    def encode(element: Any, _: int) -> bytes:
        features: dict[str, Any] = {}
        for field, value, as_bytes in zip(layout.fields, layout.values(element), raw, strict=True):
            if as_bytes:
                features[field.name] = np.ascontiguousarray(value).tobytes()
            elif field.kind == "text":
                features[field.name] = _check_text(field, value)
            elif field.kind == "json":
                features[field.name] = json_text(value)
            elif field.kind == "int":
                features[field.name] = _check_int(field, value)
            else:
                features[field.name] = value
            if has_shape(field):
                features[f"{field.name}/shape"] = np.array(value.shape, dtype=np.int64)
        return encode_example(features)

    def decode(record: bytes) -> Any:
        features = parse_example(record)
        return layout.element(
            [
                _feature(field, features, as_bytes)
                for field, as_bytes in zip(layout.fields, raw, strict=True)
            ]
        )

    return Coding(encode, decode)


def _is_raw(field: Field) -> bool:
    """Whether a field is written as its bytes: no list of an Example has all of its values."""
    if field.kind == "float":
        return True
    return field.dtype is not None and (
        field.dtype == np.uint64 or (field.dtype.kind == "f" and field.dtype.itemsize > 4)
    )


def _feature(field: Field, features: dict[str, Any], as_bytes: bool) -> Any:
    found = features[field.name]
    if as_bytes:
        flat = np.frombuffer(found[0], np.float64 if field.dtype is None else field.dtype)
    elif field.kind in ("bytes", "text", "json"):
        (data,) = found
        if field.kind == "bytes":
            return data
        return json.loads(data) if field.kind == "json" else str(data, "utf-8")
    else:
        # (A list without values is of no type.)
        flat = np.asarray(found if len(found) else np.empty(0), field.dtype)
    if field.kind != "array":
        return _value(field, flat[0])
    shape = features[f"{field.name}/shape"] if has_shape(field) else flat.shape
    # A copy, as the memory of a record is read-only.
    return np.array(flat, dtype=field.dtype).reshape(np.asarray(shape, dtype=np.int64).tolist())


# Rows of tables.


def _of_rows(layout: ElementLayout) -> Coding:
    _check_names(layout)
    _check_numbers(layout, "a table", most_bytes=8)
    columns: list[tuple[str, str, np.dtype[Any] | None]] = []
    for field in layout.fields:
        dtype = None if field.dtype is None else field.dtype.newbyteorder("=")
        columns.append((field.name, field.kind, dtype))
        if has_shape(field):
            columns.append((f"{field.name}/shape", "array", np.dtype(np.int64)))
    if not columns:
        raise MisfitError("", "has no field, and a table without columns has no rows")

    def encode(element: Any, _: int) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for field, value in zip(layout.fields, layout.values(element), strict=True):
            if field.kind == "array":
                row[field.name] = value.astype(value.dtype.newbyteorder("="), copy=False).ravel()
                if has_shape(field):
                    row[f"{field.name}/shape"] = np.array(value.shape, dtype=np.int64)
            elif field.kind == "scalar":
                row[field.name] = value.astype(value.dtype.newbyteorder("="))
            elif field.kind == "json":
                row[field.name] = json_text(value)
            elif field.kind == "int":
                row[field.name] = _check_int(field, value)
            else:
                if field.kind == "text":
                    _check_text(field, value)
                row[field.name] = value
        return row

    def decode(row: dict[str, Any]) -> Any:
        values = []
        for field in layout.fields:
            value = row[field.name]
            if field.kind == "array":
                # A copy, as the memory of a table is read-only.
                value = np.array(value, dtype=field.dtype)
                if has_shape(field):
                    value = value.reshape(np.asarray(row[f"{field.name}/shape"], np.int64).tolist())
            elif field.kind == "json":
                value = json.loads(value)
            values.append(_value(field, value))
        return layout.element(values)

    return Coding(encode, decode, tuple(columns))


# Samples of tar files.

# The ending of a file's name, if the name of the field does not tell how to read it.
_ENDINGS = {
    "array": "npy",
    "scalar": "npy",
    "int": "cls",
    "float": "json",
    "bool": "json",
    "text": "txt",
    "json": "json",
}


def _of_samples(layout: ElementLayout) -> Coding:
    endings: list[str | None] = []
    for field in layout.fields:
        if field.path == (_KEY,) and field.kind == "text":
            endings.append(None)
            continue
        if field.name.startswith("__") or "\0" in field.name:
            raise MisfitError(field.name, "has a name that a tar file cannot have")
        if field.dtype is not None and field.dtype.hasobject:
            raise MisfitError(field.name, f"is {field}, which a tar file cannot hold")
        wanted = _ENDINGS.get(field.kind)
        named = wanted is None or field.name.rsplit(".", 1)[-1] == wanted
        ending = (field.name if named else f"{field.name}.{wanted}").replace("/", "%2F")
        # Readers do not distinguish upper and lower case.
        if any(ending.lower() == (other or "").lower() for other in endings):
            raise MisfitError(field.name, f"would be {ending!r} in a tar file, as another field is")
        endings.append(ending)
    if not any(endings):
        raise MisfitError("", "has no field, and a sample of a tar file without files is none")

    def encode(element: Any, position: int) -> list[tuple[str, bytes]]:
        key, members = f"{position:09d}", []
        for field, value, ending in zip(
            layout.fields, layout.values(element), endings, strict=True
        ):
            if ending is None:
                key = _checked_key(field, value)
            else:
                members.append((ending, _member(field, value)))
        return [(f"{key}.{ending}", data) for ending, data in members]

    def decode(sample: dict[str, Any]) -> Any:
        return layout.element(
            [
                sample[_KEY].replace("%2E", ".")
                if ending is None
                else _of_member(field, bytes(sample[ending.lower()]))
                for field, ending in zip(layout.fields, endings, strict=True)
            ]
        )

    return Coding(encode, decode)


def _checked_key(field: Field, key: str) -> str:
    """A key as the beginning of file names: a dot in the last part would end it."""
    folder, slash, name = key.rpartition("/")
    _check_text(field, key)
    if not name or "%2E" in key or "\0" in key or key.startswith("/"):
        raise MisfitError(
            field.name, f"is {key!r:.100}, which the name of a file cannot begin with"
        )
    return folder + slash + name.replace(".", "%2E")


def _member(field: Field, value: Any) -> bytes:
    if field.kind == "bytes":
        return bytes(value)
    if field.kind == "text":
        return _check_text(field, value)
    if field.kind in ("array", "scalar"):
        buffer = io.BytesIO()
        np.save(buffer, value, allow_pickle=False)
        return buffer.getvalue()
    return str(value).encode() if field.kind == "int" else json_text(_finite(field, value)).encode()


def _of_member(field: Field, data: bytes) -> Any:
    if field.kind == "bytes":
        return data
    if field.kind == "text":
        return str(data, "utf-8")
    if field.kind in ("array", "scalar"):
        # Not `allow_pickle`: data must not run programs.
        value = np.load(io.BytesIO(data), allow_pickle=False)
        # (Types that numpy does not know come back as bytes.)
        value = value if value.dtype == field.dtype else value.view(field.dtype)
        return value if field.kind == "array" else value[()]
    return json.loads(data)


def _finite(field: Field, value: Any) -> Any:
    if field.kind == "float" and not np.isfinite(value):
        raise MisfitError(field.name, f"is {value}, which JSON cannot say")
    return value


# Lines of JSON.


def _of_lines(layout: ElementLayout) -> Coding:
    _check_numbers(layout, "JSON", most_bytes=8)

    def encode(element: Any, _: int) -> bytes:
        values = [
            _as_json(field, value)
            for field, value in zip(layout.fields, layout.values(element), strict=True)
        ]
        return json_text(layout.element(values)).encode()

    def decode(line: Any) -> Any:
        found = [_at(line, field.path) for field in layout.fields]
        return layout.element(
            [_from_json(field, value) for field, value in zip(layout.fields, found, strict=True)]
        )

    return Coding(encode, decode)


def _at(line: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        line = line[int(name)] if isinstance(line, list) else line[name]
    return line


def _as_json(field: Field, value: Any) -> Any:
    if field.kind == "bytes":
        return base64.b64encode(value).decode()
    if field.kind in ("array", "scalar"):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise MisfitError(field.name, "has nan or inf in it, which JSON cannot say")
        if 0 in value.shape[:-1]:
            raise MisfitError(field.name, f"has the shape {value.shape}, which lists cannot say")
        return value.tolist()
    return _finite(field, value)


def _from_json(field: Field, value: Any) -> Any:
    if field.kind == "bytes":
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{field.name!r} is no base64: {error}") from None
    if field.kind == "array":
        return np.array(value, dtype=field.dtype)
    return _value(field, value)


# Tokens.


def _of_tokens(layout: ElementLayout) -> Coding:
    fields = layout.fields
    if len(fields) != 1 or fields[0].kind != "array" or fields[0].ndim != 1:
        told = ", ".join(f"{field.name}: {field}" for field in fields)
        raise MisfitError(
            "", f"is {told or 'nothing'}, and a file of tokens holds one array with one axis"
        )
    (field,) = fields
    assert field.dtype is not None
    if field.dtype.kind not in "iu":
        raise MisfitError(field.name, f"is {field}, and tokens are whole numbers")
    stored = field.dtype.newbyteorder("<")
    return Coding(
        lambda element, _: layout.values(element)[0].astype(stored, copy=False),
        lambda tokens: layout.element([tokens.astype(field.dtype)]),
        (("tokens", "array", stored),),
    )


_CODINGS: dict[str, Callable[[ElementLayout], Coding]] = {
    "arrayrecord": _of_bytes,
    "tfrecord": _of_bytes,
    "parquet": _of_rows,
    "arrow": _of_rows,
    "tar": _of_samples,
    "jsonl": _of_lines,
    "tokens": _of_tokens,
}
