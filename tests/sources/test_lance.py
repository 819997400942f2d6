"""Lance datasets."""

import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError
from bushel.sources import LanceDataSource
from bushel.sources import lance as own
from tests.sources.reading import check_source

VECTORS = np.arange(60, dtype=np.float32).reshape(20, 3)


def write(path: Path, columns: dict[str, Any], **options: Any) -> str:
    lance.write_dataset(pa.table(columns), str(path), max_rows_per_file=8, **options)
    return str(path)


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), 3)
    return write(tmp_path / "n.lance", {"n": np.arange(20), "v": vectors})


def test_numbers(numbers: str) -> None:
    rows = [{"n": np.int64(key), "v": VECTORS[key]} for key in range(20)]
    source = LanceDataSource(numbers)
    check_source(source, rows, workers=True)
    assert source.read_columns(np.array([19, 0]))["v"].tolist() == VECTORS[[19, 0]].tolist()
    check_source(LanceDataSource(Path(numbers), columns=["v"]), [{"v": row} for row in VECTORS])
    assert repr(source) == f"LanceDataSource({numbers!r}, version=1, 20 records of n, v)"


def test_other_values(tmp_path: Path) -> None:
    columns = {
        "text": pa.array(["a", "ä", None, ""]),
        "data": pa.array([b"1", b"", b"3", b"4"]),
        "list": pa.array([[1], [], [2, 3], [4]], pa.list_(pa.int32())),
        "missing": pa.array([1.5, None, 2.5, 3.5]),
    }
    source = LanceDataSource(write(tmp_path / "o.lance", columns))
    rows = [
        {
            "text": columns["text"][key].as_py(),
            "data": columns["data"][key].as_py(),
            "list": np.array(columns["list"][key].as_py(), dtype=np.int32),
            "missing": None if key == 1 else np.float64(columns["missing"][key].as_py()),
        }
        for key in range(4)
    ]
    check_source(source, rows)
    some = LanceDataSource(tmp_path / "o.lance", columns=["missing"])
    assert some.read_columns(np.array([0, 1])) is None
    assert some.read_columns(np.array([0, 2]))["missing"].tolist() == [1.5, 2.5]


def test_a_version_is_read_to_the_end(numbers: str) -> None:
    source = LanceDataSource(numbers)
    sent = pickle.dumps(source)
    dataset = lance.dataset(numbers)
    dataset.delete("n < 10")
    for old in (source, pickle.loads(sent), LanceDataSource(numbers, version=1)):
        assert len(old) == 20
        assert old[3]["n"] == 3
    new = LanceDataSource(numbers)
    assert len(new) == 10
    assert [row["n"] for row in new.__getitems__([9, 0])] == [19, 10]
    shutil.rmtree(numbers)
    with pytest.raises(MissingFileError, match=r"there is no Lance dataset .* of version 1"):
        pickle.loads(sent)[0]


def test_damaged_files(numbers: str) -> None:
    source = LanceDataSource(numbers)
    for path in (Path(numbers) / "data").iterdir():
        path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(FileError, match=r"records 0 of version 1 of '.*n.lance' cannot be read"):
        source[0]


def test_what_cannot_be_a_source(tmp_path: Path, numbers: str) -> None:
    with pytest.raises(MissingFileError, match="there is no Lance dataset"):
        LanceDataSource(tmp_path / "none.lance")
    with pytest.raises(MissingFileError, match=r"there is no Lance dataset .* of version 7"):
        LanceDataSource(numbers, version=7)
    with pytest.raises(PlanError, match=r"no column \['x'\]; it has \['n', 'v'\]"):
        LanceDataSource(numbers, columns=["n", "x"])


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    own._package.cache_clear()
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingPackageError, match=r'pylance.*pip install "bushel\[lance\]"'):
        LanceDataSource("a.lance")
    own._package.cache_clear()
