"""The formats that `bushel convert` writes; writers of tar, lines, ArrayRecord for `write` too."""

import csv
import errno
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bushel.core.frozen import frozen
from bushel.errors import PlanError
from bushel.sources.array_record import array_record_writer
from bushel.sources.tfrecord.example import encode_example
from bushel.sources.tfrecord.write import write_tfrecords
from bushel.write.table_rows import to_row, write_arrow, write_parquet

_TEXT_ENDINGS = ("txt", "text", "json", "cls", "transcript", "csv", "html", "xml")


@frozen
class Target:
    """A format to write."""

    name: str
    endings: tuple[str, ...]
    # Converts a record, and its number, for `write`. Runs in workers.
    encode: Callable[[Any, int], Any]
    # Writes a file. For a table it also takes the schema.
    write: Callable[..., None]
    is_table: bool = False


# Records of bytes.


def to_bytes(record: Any, number: int = 0) -> bytes:
    """A record as bytes: bytes as they are, text in UTF-8, anything else as an Example.

    >>> to_bytes("é"), to_bytes({"x": 1}) == encode_example({"x": 1})
    (b'\\xc3\\xa9', True)
    """
    if isinstance(record, (bytes, bytearray, memoryview)):
        return bytes(record)
    try:
        if isinstance(record, str):
            return record.encode()
        features: dict[str, Any] = {}
        for name, value in _features(record if isinstance(record, dict) else {"value": record}, ""):
            if name in features:
                raise ValueError(f"there are two features {name!r}")
            features[name] = value
        return encode_example(features)
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"record {number} cannot be written as a tf.train.Example: {error}"
        ) from None


def _features(record: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The features of an Example: a flat list of names; of arrays with their shapes."""
    for name, value in record.items():
        whole = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _features(value, f"{whole}/")
        elif value is None:
            continue  # A missing feature.
        elif isinstance(value, np.ndarray) and value.ndim > 1:
            yield whole, value.ravel()
            yield f"{whole}/shape", np.array(value.shape)
        else:
            yield whole, value


def _write_tfrecord(path: str, records: Iterable[bytes]) -> None:
    write_tfrecords(path, records)


def write_array_record(path: str, records: Iterable[bytes]) -> None:
    """Writes records to an ArrayRecord file."""
    writer = array_record_writer(path)
    for record in records:
        try:
            writer.write(record)
        except RuntimeError as error:
            raise _disk_error(error) from None
    try:
        writer.close()
    except RuntimeError as error:
        raise _disk_error(error) from None


def _disk_error(error: RuntimeError) -> OSError:
    """Tells an error of the disk from others, which the package does not."""
    is_full = os.strerror(errno.ENOSPC) in str(error)
    return OSError(errno.ENOSPC if is_full else errno.EIO, str(error))


# Tar files.


def to_members(record: Any, number: int = 0) -> list[tuple[str, bytes]]:
    """A record as the files of one sample of a tar file.

    >>> to_members({"__key__": "a", "jpg": b"...", "label": 3})
    [('a.jpg', b'...'), ('a.label.cls', b'3')]
    """
    row = to_row(record)
    key = _key(row.pop("__key__", None) or f"{number:09d}")
    members: dict[str, bytes] = {}
    for name, value in row.items():
        if value is None or name.startswith("__"):
            continue
        try:
            ending, data = _member(name, value)
        except (TypeError, ValueError) as error:
            raise PlanError(
                f"{name!r} of record {number} cannot be written to a tar file: {error}."
            ) from None
        ending = ending.replace("/", "%2F")
        # Readers do not distinguish upper and lower case.
        if any(ending.lower() == other.lower() for other in members):
            raise PlanError(
                f"record {number} cannot be written to a tar file: two of its parts would be "
                f"{ending!r}."
            )
        members[ending] = data
    if not members:
        raise PlanError(
            f"record {number} cannot be written to a tar file, where a record without any value "
            f"is none at all: {record!r:.100}."
        )
    return [(f"{key}.{ending}", data) for ending, data in members.items()]


def to_sample(image: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """A picture of a class folder as WebDataset has it: its own ending, and `cls`.

    >>> to_sample({"image": b"...", "label": 1, "path": "/data/train/dog/7.JPG"}, "/data/train")
    {'__key__': 'dog/7', 'jpg': b'...', 'cls': 1}
    """
    path = os.path.relpath(str(image["path"]), folder).replace(os.sep, "/")
    stem, ending = os.path.splitext(path)
    return {"__key__": stem, ending[1:].lower(): image["image"], "cls": image["label"]}


def _key(key: Any) -> str:
    """A key as the beginning of file names: a dot in the last part would end it.

    >>> _key("v1.0/img.1")
    'v1.0/img%2E1'
    """
    folder, slash, name = str(key).rpartition("/")
    return folder + slash + (name or "_").replace(".", "%2E")


def _member(name: str, value: Any) -> tuple[str, bytes]:
    last = name.rsplit(".", 1)[-1]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return name, bytes(value)
    if isinstance(value, str):
        return (name if last in _TEXT_ENDINGS else f"{name}.txt"), value.encode()
    if isinstance(value, np.ndarray) and value.ndim and not value.dtype.hasobject:
        buffer = io.BytesIO()
        np.save(buffer, value, allow_pickle=False)
        return (name if last == "npy" else f"{name}.npy"), buffer.getvalue()
    value = _plain(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return (name if last == "cls" else f"{name}.cls"), str(value).encode()
    return (name if last == "json" else f"{name}.json"), json.dumps(value).encode()


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def write_tar(path: str, samples: Iterable[list[tuple[str, bytes]]]) -> None:
    """Writes samples, which are lists of names and bytes, to a tar file."""
    # No times and no owners: the same records make the same file.
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        before = None
        for number, members in enumerate(samples):
            key = members[0][0].rpartition("/")[0], members[0][0].rpartition("/")[2].split(".")[0]
            if key == before:
                raise PlanError(
                    f"records {number - 1} and {number} of this file have the same `__key__`, as "
                    f"in {members[0][0]!r}, and in a tar file they would be one."
                )
            before = key
            for name, data in members:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


# Text.


def to_json_line(record: Any, number: int = 0) -> bytes:
    """A record as a line of JSON; arrays become lists.

    >>> to_json_line({"x": np.arange(3), "name": "é"})
    b'{"x": [0, 1, 2], "name": "\xc3\xa9"}'
    """
    row = to_row(record)
    try:
        return json.dumps(_plain(row), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise PlanError(f"record {number} cannot be written as JSON: {_why(row, error)}.") from None


def to_cells(record: Any, number: int = 0) -> dict[str, str]:
    """A record as the cells of a table of text: lists and dicts as JSON, None as nothing.

    >>> to_cells({"x": 1.5, "tags": ["a"], "note": None})
    {'x': '1.5', 'tags': '["a"]', 'note': ''}
    """
    row = to_row(record)
    try:
        return {name: _cell(_plain(value)) for name, value in row.items()}
    except (TypeError, ValueError) as error:
        raise PlanError(f"record {number} cannot be written as CSV: {_why(row, error)}.") from None


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        value.encode()  # Raises here for invalid text, with the name of its field.
        return value
    return json.dumps(value, ensure_ascii=False)


def _why(row: dict[str, Any], error: Exception) -> str:
    for name, value in row.items():
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"{name!r} is bytes, which is no text; tar, Parquet and ArrayRecord have bytes"
    return str(error)


def write_lines(path: str, lines: Iterable[bytes]) -> None:
    """Writes lines, each with its end."""
    with open(path, "wb", buffering=1 << 20) as file:
        for line in lines:
            file.write(line)
            file.write(b"\n")


def _write_csv(path: str, rows: Iterable[dict[str, str]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer: Any = None
        for number, row in enumerate(rows):
            if writer is None:
                writer = csv.DictWriter(file, row, lineterminator="\n")
                writer.writeheader()
            elif row.keys() != set(writer.fieldnames):
                raise PlanError(
                    f"record {number} of this file has the fields {list(row)}, and a table has the "
                    f"same in each row; the first one has {list(writer.fieldnames)}. JSON lines "
                    "(.jsonl) can differ."
                )
            writer.writerow(row)


TARGETS = {
    target.name: target
    for target in (
        Target("arrayrecord", (".array_record", ".arrayrecord"), to_bytes, write_array_record),
        Target("tfrecord", (".tfrecord", ".tfrecords"), to_bytes, _write_tfrecord),
        Target("parquet", (".parquet", ".pq"), to_row, write_parquet, True),
        Target("arrow", (".arrow", ".feather"), to_row, write_arrow, True),
        Target("tar", (".tar",), to_members, write_tar),
        Target("jsonl", (".jsonl", ".ndjson"), to_json_line, write_lines),
        Target("csv", (".csv",), to_cells, _write_csv),
    )
}
