"""Parquet files: values, files, row groups in memory and on disk, damage, Grain's stream."""

import datetime
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bushel
from bushel.errors import FileError, MissingFileError, PlanError
from bushel.files.local import LocalFile
from bushel.sources import ParquetDataSource
from bushel.sources.arrow.part_cache import PartCache
from bushel.sources.arrow.table_files import SeekableFile
from bushel.sources.arrow.table_parts import TablePart
from bushel.sources.arrow.unpacked import Unpacked
from tests.grain.oracle import assert_same
from tests.patience import PATIENCE_SECONDS
from tests.sources.reading import check_source, run


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("BUSHEL_CACHE", str(folder))
    return folder


def unpacked_files(cache_folder: Path) -> list[Path]:
    return sorted((cache_folder / f"parts-{os.geteuid()}").glob("*.unpacked"))


def write(path: Path, columns: Any, rows: int = 4, **options: Any) -> str:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, row_group_size=rows, **options)
    return str(path)


def numbers(start: int, count: int) -> tuple[dict[str, Any], list[Any]]:
    """Columns that numpy reads in place, and the records that they are."""
    ids = np.arange(start, start + count)
    records: list[Any] = [
        {
            "id": np.int32(i),
            "half": np.float32(i / 2),
            "odd": np.bool_(i % 2),
            "day": np.datetime64("1970-01-01") + np.timedelta64(int(i), "D"),
            "time": np.datetime64(int(i), "ms"),
            "pair": np.array([i, -i], np.int16),
            "square": np.array([[i % 3 == 0, True], [False, i % 5 == 0]]),
            "inner": {"a": np.int64(i), "b": np.uint8(i % 7)},
        }
        for i in ids.tolist()
    ]
    squares = pa.list_(pa.list_(pa.bool_(), 2), 2)
    columns = {
        "id": pa.array(ids, pa.int32()),
        "half": pa.array(ids / 2, pa.float32()),
        "odd": pa.array(ids % 2 == 1),
        "day": pa.array(ids.astype(np.int32), pa.date32()),
        "time": pa.array(ids, pa.timestamp("ms")),
        "pair": pa.array([[i, -i] for i in ids.tolist()], pa.list_(pa.int16(), 2)),
        "square": pa.array([r["square"].tolist() for r in records], squares),
        "inner": pa.array(
            [{"a": i, "b": i % 7} for i in ids.tolist()],
            pa.struct([("a", pa.int64()), ("b", pa.uint8())]),
        ),
    }
    return columns, records


# Columns that have no shape, or nulls in them, with the values that records have.
MIXED: dict[str, tuple[Any, list[Any]]] = {
    "text": (pa.array(["a", "", "zwölf", "d", "e"]), ["a", "", "zwölf", "d", "e"]),
    "maybe": (pa.array(["a", None, "c", None, "e"]), ["a", None, "c", None, "e"]),
    "bytes": (pa.array([b"a", b"", b"\xff", b"d", b"e"]), [b"a", b"", b"\xff", b"d", b"e"]),
    "large": (pa.array(list("abcde"), pa.large_string()), list("abcde")),
    "kind": (pa.array(["u", "v", "u", None, "v"]).dictionary_encode(), ["u", "v", "u", None, "v"]),
    "count": (
        pa.array([1, None, 3, 4, 5], pa.int16()),
        [np.int16(1), None, np.int16(3), np.int16(4), np.int16(5)],
    ),
    "price": (pa.array([Decimal("1.50")] * 5), [Decimal("1.50")] * 5),
    "hour": (
        pa.array([datetime.time(3)] * 5, pa.time32("s")),
        [datetime.time(3)] * 5,
    ),
    "zoned": (
        pa.array([0, 1, 2, 3, None], pa.timestamp("us", "Europe/Paris")),
        [*(np.datetime64(i, "us") for i in range(4)), None],
    ),
    "tokens": (
        pa.array([[1, 2], [], [3], None, [4, None]], pa.list_(pa.int32())),
        [
            np.array([1, 2], np.int32),
            np.array([], np.int32),
            np.array([3], np.int32),
            None,
            [np.int32(4), None],
        ],
    ),
    "scores": (
        pa.array([[0.5], [], [1.5, 2.5], [], [3.5]], pa.list_(pa.float32())),
        [np.array(row, np.float32) for row in ([0.5], [], [1.5, 2.5], [], [3.5])],
    ),
    "words": (
        pa.array([["a"], [], ["b", "c"], None, [None]]),
        [["a"], [], ["b", "c"], None, [None]],
    ),
    "point": (
        pa.array(
            [{"x": 1, "name": "p"}, None, {"x": 3, "name": None}, {"x": 4, "name": "s"}, None]
        ),
        [
            {"x": np.int64(1), "name": "p"},
            None,
            {"x": np.int64(3), "name": None},
            {"x": np.int64(4), "name": "s"},
            None,
        ],
    ),
    "map": (
        pa.array(
            [[("k", 1)], [], None, [("l", 2), ("m", 3)], []], pa.map_(pa.string(), pa.int64())
        ),
        [
            [("k", np.int64(1))],
            [],
            None,
            [("l", np.int64(2)), ("m", np.int64(3))],
            [],
        ],
    ),
    "nothing": (pa.nulls(5), [None] * 5),
}


def mixed_records() -> list[Any]:
    return [{name: values[row] for name, (_, values) in MIXED.items()} for row in range(5)]


@pytest.mark.parametrize(
    "sizes", [{}, {"cache_bytes": 600}, {"cache_bytes": 600, "disk_bytes": 0}, {"cache_bytes": 0}]
)
def test_numbers_of_several_files(tmp_path: Path, sizes: dict[str, Any]) -> None:
    """Read as columns, from row groups in memory, on disk, or decoded again and again."""
    for number, count in enumerate((9, 0, 4)):
        write(tmp_path / f"part-{number}.parquet", numbers(9 * number, count)[0])
    records = numbers(0, 9)[1] + numbers(18, 4)[1]
    source = ParquetDataSource(tmp_path, **sizes)
    assert source.read_columns(np.array([3])) is not None
    check_source(source, records)
    # The byte is that of the row group.
    assert source.place_of(10) == (str(tmp_path / "part-2.parquet"), 1, 4)


@pytest.mark.parametrize("sizes", [{}, {"cache_bytes": 1000}])
def test_values_of_all_kinds(tmp_path: Path, sizes: dict[str, Any]) -> None:
    write(tmp_path / "a.parquet", {name: array for name, (array, _) in MIXED.items()}, rows=2)
    check_source(ParquetDataSource(tmp_path / "a.parquet", **sizes), mixed_records())


@pytest.mark.parametrize("name", MIXED)
def test_a_column_by_itself(tmp_path: Path, name: str) -> None:
    """What a value is does not depend on those that are read along with it."""
    array, values = MIXED[name]
    source = ParquetDataSource(write(tmp_path / "a.parquet", {name: array}, rows=3))
    for keys in ([0], [1], [4, 2], [3, 0, 1, 2, 4]):
        assert_same(source.__getitems__(keys), [{name: values[key]} for key in keys])


def blobs(path: Path, **options: Any) -> tuple[ParquetDataSource, list[Any]]:
    """Ten row groups of 4,000 bytes of noise each."""
    noise = np.random.default_rng(0)
    records = [{"id": np.int64(i), "blob": noise.bytes(1000)} for i in range(40)]
    columns = {name: [record[name] for record in records] for name in ("id", "blob")}
    file = write(path / "a.parquet", columns, use_dictionary=False)
    return ParquetDataSource(file, **options), records


def test_a_row_group_that_is_wanted_again_is_kept_on_disk(
    tmp_path: Path, cache_folder: Path
) -> None:
    source, records = blobs(tmp_path, cache_bytes=9000)
    assert_same(list(map(source.__getitem__, range(40))), records)
    assert unpacked_files(cache_folder) == [], "once through needs no disk"
    assert_same(source[0], records[0])
    (first,) = unpacked_files(cache_folder)
    assert first.stat().st_mode & 0o777 == 0o600
    # Another process would find it too, and anybody may remove it.
    other = pickle.loads(pickle.dumps(source))
    assert_same(other[1], records[1])
    first.unlink()
    assert_same([source[1], other[2]], [records[1], records[2]])
    # What was cut short is decoded anew.
    assert_same(source[4], records[4])
    (second,) = unpacked_files(cache_folder)
    second.write_bytes(second.read_bytes()[:-20])
    assert_same(pickle.loads(pickle.dumps(source))[5], records[5])


def test_a_row_group_larger_than_the_memory_goes_to_disk(
    tmp_path: Path, cache_folder: Path
) -> None:
    source, records = blobs(tmp_path, cache_bytes=3000)
    assert_same(source.__getitems__([39, 0]), [records[39], records[0]])
    assert len(unpacked_files(cache_folder)) == 2
    # Only what is read of it counts.
    ids = ParquetDataSource(source.paths, columns=["id"], cache_bytes=3000)
    assert ids[7] == {"id": 7}
    assert len(unpacked_files(cache_folder)) == 2


def test_the_disk_is_not_filled(tmp_path: Path, cache_folder: Path) -> None:
    room = 20_000
    source, records = blobs(tmp_path, cache_bytes=0, disk_bytes=room)
    for _ in range(2):
        assert_same(list(map(source.__getitem__, range(40))), records)
    kept = unpacked_files(cache_folder)
    assert 1 < len(kept) < 10
    assert sum(file.stat().st_size for file in kept) <= room
    # Those that nobody has used for long make room.
    for file in kept:
        os.utime(file, (0, 0))
    other = ParquetDataSource(source.paths, columns=["blob"], cache_bytes=0, disk_bytes=room)
    assert_same(other[0], {"blob": records[0]["blob"]})
    now = unpacked_files(cache_folder)
    assert set(now) - set(kept)
    assert sum(file.stat().st_size for file in now) <= room


def test_nothing_is_kept_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "file"))
    columns, records = numbers(0, 12)
    source = ParquetDataSource(write(tmp_path / "a.parquet", columns), cache_bytes=0)
    for _ in range(3):
        assert_same(source.__getitems__(range(12)), records)
    assert Unpacked("anything", 0).open(0) is None


def test_columns_are_chosen(tmp_path: Path) -> None:
    table = {"x": [1, 2], "st": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], "a.b": ["p", "q"]}
    path = write(tmp_path / "a.parquet", table)
    check_source(ParquetDataSource(path, columns=["x"]), [{"x": np.int64(i)} for i in (1, 2)])
    nested = ParquetDataSource(path, columns=["st.b", "x"])
    assert nested[1] == {"st": {"b": "y"}, "x": 2}
    assert ParquetDataSource(path, columns=["a.b"])[0] == {"a.b": "p"}
    with pytest.raises(PlanError, match=r"no column 'y'; it has 'x', 'st', 'a\.b'"):
        ParquetDataSource(path, columns=["x", "y"])
    with pytest.raises(PlanError, match=r"write `columns=\['x'\]`"):
        ParquetDataSource(path, columns="x")
    with pytest.raises(PlanError, match="at least one"):
        ParquetDataSource(path, columns=[])
    with pytest.raises(PlanError, match="twice"):
        ParquetDataSource(path, columns=["x", "x"])
    with pytest.raises(PlanError, match="cache_bytes is a number of bytes, 0 for none, and got -1"):
        ParquetDataSource(path, cache_bytes=-1)


def test_columns_in_another_order_are_the_same(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": [1, 2], "s": ["a", "b"]})
    write(tmp_path / "b.parquet", {"s": ["c"], "x": [3]})
    source = ParquetDataSource(tmp_path)
    assert [list(record.values()) for record in source.__getitems__([2, 0])] == [[3, "c"], [1, "a"]]
    assert list(source[2]) == ["x", "s"]


def test_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": [1], "y": [1]})
    write(tmp_path / "b.parquet", {"x": [1.5], "y": [1]})
    with pytest.raises(FileError, match=r"'x' is int64 in '.*a\.parquet' and double in '.*b\.parq"):
        ParquetDataSource(tmp_path)
    assert len(ParquetDataSource(tmp_path, columns=["y"])) == 2
    write(tmp_path / "b.parquet", {"x": [1]})
    with pytest.raises(FileError, match=r"'y' is int64 in .* and not there in '.*b\.parquet'"):
        ParquetDataSource(tmp_path)
    twice = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(FileError, match="several columns 'x'"):
        ParquetDataSource(write(tmp_path / "c.parquet", twice))


def test_empty_files(tmp_path: Path) -> None:
    empty = pa.schema([("x", pa.int64())])
    path = write(tmp_path / "none.parquet", empty.empty_table())
    check_source(ParquetDataSource(path), [])
    pq.ParquetWriter(tmp_path / "no-groups.parquet", empty).close()
    check_source(ParquetDataSource(tmp_path / "no-groups.parquet"), [])
    no_columns = pa.table({"x": [1, 2]}).select([])
    assert len(ParquetDataSource(write(tmp_path / "no-columns.parquet", no_columns))) in (0, 2)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"no file '.*b\.parquet'"):
        ParquetDataSource(tmp_path / "b.parquet")
    with pytest.raises(MissingFileError, match=r"no file that ends in \.parquet"):
        ParquetDataSource(tmp_path)
    whole = Path(write(tmp_path / "a.parquet", numbers(0, 40)[0])).read_bytes()
    for content in (b"", b"text" * 20, whole[:-50], whole[: len(whole) // 2]):
        (tmp_path / "bad.parquet").write_bytes(content)
        with pytest.raises(FileError, match=r"'.*bad\.parquet' is no Parquet file, or not a whole"):
            ParquetDataSource(tmp_path / "bad.parquet")


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"s": [f"text {i}" * 50 for i in range(8)]})
    data = bytearray(Path(path).read_bytes())
    group = pq.ParquetFile(path).metadata.row_group(1).column(0)
    start = group.dictionary_page_offset or group.data_page_offset
    data[start : start + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    Path(path).write_bytes(data)
    source = ParquetDataSource(path)
    assert source[3]["s"].startswith("text 3")
    with pytest.raises(FileError, match=r"row group 1 of '.*a\.parquet' cannot be read"):
        source[4]
    with pytest.raises(FileError) as caught:
        list(bushel.MapDataset.source(source))
    assert any("record 4 of" in note for note in caught.value.__notes__)


def test_a_file_that_was_changed_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbers(0, 40)[0])
    source = ParquetDataSource(path, cache_bytes=1000)  # Too little for what was not asked for.
    assert source[0]["id"] == 0
    write(tmp_path / "a.parquet", numbers(50, 20)[0])
    with pytest.raises(FileError, match="is another file than the one that this source was made"):
        source[39]
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(MissingFileError):
        source[20]


def test_bytes_from_anywhere(tmp_path: Path) -> None:
    """What pyarrow asks of a file, through bushel's own."""
    path = write(tmp_path / "a.parquet", numbers(0, 40)[0])
    file = pq.ParquetFile(pa.PythonFile(SeekableFile(LocalFile(path)), mode="r"))
    assert file.read().equals(pq.read_table(path))
    seekable = SeekableFile(LocalFile(path))
    seekable.seek(-4, os.SEEK_END)
    assert (seekable.read(), seekable.read(1)) == (b"PAR1", b"")


def test_files_far_away(tmp_path: Path) -> None:
    columns, records = numbers(0, 12)
    path = write(tmp_path / "a.parquet", columns)
    far = fsspec.filesystem("memory")
    far.pipe("/bushel-parquet/a.parquet", Path(path).read_bytes())
    try:
        check_source(ParquetDataSource("memory://bushel-parquet", cache_bytes=600), records)
        with pytest.raises(MissingFileError, match=r"memory://bushel-parquet/b\.parquet"):
            ParquetDataSource("memory://bushel-parquet/b.parquet")
    finally:
        far.rm("/bushel-parquet", recursive=True)


def test_workers_read_the_same(tmp_path: Path) -> None:
    columns, records = numbers(0, 40)
    columns["text"] = pa.array([str(i) for i in range(40)])
    source = ParquetDataSource(write(tmp_path / "a.parquet", columns), cache_bytes=2000)
    assert len(pickle.dumps(source)) < 4000
    records = [{**record, "text": str(i)} for i, record in enumerate(records)]
    check_source(source, records, workers=True)


def test_a_forked_process_reads_for_itself(tmp_path: Path) -> None:
    columns, records = numbers(0, 40)
    source = ParquetDataSource(write(tmp_path / "a.parquet", columns), cache_bytes=600)
    assert_same(source.__getitems__(range(40)), records)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            assert_same(source.__getitems__(range(40)), records)
            os.write(writer, b"same")
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        assert answer.read() == b"same"
    os.waitpid(child, 0)


# The cache of decoded parts.


def test_a_part_is_made_by_one_thread() -> None:
    loads: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def load(number: int, again: bool) -> TablePart:
        loads.append(number)
        entered.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return TablePart([], 10)

    cache = PartCache(100, load)
    with ThreadPoolExecutor(4) as pool:
        parts = [pool.submit(cache.get, 7) for _ in range(4)]
        assert entered.wait(PATIENCE_SECONDS)
        assert cache.is_coming(7) and not cache.is_coming(8)
        go_on.set()
        assert len({id(part.result(PATIENCE_SECONDS)) for part in parts}) == 1
    assert loads == [7]


def test_a_part_that_fails_is_made_again() -> None:
    errors: Iterator[BaseException | None] = iter([ValueError("no"), KeyboardInterrupt(), None])

    def load(number: int, again: bool) -> TablePart:
        error = next(errors)
        if error is not None:
            raise error
        return TablePart([], 10)

    cache = PartCache(100, load)
    with pytest.raises(ValueError, match="no"):
        cache.get(1)
    with pytest.raises(KeyboardInterrupt):
        cache.get(1)
    assert cache.get(1) is cache.get(1)


def test_an_interrupted_thread_does_not_interrupt_others() -> None:
    entered, go_on = threading.Event(), threading.Event()
    first = threading.Event()

    def load(number: int, again: bool) -> TablePart:
        if not first.is_set():
            first.set()
            entered.set()
            assert go_on.wait(PATIENCE_SECONDS)
            raise KeyboardInterrupt
        return TablePart([], 10)

    cache = PartCache(100, load)
    with ThreadPoolExecutor(2) as pool:
        interrupted = pool.submit(cache.get, 1)
        assert entered.wait(PATIENCE_SECONDS)
        other = pool.submit(cache.get, 1)
        go_on.set()
        assert isinstance(other.result(PATIENCE_SECONDS), TablePart)
        with pytest.raises(KeyboardInterrupt):
            interrupted.result(PATIENCE_SECONDS)


CUT_SHORT = """
import glob, os, sys

from bushel.sources import ParquetDataSource

source = ParquetDataSource(sys.argv[1], cache_bytes=1000)
groups = [0, 5000, 10000, 15000]
for _ in range(2):
    source.__getitems__(groups)
kept = glob.glob(os.environ["BUSHEL_CACHE"] + "/**/*.unpacked", recursive=True)
assert len(kept) == 4, kept
for path in kept:
    os.truncate(path, 4096)
for _ in range(2):
    assert [source[key + 4000]["x"] for key in groups] == [key + 4000 for key in groups]
"""


def test_what_was_unpacked_is_cut_short_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": list(range(20000))}), path, row_group_size=5000)
    run(CUT_SHORT, str(path))
