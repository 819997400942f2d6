"""What bushel keeps for itself is its user's alone, checked when it is read, and never a way out.

Every writer of kept files is in a table. One that is new joins by being listed.
"""

import gzip
import os
import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bushel import MapDataset, sources
from bushel.checkpoint.folders import encode, write_encoded
from bushel.cli.main import main
from bushel.errors import FileError
from bushel.files import private
from bushel.files.copies import local_path
from bushel.files.remote import RemoteFile
from bushel.sources.arrow import unpacked
from tests.files.server import Server

LINES = [f"line {number}" for number in range(9_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
VICTIM = b"somebody's file"
SOMEBODY = 54321
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


class Place(NamedTuple):
    """Where a writer works."""

    data: Path
    cache: Path
    server: Server


def index_of_lines(place: Place) -> Any:
    path = place.data / "a.txt"
    if not path.exists():
        path.write_bytes(TEXT)
        # Nobody can write a file there, so the index is kept in the cache folder.
        (place.data / ".a.txt.lines.bushel-index").mkdir()
    source = sources.TextLinesDataSource(path)
    return source.__getitems__(range(len(source))) == LINES


def compressed_lines(place: Place) -> Any:
    path = place.data / "a.txt.gz"
    if not path.exists():
        path.write_bytes(gzip.compress(TEXT))
    source = sources.TextLinesDataSource(path)
    return source.__getitems__(range(len(source))) == LINES


def copy_of_a_remote_file(place: Place) -> Any:
    place.server.files.setdefault("a.bin", TEXT)
    return Path(local_path(place.server.url("a.bin"))).read_bytes() == TEXT


def pieces_of_a_remote_file(place: Place) -> Any:
    place.server.files.setdefault("b.bin", TEXT)
    file = RemoteFile(place.server.url("b.bin"))
    return file.read(0, len(TEXT)) == TEXT


def row_groups(place: Place) -> Any:
    path = place.data / "a.parquet"
    if not path.exists():
        table = pa.table({"x": np.arange(3000), "s": LINES[:3000]})
        pq.write_table(table, path, row_group_size=1000)
    source = sources.ParquetDataSource(path, cache_bytes=0)
    found = [source.__getitems__(range(3000)) for _ in range(2)][1]
    return found == [{"x": number, "s": LINES[number]} for number in range(3000)]


class Writer(NamedTuple):
    """One that keeps files: the folder in the cache folder, what uses it, what it needs."""

    folder: str
    use: Callable[[Place], Any]
    # Whether records can be read without what is kept.
    does_without: bool


WRITERS = {
    "index": Writer("index", index_of_lines, True),
    "unpacked": Writer("unpacked", compressed_lines, False),
    "copies": Writer("copies", copy_of_a_remote_file, False),
    "remote": Writer("remote", pieces_of_a_remote_file, True),
    "parts": Writer("parts", row_groups, True),
}


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Iterator[Place]:
    (tmp_path / "data").mkdir()
    private.warn_once.cache_clear()
    yield Place(tmp_path / "data", tmp_path / "cache", server)


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> Writer:
    return WRITERS[request.param]


def folder_of(place: Place, writer: Writer) -> Path:
    return place.cache / f"{writer.folder}-{os.geteuid()}"


def kept_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def test_all_of_it_is_private(place: Place, writer: Writer) -> None:
    before = os.umask(0)
    try:
        assert writer.use(place)
    finally:
        os.umask(before)
    # Whoever keeps something elsewhere has to be listed.
    allowed = {f"{one.folder}-{os.geteuid()}" for one in WRITERS.values()}
    assert {path.name for path in place.cache.iterdir()} <= allowed
    assert kept_files(folder_of(place, writer))
    for path in place.cache.rglob("*"):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    assert writer.use(place)


def refused_or_done_without(place: Place, writer: Writer, problem: str, caplog: Any) -> None:
    if writer.does_without:
        with pytest.warns() if writer.folder == "remote" else _nothing():
            assert writer.use(place)
        if writer.folder != "remote":
            assert problem in caplog.text and "BUSHEL_CACHE" in caplog.text
    else:
        with pytest.raises(FileError, match=f"{problem}.*BUSHEL_CACHE"):
            writer.use(place)


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def test_a_link_in_place_of_its_folder(
    place: Place, writer: Writer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o755)
    place.cache.mkdir()
    folder_of(place, writer).symlink_to(elsewhere)
    refused_or_done_without(place, writer, "is a link", caplog)
    assert list(elsewhere.iterdir()) == []
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755


@only_root
def test_a_folder_of_somebody_else(
    place: Place, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of(place, writer)
    folder.mkdir(0o777, parents=True)
    os.chown(folder, SOMEBODY, SOMEBODY)
    refused_or_done_without(place, writer, f"belongs to user {SOMEBODY}", caplog)
    assert list(folder.iterdir()) == []


def test_links_in_place_of_its_files(place: Place, writer: Writer, tmp_path: Path) -> None:
    assert writer.use(place)
    victim = tmp_path / "victim"
    victim.write_bytes(VICTIM)
    links = [path for path in folder_of(place, writer).rglob("*") if path.is_file()]
    links += [path.with_name(path.name + ".lock") for path in links]
    for path in links:
        path.unlink(missing_ok=True)
        path.symlink_to(victim)
    try:
        assert writer.use(place)
    except FileError as error:
        assert "is a link" in str(error)
    except UserWarning as warning:
        assert "is a link" in str(warning)
    assert victim.read_bytes() == VICTIM
    assert victim.stat().st_nlink == 1


@only_root
def test_files_of_somebody_else(place: Place, writer: Writer) -> None:
    """They are as they should be; but somebody else may change them at any time."""
    assert writer.use(place)
    for path in kept_files(folder_of(place, writer)):
        os.chown(path, SOMEBODY, SOMEBODY)
    try:
        assert writer.use(place)
    except FileError as error:
        assert f"belongs to user {SOMEBODY}" in str(error)
    except UserWarning as warning:
        assert f"belongs to user {SOMEBODY}" in str(warning)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes that are not as they were written."""
    kind = rng.randrange(5)
    at = rng.randrange(len(data))
    if kind == 0:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data + rng.randbytes(rng.randrange(1, 40))
    if kind == 3:
        # Sizes are beyond anything there.
        return data[:at] + (2**60).to_bytes(8, "little") + data[at + 8 :]
    return data[:at] + rng.randbytes(rng.randrange(1, 200)) + data[at:]


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_noticed_and_made_good(place: Place, writer: Writer, seed: int) -> None:
    assert writer.use(place)
    rng = random.Random(seed)
    for path in kept_files(folder_of(place, writer)):
        if path.name == ".lock":
            continue
        wrong = path.with_name("wrong")
        wrong.write_bytes(damaged(path.read_bytes(), rng))
        wrong.chmod(0o600)
        os.replace(wrong, path)
    unpacked._checked.clear()
    assert writer.use(place)
    assert writer.use(place)


# Files that users name.


def test_a_link_at_the_partial_file_of_a_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(VICTIM)
    (tmp_path / "kept.partial").symlink_to(victim)
    ds = MapDataset.range(5).to_iter_dataset().cache(tmp_path / "kept")
    assert list(ds) == list(range(5))
    assert "is a link" in caplog.text
    assert victim.read_bytes() == VICTIM
    assert not (tmp_path / "kept").exists()


def test_a_second_name_at_the_partial_file_of_a_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(VICTIM)
    os.link(victim, tmp_path / "kept.partial")
    ds = MapDataset.range(5).to_iter_dataset().cache(tmp_path / "kept")
    assert list(ds) == list(range(5))
    assert "by a second name" in caplog.text
    assert victim.read_bytes() == VICTIM


def test_links_at_files_that_are_replaced(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(VICTIM)
    (tmp_path / "process_0-of-1.json").symlink_to(victim)
    write_encoded(tmp_path, encode({"next_index": 3}))
    assert victim.read_bytes() == VICTIM
    assert not (tmp_path / "process_0-of-1.json").is_symlink()


def test_what_killed_saves_left_goes_with_the_next_one(tmp_path: Path) -> None:
    left = tmp_path / ".process_0-of-1.json.0123456789abcdef"
    other = tmp_path / ".process_1-of-2.json.0123456789abcdef"
    for path in (left, other):
        path.write_bytes(b"{")
    write_encoded(tmp_path, encode({"next_index": 3}))
    assert sorted(os.listdir(tmp_path)) == [other.name, "process_0-of-1.json"]


def test_a_link_in_place_of_the_folder_of_a_conversion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_bytes(VICTIM)
    (tmp_path / ".b.tfrecord.bushel-convert").symlink_to(elsewhere)
    assert main(["convert", str(tmp_path / "a.txt"), str(tmp_path / "b.tfrecord")]) != 0
    assert "is a link" in capsys.readouterr().err
    assert (elsewhere / "mine").read_bytes() == VICTIM


@only_root
@pytest.mark.parametrize(
    ("uid", "mode", "scans"),
    [(0, 0o644, 0), (0, 0o666, 1), (SOMEBODY, 0o644, 1), (SOMEBODY + 1, 0o644, 0)],
)
def test_an_index_beside_a_file_is_believed_of_those_who_could_write_the_file(
    place: Place, uid: int, mode: int, scans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.data / "a.txt"
    path.write_bytes(TEXT)
    os.chown(path, SOMEBODY + 1, -1)
    path.chmod(0o644)
    sources.TextLinesDataSource(path)
    index = place.data / ".a.txt.lines.bushel-index"
    assert stat.S_IMODE(index.stat().st_mode) == 0o644
    os.chown(index, uid, -1)
    index.chmod(mode)
    inode = index.stat().st_ino
    assert len(sources.TextLinesDataSource(path)) == len(LINES)
    made = len(list(place.cache.rglob("*.bushel-index"))) + (index.stat().st_ino != inode)
    assert made == scans
    # What is of use to somebody else stays.
    assert index.stat().st_uid == (uid if not uid else index.stat().st_uid)
