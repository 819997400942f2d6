"""Folders that other systems wrote: MDS shards, litdata's chunks, Energon's tar files.

`foreign/` has what their packages have written and read; see `foreign/records.py`.
"""

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.errors import BushelError, FileError, MissingFileError, PlanError, RecordError
from bushel.sources import EnergonDataSource, LitDataDataSource, MDSDataSource
from bushel.sources.formats import format_of
from tests.grain.oracle import assert_same
from tests.sources.foreign.energon import PREPARED, write_shards
from tests.sources.foreign.records import (
    json_records,
    litdata_records,
    mds_records,
    small_records,
    token_blocks,
)

FOREIGN = Path(__file__).parent / "foreign"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path_factory.mktemp("cache")))


def _all(source: Any) -> list[Any]:
    return [source[key] for key in range(len(source))]


def test_all_encodings_of_mds() -> None:
    assert_same(_all(MDSDataSource(FOREIGN / "mds", decode=True)), mds_records())


def test_pictures_are_bytes_unless_decoded() -> None:
    record = bushel.open(FOREIGN / "mds")[1]
    assert record["png"].startswith(b"\x89PNG")
    assert [part[:4] for part in record["pictures"]] == [b"\x89PNG"] * 2
    assert record["grey"].shape == (2, 2)


@pytest.mark.parametrize("packing", ["zstd", "gz", "bz2", "br", "snappy"])
def test_compressed_shards(packing: str) -> None:
    source = bushel.open(FOREIGN / f"mds-{packing}")
    assert [Path(path).suffix for path in source.paths] == [f".{packing}"] * 2
    assert all(Path(path).exists() for path in [*source.paths, source.place_of(5)[0]])
    assert_same(_all(source), small_records())
    assert_same(source.__getitems__([5, 0, 3]), [small_records()[key] for key in (5, 0, 3)])


def test_a_shard_that_somebody_unpacked(tmp_path: Path) -> None:
    """It is read where it lies."""
    folder = shutil.copytree(FOREIGN / "mds-gz", tmp_path / "mds")
    import gzip

    for packed in folder.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert_same(_all(bushel.open(folder)), small_records())


def test_some_columns() -> None:
    source = bushel.open(FOREIGN / "mds", columns=["text", "int"])
    wanted = [{"int": record["int"], "text": record["text"]} for record in mds_records()]
    assert_same(_all(source), wanted)


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("litdata", litdata_records),
        ("litdata-old", litdata_records),
        ("litdata-json", json_records),
        ("litdata-zstd", small_records),
        ("litdata-table", small_records),
        ("litdata-batched", lambda: [{"a": np.arange(n + 2)} for n in range(6)]),
    ],
)
def test_chunks_of_litdata(name: str, records: Callable[[], list[Any]]) -> None:
    source = bushel.open(FOREIGN / name)
    assert_same(_all(source), records())
    keys = [len(source) - 1, 0, 2]
    assert_same(source.__getitems__(keys), [records()[key] for key in keys])


def test_tokens_of_litdata() -> None:
    source = bushel.open(FOREIGN / "litdata-tokens", block_size=4)
    assert_same(_all(source), token_blocks())
    path, record, offset = source.place_of(4)
    data = Path(path).read_bytes()[offset : offset + 8]
    assert record == 1 and data == token_blocks()[4].tobytes()
    with pytest.raises(PlanError, match=r"has tokens, and a record is a block.*block_size=2049"):
        bushel.open(FOREIGN / "litdata-tokens")
    with pytest.raises(PlanError, match="has records, and no tokens"):
        bushel.open(FOREIGN / "litdata", block_size=4)


@pytest.mark.parametrize("name", ["mds-pkl", "litdata-pickle"])
def test_pickles_are_refused_unless_asked_for(name: str) -> None:
    with pytest.raises(FileError, match=r"is a pickle, and to read one can run any code.*allow_pi"):
        bushel.open(FOREIGN / name)
    assert _all(bushel.open(FOREIGN / name, allow_pickle=True)) == [{"x": {0}}, {"x": {1}}]


@pytest.mark.parametrize(
    ("name", "format"), [("mds", "mds"), ("mds-zstd", "mds"), ("litdata", "litdata")]
)
def test_a_folder_is_known_by_its_index(name: str, format: str, tmp_path: Path) -> None:
    assert format_of(FOREIGN / name).name == format
    assert format_of(f"{FOREIGN / name}/").name == format
    assert format_of(FOREIGN / name / "index.json").name == format
    again = bushel.open(FOREIGN / name / "index.json")
    assert_same(again[1], bushel.open(FOREIGN / name)[1])


def test_an_index_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"pages": []}')
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    assert format_of(tmp_path).name == "jsonl"


def test_shards_alone() -> None:
    with pytest.raises(PlanError, match="by way of their index: name the folder"):
        bushel.open(FOREIGN / "mds" / "shard.00000.mds")


def test_a_folder_far_away(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("mds", "mds-zstd", "litdata"):
        for file in (FOREIGN / name).iterdir():
            memory.pipe(f"/foreign/{name}/{file.name}", file.read_bytes())
    try:
        assert_same(_all(bushel.open("memory://foreign/mds", decode=True)), mds_records())
        assert_same(_all(bushel.open("memory://foreign/litdata/")), litdata_records())
        here = bushel.open(FOREIGN / "mds")
        far = bushel.open("memory://foreign/mds")
        assert_same(far.__getitems__([9, 0, 3]), here.__getitems__([9, 0, 3]))
    finally:
        memory.rm("/foreign", recursive=True)


Change = Callable[[dict[str, Any]], Any]
WRONG: list[tuple[str, Change, str]] = [
    ("mds", lambda told: told["shards"][0]["raw_data"].update(basename="../secret"), "same folder"),
    ("mds", lambda told: told["shards"][0]["raw_data"].update(basename="/etc/passwd"), "same fold"),
    ("mds", lambda told: told["shards"][0]["raw_data"].update(basename="a/../../b"), "same folder"),
    ("mds", lambda told: told["shards"][0]["raw_data"].update(basename=7), "same folder"),
    (
        "mds",
        lambda told: told["shards"][0]["raw_data"].update(bytes=9),
        "has .* bytes, and .* says",
    ),
    ("mds", lambda told: told["shards"][0].update(samples=-1), "`samples` should be a count"),
    ("mds", lambda told: told["shards"][0].update(samples=2), "says that it has 8 records"),
    ("mds", lambda told: told["shards"][0].update(samples=10**9), "no room for the places"),
    ("mds", lambda told: told["shards"][0].update(format="csv"), "has the format 'csv'"),
    ("mds", lambda told: told["shards"][0].update(version=3), "has version 3 of MDS"),
    ("mds", lambda told: told["shards"][0].update(raw_data=None), "which file it is"),
    ("mds", lambda told: told["shards"][0]["column_names"].pop(), "columns of shard 0 are not"),
    ("mds", lambda told: told["shards"][0]["column_encodings"].insert(0, "hdf5"), "are not told"),
    ("mds", lambda told: _set(told["shards"][0]["column_encodings"], 0, "hdf5"), "is not known"),
    ("mds", lambda told: _set(told["shards"][0]["column_sizes"], 0, 8), "should have None bytes"),
    ("mds", lambda told: told.update(shards=[3]), "shard 0 is no object"),
    ("mds-zstd", lambda told: told["shards"][0].update(compression="lzma"), "does not unpack"),
    ("litdata", lambda told: told["chunks"][0].update(filename="../x.bin"), "same folder"),
    ("litdata", lambda told: told["chunks"][0].update(chunk_bytes=10), "bytes, and .* says 10"),
    ("litdata", lambda told: told["chunks"][0].update(chunk_size=3), "says that it has 4 records"),
    ("litdata", lambda told: told["chunks"][0].update(chunk_size="3"), "should be a count"),
    (
        "litdata",
        lambda told: told["config"].update(encryption={"algorithm": "fernet"}),
        "encrypted",
    ),
    ("litdata", lambda told: told["config"]["data_format"].pop(), "have 10 parts, and 9 formats"),
    ("litdata", lambda told: _set(told["config"]["data_format"], 0, "graph"), "is not known"),
    ("litdata", lambda told: _set(told["config"]["data_format"], 3, "no_header_numpy:14"), "none"),
    ("litdata", lambda told: told["config"].update(data_spec=None), "what its records are made of"),
    ("litdata", lambda told: told["config"].update(data_spec="[2, {}]"), "way that is not known"),
    ("litdata", lambda told: told["config"].update(item_loader="ParquetLoader"), "Parquet files"),
    ("litdata-tokens", lambda told: told["chunks"][0].update(dim=10**6), "fewer tokens than"),
    ("litdata-batched", lambda told: told["chunks"][0].update(chunk_size=3), "it has 4 records"),
]


def _set(some: list[Any], place: int, value: Any) -> None:
    some[place] = value


@pytest.mark.parametrize(("name", "change", "words"), WRONG)
def test_indexes_are_not_believed(name: str, change: Change, words: str, tmp_path: Path) -> None:
    folder = shutil.copytree(FOREIGN / name, tmp_path / name)
    told = json.loads((folder / "index.json").read_text())
    change(told)
    (folder / "index.json").write_text(json.dumps(told))
    options = {"block_size": 4} if name == "litdata-tokens" else {}
    with pytest.raises(FileError, match=words):
        _all(bushel.open(folder, **options))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"shards": 1}', "[" * 100_000])
def test_no_index(text: str, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(text)
    for source in (MDSDataSource, LitDataDataSource):
        with pytest.raises(FileError, match="is no index of shards, or a damaged one"):
            source(tmp_path)


@pytest.mark.parametrize("name", ["mds", "litdata", "litdata-table", "litdata-batched"])
def test_fuzz_shards(name: str, tmp_path: Path) -> None:
    """Bytes that are damaged are other values, or an error of bushel's that names the file."""
    rng = np.random.default_rng(7)
    folder = shutil.copytree(FOREIGN / name, tmp_path / name)
    shard = sorted(path for path in folder.iterdir() if path.suffix != ".json")[0]
    whole = shard.read_bytes()
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(int(rng.integers(1, 8))):
            damaged[int(rng.integers(0, min(len(whole), 600)))] = int(rng.integers(0, 256))
        shard.write_bytes(damaged)
        source = bushel.open(folder, **({"decode": True} if name == "mds" else {}))
        for key in range(len(source)):
            try:
                source[key]
            except BushelError as error:
                assert str(shard) in str(error)
    for length in (0, 3, 8, 40, len(whole) - 1):
        shard.write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"bytes, and .* says"):
            bushel.open(folder)[0]


def test_a_bad_record_is_told(tmp_path: Path) -> None:
    folder = shutil.copytree(FOREIGN / "mds-gz", tmp_path / "mds")
    import gzip

    (packed, *_) = sorted(folder.glob("*.gz"))
    data = bytearray(gzip.decompress(packed.read_bytes()))
    place = bushel.open(folder).place_of(1)[2]
    data[place : place + 4] = b"\xff\xff\0\0"
    packed.with_suffix("").write_bytes(data)
    with pytest.raises(RecordError, match=rf"record 1 of .*begins at byte {place}.* goes on after"):
        bushel.open(folder)[1]
    kept = bushel.MapDataset.source(bushel.open(folder)).to_iter_dataset().on_error("skip")
    assert [record["x"] for record in kept] == [0, 2, 3, 4, 5]


def test_a_folder_that_is_replaced(tmp_path: Path) -> None:
    import pickle

    folder = shutil.copytree(FOREIGN / "mds", tmp_path / "mds")
    sent = pickle.dumps(bushel.open(folder))
    told = json.loads((folder / "index.json").read_text())
    told["shards"].pop()
    (folder / "index.json").write_text(json.dumps(told))
    with pytest.raises(FileError, match="is another file than the one"):
        pickle.loads(sent)[0]


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    folder = tmp_path / "prepared"
    write_shards(folder)
    (folder / ".nv-meta").mkdir()
    for name, text in PREPARED.items():
        (folder / ".nv-meta" / name).write_text(text)
    return folder


def test_a_folder_of_energon(prepared: Path) -> None:
    assert format_of(prepared).name == "energon"
    train, val = bushel.open(prepared), bushel.open(prepared, split="val", decode={"txt": True})
    assert [record["__key__"] for record in _all(train)] == [
        f"sample_{shard}_{number}" for shard in (0, 1) for number in range(4)
    ]
    assert train[5]["jpg"] == b"img1"
    assert val[1]["txt"] == "caption 1" and len(val) == 4
    with pytest.raises(PlanError, match="no part 'test'; it has 'train', 'val'"):
        bushel.open(prepared, split="test")


def test_energon_leaves_files_out(prepared: Path) -> None:
    listed = prepared / ".nv-meta" / "split.yaml"
    text = listed.read_text()
    listed.write_text(text.replace("exclude: []", "exclude: [shards/shard_000.tar]"))
    assert len(bushel.open(prepared)) == 4
    listed.write_text(text.replace("exclude: []", "exclude: [shards/shard_000.tar/sample_0_1]"))
    with pytest.raises(FileError, match="leaves out single samples"):
        bushel.open(prepared)


def test_energon_counts(prepared: Path) -> None:
    with tarfile.open(prepared / "shards/shard_001.tar", "w") as tar:
        member = tarfile.TarInfo("a.txt")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(FileError, match="has 1 samples, and Energon counted 4"):
        bushel.open(prepared)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("split_parts: {train: ['../a.tar']}", FileError, "name of a file in the folder"),
        ("split_parts: {train: ['/etc/a.tar']}", FileError, "name of a file in the folder"),
        ("split_parts: {train: ['{0..99999999999}.tar']}", FileError, "too many files"),
        ("split_parts: {train: [3]}", FileError, "no name of a file"),
        ("split_parts: {train: []}", PlanError, "has no files"),
        ("split_parts: [1]", FileError, "no lists of `split_parts`"),
        ("{", FileError, "cannot be read"),
        ("!!python/object/apply:os.system ['true']", FileError, "cannot be read"),
        ("split_parts: {train: ['none.tar']}", MissingFileError, "no file .*none.tar"),
    ],
)
def test_energon_lists(text: str, kind: type[BushelError], words: str, prepared: Path) -> None:
    (prepared / ".nv-meta" / "split.yaml").write_text(text)
    with pytest.raises(kind, match=words):
        EnergonDataSource(prepared)
