"""Bagz files."""

import os
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

import bagz
import pytest

from bushel import MapDataset
from bushel.errors import (
    FileError,
    MissingFileError,
    MissingPackageError,
    PlanError,
    RecordError,
)
from bushel.sources import BagzDataSource
from bushel.sources import bagz as own
from tests.sources.reading import check_source


def write(path: Path, records: Sequence[bytes]) -> str:
    with bagz.Writer(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def lines(name: str, count: int) -> list[bytes]:
    """Records that say whose they are, of many lengths, the first one empty."""
    return [f"{name}{number} ".encode() * number for number in range(count)]


@pytest.mark.parametrize("ending", ["bagz", "bag"])
def test_records(ending: str, tmp_path: Path) -> None:
    first, second = lines("a", 7), lines("b", 30)
    paths = [
        write(tmp_path / f"2.{ending}", first),
        write(tmp_path / f"9.{ending}", []),
        write(tmp_path / f"10.{ending}", second),
    ]
    source = BagzDataSource(tmp_path)
    check_source(source, first + second)
    check_source(BagzDataSource(paths[1]), [])
    assert source.paths == paths
    assert repr(source) == f"BagzDataSource({paths[0]!r}, 3 files, 37 records)"
    if ending == "bag":
        for key, record in enumerate(first + second):
            path, number, start = source.place_of(key)
            assert path == paths[2 * (key >= 7)]
            assert number == key - 7 * (key >= 7)
            assert Path(path).read_bytes()[start : start + len(record)] == record


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "a.bagz"
    write(path, lines("a", 5))
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        try:
            source = BagzDataSource(path)
        except FileError as error:
            assert "a.bagz' is no Bagz file, or not a whole one" in str(error)
        else:
            # It has no mark at its end, so there are some that look whole.
            for key in range(min(len(source), 10)):
                try:
                    source[key]
                except FileError as error:
                    assert f"record {key} of" in str(error)
    content = bytearray(whole)
    content[4:8] = b"\xff" * 4
    path.write_bytes(content)
    source = BagzDataSource(path)
    message = r"record 1 of '.*a\.bagz', at byte 0, cannot be read: .*damaged"
    with pytest.raises(RecordError, match=message):
        source[1]
    with pytest.raises(RecordError, match=message):
        source.__getitems__([0, 1, 2])
    with pytest.raises(RecordError, match=message):
        list(MapDataset.source(source))


def test_a_file_that_changes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.bag"
    write(path, [bytes(100)] * 1000)
    source = BagzDataSource(path)
    sent = pickle.dumps(source)
    assert source[999] == bytes(100)
    os.truncate(path, 1000)
    with pytest.raises(FileError, match=r"a.bag' was written to.*now has 1,000"):
        source[999]
    write(path, [b"other"])
    with pytest.raises(FileError, match=r"a.bag' is another file"):
        pickle.loads(sent)[0]


def test_names(tmp_path: Path) -> None:
    (tmp_path / "a@b,c").mkdir()
    (tmp_path / "x:y.bagz").write_bytes(Path(write(tmp_path / "x.bagz", [b"1"])).read_bytes())
    assert BagzDataSource(tmp_path / "x:y.bagz")[0] == b"1"
    (tmp_path / "a@b,c" / "x.bagz").write_bytes(b"")
    with pytest.raises(PlanError, match=r"has a ',' in it, by which the package bagz means"):
        BagzDataSource(tmp_path / "a@b,c" / "x.bagz")
    with pytest.raises(MissingFileError, match="there is no file"):
        BagzDataSource(tmp_path / "none.bagz")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own._package.cache_clear()
    monkeypatch.setitem(sys.modules, "bagz", None)
    with pytest.raises(MissingPackageError, match=r'package bagz.*pip install "bushel\[bagz\]"'):
        BagzDataSource(tmp_path)
    own._package.cache_clear()
