"""Arrow files: file and stream format, Feather, compressed or mapped, and damage."""

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.core.stack import stack
from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError
from bushel.sources import ArrowDataSource
from bushel.sources.arrow import package as arrow_package
from bushel.sources.arrow.buffers import stretch_of
from bushel.sources.arrow.table_parts import Reader, TablePart
from tests.grain.oracle import assert_same
from tests.property.profile import tried
from tests.sources.reading import check_source
from tests.sources.test_parquet import MIXED, mixed_records, numbers


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("BUSHEL_CACHE", str(folder))
    return folder


def write(
    path: Path, table: Any, rows: int = 3, stream: bool = False, compression: str | None = None
) -> str:
    table = table if isinstance(table, pa.Table) else pa.table(table)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


FORMS: dict[str, dict[str, Any]] = {
    "file": {},
    "stream": {"stream": True},
    "compressed file": {"compression": "zstd"},
    "compressed stream": {"stream": True, "compression": "lz4"},
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))


@every_form
@pytest.mark.parametrize("cache_bytes", [1 << 20, 500])
def test_numbers_of_several_files(tmp_path: Path, form: dict[str, Any], cache_bytes: int) -> None:
    for number, count in enumerate((9, 0, 4)):
        write(tmp_path / f"part-{number}.arrow", numbers(9 * number, count)[0], **form)
    records = numbers(0, 9)[1] + numbers(18, 4)[1]
    source = ArrowDataSource(tmp_path, cache_bytes=cache_bytes)
    assert source.read_columns(np.array([3])) is not None
    check_source(source, records)
    assert source.place_of(10) == (str(tmp_path / "part-2.arrow"), 1, None)


@every_form
def test_values_of_all_kinds(tmp_path: Path, form: dict[str, Any]) -> None:
    columns = {name: array for name, (array, _) in MIXED.items()}
    write(tmp_path / "a.arrow", columns, rows=2, **form)
    check_source(ArrowDataSource(tmp_path / "a.arrow"), mixed_records())


@every_form
@pytest.mark.parametrize("name", MIXED)
def test_a_column_by_itself(tmp_path: Path, name: str, form: dict[str, Any]) -> None:
    """What a value is does not depend on those that are read along with it."""
    array, values = MIXED[name]
    source = ArrowDataSource(write(tmp_path / "a.arrow", {name: array}, rows=2, **form))
    for keys in ([0], [1], [4, 2], [3, 0, 1, 2, 4]):
        assert_same(source.__getitems__(keys), [{name: values[key]} for key in keys])


def test_feather(tmp_path: Path) -> None:
    columns, records = numbers(0, 20)
    path = tmp_path / "a.feather"
    feather.write_feather(pa.table(columns), str(path), chunksize=6)
    check_source(ArrowDataSource(tmp_path), records, workers=True)
    path.write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    with pytest.raises(FileError, match=r"'.*a\.feather' is a Feather file of version 1"):
        ArrowDataSource(path)


def test_categories_that_change_within_a_stream(tmp_path: Path) -> None:
    parts = [pa.array(list(text)).dictionary_encode() for text in ("ab", "ca", "bd")]
    schema = pa.schema([("kind", parts[0].type)])
    with pa.ipc.new_stream(str(tmp_path / "a.arrows"), schema) as writer:
        for part in parts:
            writer.write_batch(pa.record_batch([part], schema=schema))
    check_source(ArrowDataSource(tmp_path), [{"kind": letter} for letter in "abcabd"])


def test_tensors(tmp_path: Path) -> None:
    images = np.arange(60, dtype=np.uint8).reshape(5, 3, 4)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
    path = write(tmp_path / "a.arrow", {"image": column}, rows=2)
    source = ArrowDataSource(path)
    check_source(source, [{"image": image} for image in images])
    columns = source.read_columns(np.array([4, 0]))
    assert columns is not None
    np.testing.assert_array_equal(columns["image"], images[[4, 0]])


def test_batches_of_a_mapped_file_are_read_as_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", {"x": list(range(100))}, rows=10)
    with pa.memory_map(path) as file:
        batches = pa.ipc.open_file(file).read_all().to_batches()
    assert stretch_of(batches).size == os.path.getsize(path)
    apart = [pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3]})]
    assert stretch_of(apart) is None
    part = TablePart(apart)
    reader = Reader(apart[0].schema, np.array([3]), lambda number: part)
    assert [row["x"] for row in reader.records(np.array([2, 0, 1]))] == [3, 1, 2]


KINDS = [
    pa.int16(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_binary(),
    pa.list_(pa.int32()),
    pa.large_list(pa.string()),
    pa.list_(pa.int8(), 2),
    pa.list_(pa.list_(pa.bool_(), 1), 3),
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float32()))]),
    pa.map_(pa.string(), pa.int64()),
]


def values(kind: pa.DataType, nulls: bool) -> st.SearchStrategy[Any]:
    """Values of a type, as Python has them."""
    if pa.types.is_boolean(kind):
        made: st.SearchStrategy[Any] = st.booleans()
    elif pa.types.is_integer(kind):
        made = st.integers(-100, 100)
    elif pa.types.is_floating(kind):
        made = st.integers(-100, 100).map(lambda n: n / 4)
    elif pa.types.is_string(kind):
        made = st.text("aä€", max_size=3)
    elif pa.types.is_large_binary(kind):
        made = st.binary(max_size=3)
    elif pa.types.is_struct(kind):
        made = st.fixed_dictionaries({field.name: values(field.type, nulls) for field in kind})
    elif pa.types.is_map(kind):
        made = st.lists(st.tuples(st.text("ab", max_size=1), st.integers(0, 9)), max_size=2)
    else:
        is_fixed = pa.types.is_fixed_size_list(kind)
        size = (kind.list_size, kind.list_size) if is_fixed else (0, 3)
        made = st.lists(values(kind.value_type, nulls), min_size=size[0], max_size=size[1])
    return st.none() | made if nulls else made


def as_python(value: Any) -> Any:
    """What pyarrow would have made of a value."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {name: as_python(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_python, value))
    return value


@given(data=st.data())
@tried
def test_any_table(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    count = data.draw(st.integers(1, 12))
    table = pa.table(
        {
            f"c{number}": pa.array(
                data.draw(
                    st.lists(values(kind, data.draw(st.booleans())), min_size=count, max_size=count)
                ),
                kind,
            )
            for number, kind in enumerate(kinds)
        }
    )
    path = tmp_path_factory.mktemp("any") / "a.arrow"
    form = data.draw(st.sampled_from(list(FORMS.values())))
    source = ArrowDataSource(write(path, table, rows=data.draw(st.integers(1, 12)), **form))
    keys = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20))
    rows = table.to_pylist()
    read = source.__getitems__(keys)
    assert as_python(read) == [rows[key] for key in keys]
    assert_same(read, [source[key] for key in keys])
    columns = source.read_columns(np.array(keys))
    if columns is not None:
        assert_same(columns, stack(read))


def test_records_are_the_users_own(tmp_path: Path) -> None:
    columns = {"pair": pa.array([[1, 2]] * 3, pa.list_(pa.int8(), 2)), "l": [[1], [2], [3]]}
    source = ArrowDataSource(write(tmp_path / "a.arrow", columns))
    record = source[0]
    record["pair"][0] = record["l"][0] = 7
    assert_same(source[0], {"pair": np.array([1, 2], np.int8), "l": np.array([1])})


def test_columns_are_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", {"x": [1, 2], "s": ["a", "b"]})
    source = ArrowDataSource(path, columns=["s"])
    assert source[1] == {"s": "b"}
    assert source.schema.names == ["s"]
    with pytest.raises(PlanError, match="no column 'y'; it has 'x', 's'"):
        ArrowDataSource(path, columns=["y"])
    write(tmp_path / "b.arrow", {"x": ["1"], "s": ["a"]})
    with pytest.raises(FileError, match=r"'x' is int64 in '.*a\.arrow' and string in '.*b\.arrow'"):
        ArrowDataSource(tmp_path)
    assert len(ArrowDataSource(tmp_path, columns=["s"])) == 3


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"no file '.*b\.arrow'"):
        ArrowDataSource(tmp_path / "b.arrow")
    whole = Path(write(tmp_path / "whole.arrow", numbers(0, 40)[0])).read_bytes()
    stream = Path(write(tmp_path / "s.arrow", numbers(0, 40)[0], stream=True)).read_bytes()
    bad = tmp_path / "bad.arrow"
    for content in (b"", b"text" * 20, whole[:-50], whole[: len(whole) // 2], stream[:500]):
        bad.write_bytes(content)
        with pytest.raises(FileError, match=r"'.*bad\.arrow' is (no Arrow file|empty)"):
            ArrowDataSource(bad)


def test_a_damaged_batch_is_named(tmp_path: Path) -> None:
    columns = {"x": list(range(6)), "text": ["word " * 200] * 6}
    path = Path(write(tmp_path / "a.arrow", columns, compression="zstd"))
    data = path.read_bytes()
    last_compressed = data.rindex(b"\x28\xb5\x2f\xfd")
    path.write_bytes(data[:last_compressed] + bytes(4) + data[last_compressed + 4 :])
    source = ArrowDataSource(path)
    assert source[2]["x"] == 2
    with pytest.raises(
        FileError, match=r"record batch 1 of '.*a\.arrow' cannot be read: .*damaged"
    ):
        source[3]


def test_a_file_that_is_cut_short_while_it_is_read(tmp_path: Path) -> None:
    """Reading the map of it would end the process."""
    path = write(tmp_path / "a.arrow", {"x": list(range(10_000))})
    source = ArrowDataSource(path)
    assert source[9_999] == {"x": 9_999}
    os.truncate(path, 5_000)
    with pytest.raises(FileError, match=r"'.*a\.arrow' was written to while it was being read"):
        source[9_998]
    with pytest.raises(FileError, match="another file"):
        pickle.loads(pickle.dumps(source))[0]


def test_what_is_decoded_again_is_kept_on_disk(tmp_path: Path, cache_folder: Path) -> None:
    noise = np.random.default_rng(0)
    blobs = [noise.bytes(1000) for _ in range(12)]
    path = write(tmp_path / "a.arrow", {"blob": blobs}, compression="zstd")
    source = ArrowDataSource(path, cache_bytes=4000)
    for _ in range(2):
        assert [source[key]["blob"] for key in range(12)] == blobs
    # The last one never had to make room.
    assert len(list((cache_folder / f"parts-{os.geteuid()}").glob("*.unpacked"))) == 3


def test_pyarrow_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow_package.arrow.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    try:
        with pytest.raises(MissingPackageError, match=r'pip install "bushel\[arrow\]"'):
            ArrowDataSource("a.arrow")
    finally:
        monkeypatch.undo()
        arrow_package.arrow.cache_clear()
