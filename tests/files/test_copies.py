"""Files that cannot be read where they lie, far away: copied once, for all processes."""

import logging
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bagz
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import bushel
from bushel import sources
from bushel.errors import FileError, MissingFileError
from bushel.files.copies import local_path
from tests.files.server import Server


def _npy(path: Path) -> None:
    np.save(path, np.arange(12).reshape(6, 2))


def _tokens(path: Path) -> None:
    np.arange(12, dtype=np.uint16).tofile(path)


def _bagz(path: Path) -> None:
    with bagz.Writer(str(path)) as writer:
        for number in range(3):
            writer.write(b"%d" % number)


def _array_record(path: Path) -> None:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for number in range(3):
        writer.write(b"%d" % number)
    writer.close()


KINDS: list[tuple[str, Any, Any]] = [
    ("a.npy", _npy, sources.NumpyDataSource),
    ("a.bin", _tokens, lambda path: sources.TokenDataSource(path, 3, dtype=np.uint16)),
    ("a.bagz", _bagz, sources.BagzDataSource),
    ("a.array_record", _array_record, sources.ArrayRecordDataSource),
]


@pytest.mark.parametrize(("name", "write", "open_source"), KINDS, ids=[kind[0] for kind in KINDS])
def test_every_kind_of_file(
    name: str, write: Any, open_source: Any, tmp_path: Path, server: Server
) -> None:
    write(tmp_path / name)
    server.files[name] = (tmp_path / name).read_bytes()
    here, far = open_source(str(tmp_path / name)), open_source(server.url(name))
    assert len(far) == len(here)
    for key in range(len(here)):
        np.testing.assert_array_equal(far[key], here[key])
    assert far.place_of(1)[0] == server.url(name)
    server.asked.clear()
    again = pickle.loads(pickle.dumps(far))
    np.testing.assert_array_equal(again[1], here[1])
    assert not server.asked  # For bytes, that is; whether it is still the same one is asked.


def test_folders_far_away(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    _array_record(tmp_path / "a.array_record")
    for shard in range(2):
        name = f"/copies/set/x.array_record-0000{shard}-of-00002"
        memory.pipe(name, (tmp_path / "a.array_record").read_bytes())
    assert len(sources.ArrayRecordDataSource("memory://copies/set")) == 6
    assert len(bushel.open("memory://copies/set/*", format="arrayrecord")) == 6


def test_addresses_with_a_query(server: Server, tmp_path: Path) -> None:
    """As signed addresses have one: the file is what stands before it."""
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    server.files["a.npz?key=1"] = (tmp_path / "a.npz").read_bytes()
    server.files["a.tsv?key=1"] = b"a\tb\n1\t2\n"
    assert bushel.open(server.url("a.npz?key=1"))[2] == {"x": 2}
    assert bushel.open(server.url("a.tsv?key=1"))[0] == {"a": "1", "b": "2"}


def test_a_copy_is_made_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.files["a.bin"] = b"abc" * 1000
    with caplog.at_level(logging.WARNING, "bushel"), ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(local_path, [server.url("a.bin")] * 8))
    (path,) = paths
    assert Path(path).read_bytes() == server.files["a.bin"]
    assert len(server.asked) == 1
    assert "is remote" in caplog.text and caplog.text.count("copied once") == 1


def test_another_file_is_another_copy(server: Server) -> None:
    server.files["a.npy"] = _bytes_of(np.arange(4))
    source = sources.NumpyDataSource(server.url("a.npy"))
    sent = pickle.dumps(source)
    server.files["a.npy"] = _bytes_of(np.arange(4) * 10)
    assert sources.NumpyDataSource(server.url("a.npy"))[3] == 30
    assert source[3] == 3  # What is open stays what it was.
    with pytest.raises(FileError, match=r"a.npy' is another file than the one"):
        pickle.loads(sent)[3]


def _bytes_of(array: Any) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_copies_that_cannot_be(server: Server, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="there is no file 'http"):
        sources.NumpyDataSource(server.url("none.npy"))
    server.files["a.bin"] = b"abc" * 1000
    server.has_etags = False
    with pytest.raises(FileError, match="the server does not say when it was changed"):
        local_path(server.url("a.bin"))
    server.has_etags = True
    server.faults.extend(["503"] * 100)
    with pytest.raises(FileError, match=r"a.bin' could not be read, in 7 attempts"):
        local_path(server.url("a.bin"))
    folder = tmp_path / "cache" / f"copies-{os.geteuid()}"
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [".lock"]


def test_copies_that_nobody_uses_make_room(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSHEL_CACHE_BYTES", "50000")
    for name in "abc":
        server.files[name] = name.encode() * 20_000
    first, second = (Path(local_path(server.url(name))) for name in "ab")
    for path in (*first.parent.iterdir(), first.parent):
        os.utime(path, (1, 1))
    third = Path(local_path(server.url("c")))
    assert [path.exists() for path in (first, second, third)] == [False, True, True]
    # All others are in use: there is more than there should be, and nothing is missing.
    assert Path(local_path(server.url("a"))).read_bytes() == server.files["a"]
    assert second.exists() and third.exists()
