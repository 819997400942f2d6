"""`.npy` and `.npz` files: any array that numpy writes, and any file that is none."""

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel.errors import FileError, MissingFileError, PlanError
from bushel.sources import NumpyDataSource
from bushel.sources.arrays import numpy as numpy_files
from tests.property.profile import tried
from tests.sources.reading import check_source

NUMBERS = np.arange(42).reshape(7, 2, 3)

ARRAYS = {
    "bytes": NUMBERS.astype(np.uint8),
    "fortran": np.asfortranarray(NUMBERS),
    "big_endian": NUMBERS.astype(">f4"),
    "big_endian_1d": np.arange(5, dtype=">i8"),
    "half": NUMBERS.astype(np.float16),
    "booleans": NUMBERS % 3 == 0,
    "complex": NUMBERS[:, 0, 0] * 1j,
    "times": np.arange(7).astype("datetime64[s]"),
    "strings": np.array(["a", "bcd", "ä"]),
    "byte_strings": np.array([b"a", b"bcd"]),
    "structured": np.array([(1, 2.5), (3, 4.5)], dtype=[("n", "<i4"), ("größe", ">f8")]),
    "one": np.zeros((1, 4)),
    "no_values": np.zeros((3, 0)),
    "no_records": np.zeros((0, 3)),
}


def native(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder("="))


def save(path: Path, array: Any, **options: Any) -> str:
    np.save(path, array, **options)
    return str(path)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0:UserWarning")
def test_arrays(name: str, tmp_path: Path) -> None:
    array = ARRAYS[name]
    rows = list(native(array))
    path = save(tmp_path / "a.npy", array)
    check_source(NumpyDataSource(path), rows)
    check_source(NumpyDataSource([path, path]), rows + rows)
    np.savez(tmp_path / "odd name.npz", first=array, y=array)
    np.savez_compressed(tmp_path / "small.npz", first=array, y=array)
    wanted = [{"first": row, "y": row} for row in rows]
    check_source(NumpyDataSource(tmp_path / "odd name.npz"), wanted)
    check_source(NumpyDataSource(tmp_path / "small.npz"), wanted)
    check_source(NumpyDataSource({"first": path, "y": [path]}), wanted)


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=5), data=st.data())
@tried
def test_shards_are_one_array(
    lengths: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    whole = np.arange(3 * sum(lengths)).reshape(-1, 3)
    parts = np.split(whole, np.cumsum(lengths)[:-1])
    for number, part in enumerate(parts):
        # One in the order of Fortran is as good as any other.
        np.save(folder / f"{number}.npy", np.asfortranarray(part) if number % 2 else part)
    source = NumpyDataSource(folder)
    assert len(source) == len(whole)
    if len(whole):
        keys = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=9))
        assert source.read_columns(np.array(keys, dtype=np.int64)).tolist() == whole[keys].tolist()
        path, record, offset = source.place_of(len(whole) - 1)
        last = np.load(path)
        assert last[record].tolist() == whole[-1].tolist()
        assert Path(path).read_bytes()[offset : offset + 8] == whole[-1, 0].tobytes()


def test_nothing_is_copied_but_what_is_read(tmp_path: Path) -> None:
    large = np.arange(1 << 20)
    path = save(tmp_path / "a.npy", large)
    np.savez(tmp_path / "b.npz", x=large, y=large[::-1])
    alone, packed = NumpyDataSource(path), NumpyDataSource(tmp_path / "b.npz")
    for source in (alone, packed):
        assert len(pickle.dumps(source)) < 2000
        for column in source._columns.values():
            (part,) = column.parts
            array = source._open(part)
            assert np.shares_memory(array, source._files.get(part.path).bytes)
            assert not array.flags.writeable
    assert packed.place_of(7, "y")[1] == 7
    assert packed[7] == {"x": 7, "y": (1 << 20) - 8}
    # What was read belongs to whoever asked.
    columns = packed.read_columns(np.array([1, 2]))
    columns["x"][:] = 0
    assert packed[1]["x"] == 1


def test_batches_are_those_of_the_array(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", NUMBERS)
    batches = bushel.MapDataset.source(NumpyDataSource(path)).shuffle(seed=1).batch(3)
    in_memory = bushel.MapDataset.source(NUMBERS).shuffle(seed=1).batch(3)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in in_memory]


class Ran(Exception):
    pass


def _run() -> None:
    raise Ran


class Malicious:
    def __reduce__(self) -> Any:
        return _run, ()


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    objects = np.array([Malicious(), None])
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "b.npz", x=objects)
    np.savez_compressed(tmp_path / "c.npz", x=objects)
    for name in ("a.npy", "b.npz", "c.npz"):
        with pytest.raises(FileError, match=rf"{name}' holds Python objects.*allow_pickle=True"):
            NumpyDataSource(tmp_path / name)


def refused(error: type[Exception], match: str, paths: Any) -> None:
    with pytest.raises(error, match=match):
        NumpyDataSource(paths)


def test_what_cannot_be_a_source(tmp_path: Path) -> None:
    single = save(tmp_path / "single.npy", np.array(3))
    short = save(tmp_path / "short.npy", np.zeros(3))
    long = save(tmp_path / "long.npy", np.zeros((4, 2)))
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    np.savez(tmp_path / "y.npz", y=np.zeros(3))
    np.savez(tmp_path / "unequal.npz", x=np.zeros(3), y=np.zeros(4))
    refused(FileError, r"single.npy' is a single value.*shape is \(\)", single)
    refused(PlanError, r"short.npy' has float64\[\], '.*long.npy' has float64\[2\]", [short, long])
    refused(PlanError, "equally long, and are not: a: 3, b: 4", {"a": short, "b": long})
    refused(PlanError, "equally long, and are not: x: 3, y: 4", tmp_path / "unequal.npz")
    refused(PlanError, r"y.npz' has \['y'\], while '.*x.npz' has \['x'\]", str(tmp_path / "?.npz"))
    refused(PlanError, "here are both: '.*short.npy', '.*x.npz'", [short, tmp_path / "x.npz"])
    refused(PlanError, "x.npz' is an .npz, which has columns of its own", {"a": tmp_path / "x.npz"})
    refused(PlanError, "at least one column", {})
    refused(
        MissingFileError,
        "there is no file '.*shrot.npy'. There is 'short.npy'",
        tmp_path / "shrot.npy",
    )
    refused(MissingFileError, "no file that ends in .npy or .npz; it is empty", _empty(tmp_path))


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
def test_a_file_that_is_cut_short_is_an_error(kind: str, tmp_path: Path) -> None:
    file = io.BytesIO()
    if kind == "npy":
        np.save(file, np.arange(9))
    else:
        (np.savez if kind == "npz" else np.savez_compressed)(file, x=np.arange(9), y=np.arange(9))
    whole = file.getvalue()
    path = tmp_path / ("a.npy" if kind == "npy" else "a.npz")
    path.write_bytes(whole)
    assert len(NumpyDataSource(path)) == 9
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"a\.np"):
            NumpyDataSource(path)


@given(place=st.integers(0, 140), value=st.integers(0, 255))
@tried
def test_a_damaged_header_is_an_error_or_another_array(
    place: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = io.BytesIO()
    np.save(file, np.arange(9, dtype=np.int16))
    content = bytearray(file.getvalue())
    content[place] = value
    path = tmp_path_factory.mktemp("damaged") / "a.npy"
    path.write_bytes(content)
    try:
        source = NumpyDataSource(path)
    except FileError as error:
        assert "a.npy" in str(error)
    else:
        assert len(source.__getitems__(range(len(source)))) == len(source)


def test_more_axes_than_an_array_may_have(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"1, " * 100 + b")}"
    length = len(header).to_bytes(2, "little")
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + length + header + bytes(8))
    refused(FileError, r"header of '.*a\.npy' is damaged: it has the shape", tmp_path / "a.npy")


def test_damaged_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(9), y=np.arange(9))
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        second = archive.getinfo("y.npy").header_offset
    # Where the directory says that `y` begins, something else does.
    path.write_bytes(whole[:second] + b"????" + whole[second + 4 :])
    refused(FileError, rf"array 'y' of '.*a.npz' is damaged: byte {second:,} of the file", path)
    path.write_bytes(whole[: second + 30] + b"z" + whole[second + 31 :])
    refused(FileError, "array 'y' of '.*a.npz' is damaged", path)
    np.savez_compressed(path, x=np.arange(900))
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(40) + whole[140:])
    refused(FileError, "array 'x' of '.*a.npz' cannot be decompressed", path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "no arrays")
    refused(FileError, "a.npz' has no arrays", path)
    content = io.BytesIO()
    np.save(content, np.arange(3))
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("x.npy", content.getvalue())
        archive.writestr("x.npy", content.getvalue())
    refused(FileError, "a.npz' has two members of the name 'x'", path)
    # A flag in the directory says that it is encrypted.
    np.savez(path, x=np.arange(9))
    changed = bytearray(path.read_bytes())
    struct.pack_into("<H", changed, changed.rindex(b"PK\x01\x02") + 8, 1)
    path.write_bytes(changed)
    refused(FileError, "array 'x' of '.*a.npz' is encrypted", path)


def test_versions_of_the_format(tmp_path: Path) -> None:
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(tmp_path / "a.npy", "wb") as file:
            np.lib.format.write_array(file, NUMBERS, version=version)
        check_source(NumpyDataSource(tmp_path / "a.npy"), list(NUMBERS))
    content = bytearray((tmp_path / "a.npy").read_bytes())
    content[6] = 9
    (tmp_path / "a.npy").write_bytes(content)
    refused(FileError, "a.npy' is of version 9", tmp_path / "a.npy")


def test_names_of_fields_in_any_script(tmp_path: Path) -> None:
    """Which numpy writes as version 3."""
    names = ["größe", "長さ", "🎈", "a'b", 'a"b', "a\\u0041", "tab\there"]
    array = np.zeros(3, [(name, np.int16) for name in names])
    with open(tmp_path / "a.npy", "wb") as file, pytest.warns(UserWarning, match="format 3"):
        np.save(file, array)
    assert (tmp_path / "a.npy").read_bytes()[6] == 3
    source = NumpyDataSource(tmp_path / "a.npy")
    assert source[1].dtype.names == tuple(names)
    check_source(source, list(array))


def test_a_header_of_python_2(tmp_path: Path) -> None:
    header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (3L,), }\n"
    length = len(header).to_bytes(2, "little")
    numbers = np.arange(3, dtype=np.int16)
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + length + header + numbers.tobytes())
    with pytest.warns(UserWarning, match="Python 2"):
        source = NumpyDataSource(tmp_path / "a.npy")
    assert [source[index] for index in range(3)] == [0, 1, 2]


def test_a_file_that_changes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    save(path, np.arange(10_000))
    source = NumpyDataSource(path)
    sent = pickle.dumps(source)
    assert source[9_999] == 9_999
    # One that is put in its place does not disturb whoever has the old one open.
    os.replace(save(tmp_path / "b.npy", np.zeros(10_001)), path)
    assert source[9_999] == 9_999
    with pytest.raises(FileError, match=r"a.npy' is another file than the one that this source"):
        pickle.loads(sent)[0]
    source = NumpyDataSource(path)
    os.truncate(path, 4096)
    with pytest.raises(FileError, match=r"a.npy' was written to.*80,136 bytes and now has 4,096"):
        source[9_999]
    with pytest.raises(FileError, match=r"a.npy' was written to"):
        list(bushel.MapDataset.source(source))


def test_what_is_decompressed_is_worth_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_files, "_LARGE_IN_MEMORY", 1000)
    np.savez(tmp_path / "a.npz", x=np.zeros(1000))
    np.savez_compressed(tmp_path / "b.npz", x=np.zeros(1000))
    NumpyDataSource(tmp_path / "a.npz")
    with pytest.warns(UserWarning, match=r"decompressed.*b.npz' was written by"):
        NumpyDataSource(tmp_path / "b.npz")


def test_what_a_source_shows(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{number}.npy", NUMBERS) for number in range(2)]
    assert repr(NumpyDataSource(tmp_path)) == (
        f"NumpyDataSource({paths[0]!r}, 2 files, 14 records of int64[2, 3])"
    )
    assert NumpyDataSource({"a": paths}).paths == paths
    assert "14 records of a: int64[2, 3], b: int64[2, 3])" in repr(
        NumpyDataSource({"a": paths, "b": paths})
    )
