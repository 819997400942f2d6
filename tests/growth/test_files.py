"""Files by the thousand: few of them open, each opened once for what is wanted of it."""

import io
import json
import os
import pickle
import resource
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.files.local import LocalFile, OpenFiles
from bushel.sources.indexed import IndexedSource
from tests.growth.counting import open_descriptors

EACH = 4
FEW, MANY = 8, 400


def write_lines(path: Path, records: range) -> None:
    path.write_text("".join(json.dumps({"x": x}) + "\n" for x in records))


def write_array_record(path: Path, records: range) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for x in records:
        writer.write(str(x).encode())
    writer.close()


def write_parquet(path: Path, records: range) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": list(records)}), path)


def write_tar(path: Path, records: range) -> None:
    with tarfile.open(path, "w") as tar:
        for x in records:
            data = str(x).encode()
            member = tarfile.TarInfo(f"{x:06d}.txt")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def in_dict(record: Any) -> int:
    return int(record["x"])


def in_text(record: Any) -> int:
    return int(record["txt"])


KINDS: dict[str, tuple[str, Callable[[Path, range], None], Callable[[Any], int]]] = {
    "JsonLinesDataSource": (".jsonl", write_lines, in_dict),
    "ArrayRecordDataSource": (".array_record", write_array_record, int),
    "ParquetDataSource": (".parquet", write_parquet, in_dict),
    "TarDataSource": (".tar", write_tar, in_text),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], list[str]]:
    """The same files for all tests: a few, and many."""
    found = {}
    for kind, (ending, write, _) in KINDS.items():
        for count in (FEW, MANY):
            folder = tmp_path_factory.mktemp(f"{kind}-{count}")
            paths = [folder / f"{number:05d}{ending}" for number in range(count)]
            for number, path in enumerate(paths):
                write(path, range(number * EACH, (number + 1) * EACH))
            found[kind, count] = [str(path) for path in paths]
    return found


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Lets this process have 600 open files: fewer than there are for a source and its index."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(600, hard), hard))
    yield 600
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", KINDS)
def test_open_files_are_few(
    kind: str, folders: dict[tuple[str, int], list[str]], few_descriptors: int
) -> None:
    before = open_descriptors()
    source = getattr(bushel.sources, kind)(folders[kind, MANY])
    keys = np.random.default_rng(1).permutation(EACH * MANY)
    value_of = KINDS[kind][2]
    assert [value_of(record) for record in source.__getitems__(keys)] == keys.tolist()
    assert open_descriptors() - before <= 260 < MANY < few_descriptors


@pytest.mark.parametrize("kind", KINDS)
def test_states_and_names_do_not_grow_with_files(
    kind: str, folders: dict[tuple[str, int], list[str]]
) -> None:
    sizes = []
    for count in (FEW, MANY):
        source = getattr(bushel.sources, kind)(folders[kind, count])
        stream = iter(bushel.MapDataset.source(source).shuffle(seed=1).to_iter_dataset())
        next(stream)
        state = len(json.dumps(stream.get_state()))
        # What a worker is sent: names and sizes.
        sent = (len(pickle.dumps(source)) - len("".join(folders[kind, count]))) / count
        sizes.append((state, len(repr(source)), sent))
    (state, name, sent), (later_state, later_name, later_sent) = sizes
    # A number may have a digit more, and a folder's name too.
    assert later_state <= state + 8
    assert later_name <= name + 8
    assert later_sent <= sent <= 150


@pytest.mark.parametrize("kind", ["JsonLinesDataSource", "TarDataSource"])
def test_a_block_of_keys_opens_each_file_once(
    kind: str, folders: dict[tuple[str, int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = getattr(bushel.sources, kind)(folders[kind, MANY])
    opened: list[str] = []
    reads: list[int] = []
    open_one, read = OpenFiles._make, IndexedSource._bytes

    def counted_open(self: OpenFiles, path: str) -> Any:
        opened.append(path)
        return open_one(self, path)

    def counted_read(self: Any, number: int, records: Any) -> Any:
        reads.append(number)
        return read(self, number, records)

    monkeypatch.setattr(OpenFiles, "_make", counted_open)
    monkeypatch.setattr(IndexedSource, "_bytes", counted_read)
    keys = np.random.default_rng(2).permutation(EACH * MANY)
    source.__getitems__(keys)
    assert sorted(reads) == list(range(MANY))
    assert len(opened) == len(set(opened)) <= MANY
    opened.clear()
    reads.clear()
    source.__getitems__(keys[:32])
    assert len(reads) == len(set(reads)) <= 32
    assert len(opened) <= 32


def test_a_second_look_at_files_goes_through_none(
    folders: dict[tuple[str, int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = folders["JsonLinesDataSource", MANY]
    first = bushel.sources.JsonLinesDataSource(paths)
    scanned: list[str] = []
    monkeypatch.setattr(
        bushel.sources.JsonLinesDataSource,
        "scan",
        lambda self, file, progress: scanned.append(file.path),
    )
    assert len(bushel.sources.JsonLinesDataSource(paths)) == len(first)
    assert scanned == []


@pytest.mark.parametrize("kind", KINDS)
def test_opening_starts_no_thread_for_each_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, write, _ = KINDS[kind]
    for number in range(60):  # that nobody has looked at yet
        write(tmp_path / f"{number:03d}{ending}", range(EACH))
    started: list[str] = []
    start = threading.Thread.start

    def counted(self: threading.Thread) -> None:
        started.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", counted)
    source = getattr(bushel.sources, kind)(str(tmp_path))
    assert len(source) == 60 * EACH
    assert len(started) <= 32


def write_arrow(path: Path, records: range) -> None:
    import pyarrow as pa
    import pyarrow.feather

    pyarrow.feather.write_feather(pa.table({"x": list(records)}), path)


TABLES: dict[str, tuple[str, Callable[[Path, range], None]]] = {
    "ParquetDataSource": (".parquet", write_parquet),
    "ArrowDataSource": (".arrow", write_arrow),
}


def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of files that are opened from now on."""
    opened: list[str] = []
    open_one = LocalFile.__init__

    def counted(self: LocalFile, path: str) -> None:
        opened.append(path)
        open_one(self, path)

    monkeypatch.setattr(LocalFile, "__init__", counted)
    return opened


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_with_a_small_table_is_opened_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few records are wanted at a time, and from a memory that holds few of them."""
    ending, write = TABLES[kind]
    paths = [tmp_path / f"{number:05d}{ending}" for number in range(MANY)]
    for number, path in enumerate(paths):
        write(path, range(number * EACH, (number + 1) * EACH))
    keys = np.random.default_rng(3).permutation(EACH * MANY)
    source = getattr(bushel.sources, kind)(list(map(str, paths)))
    opened = opened_files(monkeypatch)
    for start in range(0, len(keys), 50):
        some = keys[start : start + 50]
        assert [record["x"] for record in source.__getitems__(some)] == some.tolist()
    assert sorted(opened) == sorted(map(str, paths))
    # What had to make room is opened once more, and is then on the disk.
    most = getattr(bushel.sources, kind)(list(map(str, paths)), cache_bytes=1 << 17)
    opened.clear()
    for start in range(0, len(keys), 50):
        some = keys[start : start + 50]
        assert [record["x"] for record in most.__getitems__(some)] == some.tolist()
    assert len(opened) <= 2 * MANY


@pytest.mark.parametrize("kind", TABLES)
def test_a_damaged_file_among_small_ones_takes_no_other_along(kind: str, tmp_path: Path) -> None:
    ending, write = TABLES[kind]
    for number in range(FEW):
        write(tmp_path / f"{number}{ending}", range(number * EACH, (number + 1) * EACH))
    source = getattr(bushel.sources, kind)(str(tmp_path))
    bad = tmp_path / f"3{ending}"
    bad.write_bytes(bytes(bad.stat().st_size))
    os.utime(bad, ns=(0, 0))
    with pytest.raises(bushel.errors.FileError, match=f"3{ending}' is another file"):
        source.__getitems__(range(FEW * EACH))
    good = [key for key in range(FEW * EACH) if key // EACH != 3]
    assert [record["x"] for record in source.__getitems__(good)] == good
    assert [source[key]["x"] for key in good] == good
    with pytest.raises(bushel.errors.FileError, match="is another file"):
        source[3 * EACH]
