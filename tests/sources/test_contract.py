"""What every source over files promises. A source joins by an entry in `SOURCES`.

An entry writes files to a folder, and returns a source over them and its records.
"""

import gzip
import io
import json
import pickle
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bagz
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bushel.sources import (
    ArrowDataSource,
    BagzDataSource,
    CsvDataSource,
    FilesDataSource,
    JsonLinesDataSource,
    LitDataDataSource,
    MDSDataSource,
    NumpyDataSource,
    ParquetDataSource,
    TarDataSource,
    TextLinesDataSource,
    TFRecordDataSource,
    TokenDataSource,
    ZarrDataSource,
    encode_example,
    write_tfrecords,
)
from tests.later import later
from tests.sources.foreign.records import litdata_records, mds_records, small_records, token_blocks
from tests.sources.reading import check_source, run

zarr = later("zarr")

FOREIGN = Path(__file__).parent / "foreign"

Factory = Callable[[Path], tuple[Any, list[Any]]]


def tfrecords(folder: Path) -> tuple[Any, list[Any]]:
    records = [f"record {number} ".encode() * number for number in range(40)]
    write_tfrecords(folder / "a.tfrecord", records[:25])
    write_tfrecords(folder / "b.tfrecord", [])
    write_tfrecords(folder / "c.tfrecord", records[25:])
    return TFRecordDataSource(folder), records


def examples(folder: Path) -> tuple[Any, list[Any]]:
    records = [
        {"id": np.int64(number), "x": np.array([number / 2, -number], np.float32), "b": b"abc"}
        for number in range(30)
    ]
    write_tfrecords(folder / "a.tfrecord", map(encode_example, records))
    features = {"id": (int, ()), "x": (float, (2,)), "b": (bytes, ())}
    return TFRecordDataSource(folder / "a.tfrecord", features=features), records


def numbers(folder: Path) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(1)
    records = [
        {"id": np.int64(number * 37 - 99), "x": rng.random((2, 3), np.float32)}
        for number in range(40)
    ]
    for part in range(2):
        write_tfrecords(folder / f"{part}.tfrecord", map(encode_example, records[part * 20 :][:20]))
    return TFRecordDataSource(folder, features={"x": (float, (2, 3)), "id": (int, ())}), [
        {"x": record["x"], "id": record["id"]} for record in records
    ]


def texts(folder: Path) -> tuple[Any, list[Any]]:
    lines = ["", "one", "zwölf " * 30, "", "end"]
    (folder / "b.txt").write_bytes("\r\n".join(lines).encode())
    (folder / "a.txt").write_text("first\nsecond\n")
    (folder / "empty.txt").touch()
    return TextLinesDataSource(folder), ["first", "second", *lines]


def json_lines(folder: Path) -> tuple[Any, list[Any]]:
    records = [{"id": number, "text": "é" * number} for number in range(50)]
    text = "\n\n".join(json.dumps(record) for record in records)
    (folder / "a.jsonl").write_text(f"\n{text}\n \n")
    return JsonLinesDataSource(folder / "a.jsonl"), records


def compressed(folder: Path) -> tuple[Any, list[Any]]:
    records = [{"id": number} for number in range(50)]
    text = "\n".join(json.dumps(record) for record in records)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return JsonLinesDataSource(folder), records


def csv_rows(folder: Path) -> tuple[Any, list[Any]]:
    rows = [{"id": number, "text": f'a "word",\n{number}'} for number in range(30)]
    text = "".join(f'{row["id"]},"a ""word"",\n{row["id"]}",unused\r\n' for row in rows)
    (folder / "a.csv").write_bytes(b"\xef\xbb\xbfid,text,more\r\n" + text.encode())
    return CsvDataSource(folder, columns={"id": int, "text": str}), rows


def samples(folder: Path) -> tuple[Any, list[Any]]:
    records = [
        {"__key__": f"part/{number}", "txt": f"text {number}", "cls": number}
        for number in range(20)
    ]
    with tarfile.open(folder / "a.tar", "w") as tar:
        for record in records:
            for ending in ("txt", "cls"):
                data = str(record[ending]).encode()
                member = tarfile.TarInfo(f"{record['__key__']}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return TarDataSource(folder, decode=True), records


def arrays(folder: Path) -> tuple[Any, list[Any]]:
    x, y = np.arange(60).reshape(20, 3), np.arange(20.0)
    np.save(folder / "x-0.npy", x[:8])
    np.save(folder / "x-1.npy", x[8:])
    np.save(folder / "y.npy", y)
    paths = {"x": str(folder / "x-*.npy"), "y": folder / "y.npy"}
    return NumpyDataSource(paths), [{"x": row, "y": y[key]} for key, row in enumerate(x)]


def archives(folder: Path) -> tuple[Any, list[Any]]:
    np.savez(folder / "a.npz", x=np.arange(5), y=np.arange(10).reshape(5, 2))
    np.savez_compressed(folder / "b.npz", x=np.arange(5), y=np.arange(10).reshape(5, 2))
    rows = [{"x": np.int64(key), "y": np.array([2 * key, 2 * key + 1])} for key in range(5)]
    return NumpyDataSource(folder), rows + rows


def tokens(folder: Path) -> tuple[Any, list[Any]]:
    stored = np.arange(50, dtype=np.uint16)
    stored[:30].tofile(folder / "a.bin")
    stored[30:].tofile(folder / "b.bin")
    starts = [*range(0, 25, 5), *range(30, 45, 5)]
    windows = [
        {"inputs": stored[start : start + 5], "targets": stored[start + 1 : start + 6]}
        for start in starts
    ]
    return TokenDataSource(folder, 5, dtype=np.uint16, targets=True), windows


def whole_files(folder: Path) -> tuple[Any, list[Any]]:
    paths = [folder / f"{number}.txt" for number in (2, 9, 10)]
    for path in paths:
        path.write_text(path.stem)
    return FilesDataSource(folder), [
        {"data": path.stem.encode(), "path": str(path)} for path in paths
    ]


def bags(folder: Path) -> tuple[Any, list[Any]]:
    records = [f"record {number} ".encode() * number for number in range(20)]
    for name, part in (("a", records[:12]), ("b", records[12:])):
        with bagz.Writer(str(folder / f"{name}.bagz")) as writer:
            for record in part:
                writer.write(record)
    return BagzDataSource(folder), records


def chunks(folder: Path) -> tuple[Any, list[Any]]:
    array = np.arange(40).reshape(20, 2)
    path = str(folder / "a.zarr")
    zarr.create_array(path, shape=(20, 2), chunks=(3, 2), dtype=array.dtype)[:] = array
    return ZarrDataSource(path), list(array)


def row_groups(folder: Path) -> tuple[Any, list[Any]]:
    table = pa.table({"x": range(40), "text": [str(number) for number in range(40)]})
    pq.write_table(table.slice(0, 25), folder / "a.parquet", row_group_size=4)
    pq.write_table(table.slice(25), folder / "b.parquet", row_group_size=9)
    rows = [{"x": np.int64(number), "text": str(number)} for number in range(40)]
    return ParquetDataSource(folder, cache_bytes=500), rows


def record_batches(folder: Path) -> tuple[Any, list[Any]]:
    table = pa.table({"x": range(40), "text": [str(number) for number in range(40)]})
    for name, part in (("a", table.slice(0, 25)), ("b", table.slice(25))):
        with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as writer:
            writer.write_table(part, max_chunksize=4)
    rows = [{"x": np.int64(number), "text": str(number)} for number in range(40)]
    return ArrowDataSource(folder), rows


def mds_shards(folder: Path) -> tuple[Any, list[Any]]:
    shutil.copytree(FOREIGN / "mds", folder, dirs_exist_ok=True)
    # Those of `decimal` are objects, of which nobody makes a batch.
    columns = [name for name in mds_records()[0] if name != "decimal"]
    records = [{name: record[name] for name in sorted(columns)} for record in mds_records()]
    return MDSDataSource(folder, columns=columns, decode=True), records


def packed_mds_shards(folder: Path) -> tuple[Any, list[Any]]:
    shutil.copytree(FOREIGN / "mds-zstd", folder, dirs_exist_ok=True)
    return MDSDataSource(folder), small_records()


def litdata_chunks(folder: Path) -> tuple[Any, list[Any]]:
    shutil.copytree(FOREIGN / "litdata", folder, dirs_exist_ok=True)
    return LitDataDataSource(folder), litdata_records()


def litdata_batches(folder: Path) -> tuple[Any, list[Any]]:
    shutil.copytree(FOREIGN / "litdata-batched", folder, dirs_exist_ok=True)
    return LitDataDataSource(folder), [{"a": np.arange(number + 2)} for number in range(6)]


def litdata_table(folder: Path) -> tuple[Any, list[Any]]:
    shutil.copytree(FOREIGN / "litdata-table", folder, dirs_exist_ok=True)
    return LitDataDataSource(folder), small_records()


def litdata_tokens(folder: Path) -> tuple[Any, list[Any]]:
    shutil.copytree(FOREIGN / "litdata-tokens", folder, dirs_exist_ok=True)
    return LitDataDataSource(folder, block_size=4), token_blocks()


SOURCES: Mapping[str, Factory] = {
    "TFRecordDataSource": tfrecords,
    "TFRecordDataSource: features": examples,
    "TFRecordDataSource: numbers": numbers,
    "TextLinesDataSource": texts,
    "JsonLinesDataSource": json_lines,
    "JsonLinesDataSource: compressed": compressed,
    "CsvDataSource": csv_rows,
    "TarDataSource": samples,
    "NumpyDataSource": arrays,
    "NumpyDataSource: archives": archives,
    "TokenDataSource": tokens,
    "FilesDataSource": whole_files,
    "BagzDataSource": bags,
    "ZarrDataSource": chunks,
    "ParquetDataSource": row_groups,
    "ArrowDataSource": record_batches,
    "MDSDataSource": mds_shards,
    "MDSDataSource: compressed": packed_mds_shards,
    "LitDataDataSource": litdata_chunks,
    "LitDataDataSource: in batches": litdata_batches,
    "LitDataDataSource: tables": litdata_table,
    "LitDataDataSource: tokens": litdata_tokens,
}
every_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())


@pytest.fixture(scope="module")
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all, whose files are elsewhere: with it, workers come from one nursery."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def cache(one_cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", one_cache)


@every_source
def test_all_ways_to_read(make: Factory, tmp_path: Path) -> None:
    source, records = make(tmp_path)
    check_source(source, records, workers=True)


@every_source
def test_pickles_are_small(make: Factory, tmp_path: Path) -> None:
    """They hold the names of files, and neither records nor an index."""
    source, _ = make(tmp_path)
    source[0]
    assert len(pickle.dumps(source)) < 1500


@every_source
def test_keys_are_whole_numbers(make: Factory, tmp_path: Path) -> None:
    source, records = make(tmp_path)
    key = np.int64(len(records) - 1)
    assert repr(source[key]) == repr(records[-1]) == repr(source.__getitems__([key])[0])
    with pytest.raises(TypeError):
        source["0"]
    with pytest.raises(TypeError):
        source.__getitems__([0.5])


@every_source
def test_places_are_told(make: Factory, tmp_path: Path) -> None:
    source, records = make(tmp_path)
    path, record, offset = source.place_of(len(records) - 1)
    assert Path(path).parent == tmp_path
    assert 0 <= record < len(records)
    assert offset is None or offset >= 0


FORKED = """
import os, pickle, signal, sys, threading

for pickled in sys.argv[1:]:
    source = pickle.loads(bytes.fromhex(pickled))
    keys = [len(source) - 1, 0]
    records = repr(source.__getitems__(keys))
    # Nobody has read this one before the fork.
    fresh = pickle.loads(bytes.fromhex(pickled))
    child = os.fork()
    if not child:
        signal.alarm(120)
        assert repr(source.__getitems__(keys)) == records
        assert repr(fresh.__getitems__(keys)) == records
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert repr(source.__getitems__(keys)) == records
"""


def test_forked_processes_read(tmp_path: Path) -> None:
    pickles = []
    for number, make in enumerate(SOURCES.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        pickles.append(pickle.dumps(make(folder)[0]).hex())
    run(FORKED, *pickles)
