"""Zarr arrays and groups."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import MapDataset
from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError
from bushel.sources import ZarrDataSource
from bushel.sources.arrays import zarr as own
from tests.later import later
from tests.property.profile import tried
from tests.sources.reading import check_source

zarr = later("zarr")

NUMBERS = np.arange(60).reshape(20, 3)


def write(path: Path, array: Any, **options: Any) -> str:
    chunks = options.pop("chunks", (3, *array.shape[1:]))
    made = zarr.create_array(
        str(path), shape=array.shape, dtype=array.dtype, chunks=chunks, overwrite=True, **options
    )
    made[...] = array
    return str(path)


@pytest.mark.parametrize("cache_bytes", [0, 100, 1 << 20])
def test_arrays(cache_bytes: int, tmp_path: Path) -> None:
    for array in (NUMBERS, NUMBERS[:, 0].astype(np.float16), NUMBERS.astype(">f4"), NUMBERS > 5):
        path = write(tmp_path / "a.zarr", array)
        source = ZarrDataSource(path, cache_bytes=cache_bytes)
        check_source(source, list(array.astype(array.dtype.newbyteorder("="))))
    path = write(tmp_path / "b.zarr", NUMBERS, chunks=(7, 2))
    check_source(ZarrDataSource(path, cache_bytes=cache_bytes), list(NUMBERS))
    path = write(tmp_path / "c.zarr", NUMBERS, chunks=(2, 3), shards=(4, 3))
    check_source(ZarrDataSource(path, cache_bytes=cache_bytes), list(NUMBERS))
    path = write(tmp_path / "d.zarr", NUMBERS, zarr_format=2)
    check_source(ZarrDataSource(Path(path), cache_bytes=cache_bytes), list(NUMBERS))
    path = write(tmp_path / "e.zarr", np.zeros((0, 3)), chunks=(1, 3))
    check_source(ZarrDataSource(path, cache_bytes=cache_bytes), [])


def group(path: Path) -> str:
    made = zarr.open_group(str(path), mode="w")
    made.create_array("x", shape=(20, 3), chunks=(4, 3), dtype="i8")[:] = NUMBERS
    inner = made.create_group("inner")
    inner.create_array("y", shape=(20,), chunks=(7,), dtype="f4")[:] = np.arange(20)
    return str(path)


def test_groups(tmp_path: Path) -> None:
    path = group(tmp_path / "g.zarr")
    rows: list[Any] = [{"inner/y": np.float32(key), "x": NUMBERS[key]} for key in range(20)]
    source = ZarrDataSource(path)
    check_source(source, rows)
    check_source(ZarrDataSource(path, columns=["x"]), [{"x": row} for row in NUMBERS])
    check_source(ZarrDataSource(zarr.open(path, mode="r")), rows)
    check_source(ZarrDataSource(zarr.open(path, mode="r")["x"]), list(NUMBERS))
    assert repr(source) == (
        f"ZarrDataSource({path!r}, 20 records of inner/y: float32[20] in chunks of 7, "
        "x: int64[20, 3] in chunks of 4)"
    )


@given(data=st.data())
@tried
def test_any_keys(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = data.draw(st.integers(1, 30))
    array = np.arange(2 * rows).reshape(rows, 2)
    chunks = (data.draw(st.integers(1, rows)), data.draw(st.integers(1, 2)))
    path = write(tmp_path_factory.mktemp("z") / "a", array, chunks=chunks, compressors=None)
    source = ZarrDataSource(path, cache_bytes=data.draw(st.integers(0, 400)))
    for _ in range(3):
        keys = data.draw(st.lists(st.integers(0, rows - 1), max_size=12))
        read = source.read_columns(np.array(keys, dtype=np.int64))
        assert read.tolist() == array[keys].tolist()
        assert source._cache._weight <= source._cache.most
        # What was read belongs to whoever asked; what is kept does not change.
        read[:] = -1


def test_a_chunk_is_read_once(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.zarr", NUMBERS, chunks=(10, 3)))
    source = ZarrDataSource(path)
    assert source[3].tolist() == NUMBERS[3].tolist()
    (path / "c" / "0" / "0").write_bytes(b"damaged")
    assert source[4].tolist() == NUMBERS[4].tolist()
    with pytest.raises(FileError, match=r"records 0 to 9 of .*a\.zarr.* cannot be read, chunks 0"):
        ZarrDataSource(path)[4]
    with pytest.raises(FileError, match=r"records 4 to 4 of"):
        list(MapDataset.source(ZarrDataSource(path, cache_bytes=0))[4:5])
    # With Zarr, what was never written has a value nonetheless.
    (path / "c" / "0" / "0").unlink()
    assert ZarrDataSource(path)[4].tolist() == [0, 0, 0]


def test_what_cannot_be_a_source(tmp_path: Path) -> None:
    def refused(error: type[Exception], match: str, store: Any, **options: Any) -> None:
        with pytest.raises(error, match=match):
            ZarrDataSource(store, **options)

    path = group(tmp_path / "g.zarr")
    refused(MissingFileError, "there is no Zarr array or group", str(tmp_path / "none.zarr"))
    refused(PlanError, r"has no array \['z'\]; it has \['inner/y', 'x'\]", path, columns=["x", "z"])
    zarr.open_group(path, mode="a").create_array("z", shape=(3,), dtype="i8")
    refused(PlanError, r"not equally long: inner/y: 20, x: 20, z: 3. .*`columns=\[...\]`", path)
    array = write(tmp_path / "a.zarr", NUMBERS)
    refused(PlanError, "is one array, which has no columns", array, columns=["x"])
    refused(FileError, "is a single value", write(tmp_path / "b.zarr", np.array(3), chunks=()))
    zarr.open_group(str(tmp_path / "empty.zarr"), mode="w")
    refused(FileError, "has no arrays in it", str(tmp_path / "empty.zarr"))


def test_a_store_that_changes_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zarr", NUMBERS)
    sent = pickle.dumps(ZarrDataSource(path))
    assert pickle.loads(sent)[0].tolist() == [0, 1, 2]
    write(tmp_path / "a.zarr", NUMBERS[:5])
    with pytest.raises(FileError, match=r"is not what it was.*int64\[20, 3\].*int64\[5, 3\]"):
        pickle.loads(sent)[0]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    own._package.cache_clear()
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingPackageError, match=r'package zarr.*pip install "bushel\[zarr\]"'):
        ZarrDataSource("a.zarr")
    own._package.cache_clear()
