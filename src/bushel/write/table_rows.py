"""Records as rows of Parquet and Arrow tables, which all have the same columns; writes these."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bushel.errors import PlanError
from bushel.sources.arrow.package import arrow, parquet

# Rows, or bytes of rows, that are converted to columns together.
_AT_ONCE = 1024
_BYTES_AT_ONCE = 8 << 20
# The most bytes in a row group of a Parquet file.
_GROUP_BYTES = 32 << 20


def to_row(record: Any, number: int = 0) -> dict[str, Any]:
    """A record as a row of a table; a record without names gets one.

    >>> to_row(b"ab"), to_row(3)
    ({'data': b'ab'}, {'value': 3})
    """
    if isinstance(record, dict):
        return {str(name): value for name, value in record.items()}
    if isinstance(record, (bytes, bytearray, memoryview)):
        return {"data": bytes(record)}
    if isinstance(record, str):
        return {"text": record}
    if isinstance(record, tuple):
        return {str(place): value for place, value in enumerate(record)}
    return {"value": record}


def schema_of(rows: Iterable[dict[str, Any]]) -> Any:
    """The columns that hold all of these rows.

    >>> schema_of([{"x": None}, {"x": 1, "y": []}, {"x": 0.5, "y": ["a"]}])
    x: double
    y: list<item: string>
      child 0, item: string
    """
    pa = arrow()
    found: list[Any] = []
    for number, group in _groups(rows):
        names = list(dict.fromkeys(itertools.chain(*group)))
        columns = [(name, _column(name, group, number, None).type) for name in names]
        found.append(pa.schema(columns))
        try:
            found = [pa.unify_schemas(found, promote_options="permissive")]
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise PlanError(f"the records do not fit into one table: {error}.") from None
    return found[0] if found else pa.schema([])


def schema_text(schema: Any) -> str:
    """A schema as text for a plan; `schema_from` restores it."""
    pa = arrow()
    # Values are written without dictionaries: what rows of one file shared is in each of them.
    plain = [(field.name, _stored(field.type)) for field in schema]
    return str(pa.schema(plain).serialize().to_pybytes().hex())


def schema_from(text: str) -> Any:
    """A schema from its text."""
    pa = arrow()
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text)))


def _stored(kind: Any) -> Any:
    if arrow().types.is_dictionary(kind):
        return kind.value_type
    return kind.storage_type if isinstance(kind, arrow().BaseExtensionType) else kind


def write_parquet(path: str, rows: Iterable[dict[str, Any]], schema: Any = None) -> None:
    """Writes rows to a Parquet file; without a schema, the first rows determine it."""
    pa = arrow()
    schema, batches = _batches(rows, schema)
    try:
        # Opened here, as pyarrow supports only names in UTF-8.
        with open(path, "wb") as file, parquet().ParquetWriter(file, schema) as writer:
            for group in _of_size(batches):
                writer.write_table(pa.Table.from_batches(group))
    except pa.ArrowNotImplementedError as error:
        raise PlanError(f"Parquet cannot hold these records: {error}") from None


def write_arrow(path: str, rows: Iterable[dict[str, Any]], schema: Any = None) -> None:
    """The same for an Arrow file."""
    pa = arrow()
    schema, batches = _batches(rows, schema)
    with open(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _batches(rows: Iterable[dict[str, Any]], schema: Any) -> tuple[Any, Iterator[Any]]:
    groups = _groups(rows)
    if schema is None:
        first = list(itertools.islice(groups, 1))
        schema = schema_of(first[0][1]) if first else arrow().schema([])
        groups = itertools.chain(first, groups)
    return schema, (_batch(group, number, schema) for number, group in groups)


def _batch(group: list[dict[str, Any]], number: int, schema: Any) -> Any:
    names = list(schema.names)
    extra = set(itertools.chain(*group)) - set(names)
    if extra:
        raise PlanError(
            f"{_records(group, number)} have {sorted(extra)}, which the sampled records did not "
            "have: a table has the same columns everywhere. --look-at sets the number of sampled "
            "records."
        )
    if not names:
        raise PlanError(
            f"{_records(group, number)} have no values, and a table without columns has no rows."
        )
    columns = [_column(name, group, number, schema.field(name).type) for name in names]
    return arrow().record_batch(columns, schema=schema)


def _groups(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Rows that are converted to columns together, with the number of the first."""
    number, nbytes = 0, 0
    group: list[dict[str, Any]] = []
    for row in rows:
        group.append(row)
        nbytes += sum(map(_size, row.values()))
        if len(group) == _AT_ONCE or nbytes >= _BYTES_AT_ONCE:
            yield number, group
            number += len(group)
            group, nbytes = [], 0
    if group:
        yield number, group


def _size(value: Any) -> int:
    """The approximate size of a value; only for kinds that can be very large."""
    if isinstance(value, (bytes, str, list)):
        return len(value)
    return value.nbytes if isinstance(value, np.ndarray) else 0


def _records(group: list[dict[str, Any]], number: int) -> str:
    last = number + len(group) - 1
    return f"records {number} to {last} of this file"


def _column(name: str, group: list[dict[str, Any]], number: int, kind: Any) -> Any:
    """The values of a column: with a given type, or their own."""
    pa = arrow()
    values = [row.get(name) for row in group]
    try:
        column = _regular(values)
        if column is not None:
            return column if kind is None or column.type == kind else column.cast(kind)
        plain = [_plain(value) for value in values]
        if kind is not None and _has_structs(kind):
            # If a value has more fields than the type, the others would be lost silently.
            met = pa.schema([(name, kind)]), pa.schema([(name, pa.array(plain).type)])
            if _fields(pa.unify_schemas(met, promote_options="permissive").types[0]) > _fields(
                kind
            ):
                raise pa.ArrowInvalid(f"some have fields that are not in {kind}")
        return pa.array(plain, type=kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        why = str(error).rstrip(".")
        if kind is None:
            raise PlanError(
                f"the values of {name!r} in {_records(group, number)} cannot be a column: {why}."
            ) from None
        raise PlanError(
            f"the values of {name!r} in {_records(group, number)} are not {kind}, as in the "
            f"sampled records: {why}. --look-at sets the number of sampled records."
        ) from None


def _regular(values: list[Any]) -> Any:
    """A column of numbers, or of arrays of numbers, without a Python object for each."""
    pa = arrow()
    first = values[0]
    kinds = {type(value) for value in values}
    if kinds == {np.ndarray}:
        alike = {(value.ndim, value.dtype) for value in values}
        if len(alike) == 1 and first.ndim and first.dtype.kind in "biuf":
            return _lists(values)
    present = [value for value in values if value is not None]
    if len(kinds - {type(None)}) == 1 and isinstance(present[0], np.generic):
        filled = [present[0] if value is None else value for value in values]
        return pa.array(np.array(filled), mask=np.array([value is None for value in values]))
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        # Numbers keep their types, and times become Python's, which can have a zone.
        return list(value) if value.ndim == 1 and value.dtype.kind not in "mM" else value.tolist()
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def _has_structs(kind: Any) -> bool:
    types = arrow().types
    return types.is_struct(kind) or any(
        _has_structs(kind.field(place).type) for place in range(kind.num_fields)
    )


def _fields(kind: Any) -> int:
    """The number of fields in a type, including nested ones."""
    return int(kind.num_fields) + sum(
        _fields(kind.field(place).type) for place in range(kind.num_fields)
    )


def _lists(arrays: list[Any]) -> Any:
    """Arrays as lists, lists of lists and so on, without a Python object for each number."""
    pa = arrow()
    column = pa.array(np.concatenate([array.ravel() for array in arrays]))
    depth = arrays[0].ndim
    for level in range(depth - 1, -1, -1):
        # The number of lists of each array at this level, and their lengths.
        counts = np.array([int(np.prod(array.shape[:level])) for array in arrays])
        lengths = np.repeat([array.shape[level] for array in arrays], counts)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        kind = pa.LargeListArray if offsets[-1] >= 2**31 else pa.ListArray
        index = pa.int64() if kind is pa.LargeListArray else pa.int32()
        column = kind.from_arrays(pa.array(offsets, index), column)
    return column


def _of_size(batches: Iterable[Any]) -> Iterator[list[Any]]:
    group: list[Any] = []
    nbytes = 0
    for batch in batches:
        group.append(batch)
        nbytes += batch.nbytes
        if nbytes >= _GROUP_BYTES:
            yield group
            group, nbytes = [], 0
    if group:
        yield group


def schema_of_columns(columns: Iterable[tuple[str, str, Any]]) -> Any:
    """The schema of columns, given the kind and type of their values."""
    pa = arrow()
    plain = {
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "text": pa.string(),
        "bytes": pa.binary(),
        "json": pa.string(),
    }

    def kind_of(kind: str, dtype: Any) -> Any:
        if kind in plain:
            return plain[kind]
        of = pa.from_numpy_dtype(dtype)
        return pa.list_(of) if kind == "array" else of

    return pa.schema([(name, kind_of(kind, dtype)) for name, kind, dtype in columns])
