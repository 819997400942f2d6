"""Windows over flat files of tokens."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import MapDataset
from bushel.errors import FileError, MissingFileError, PlanError
from bushel.sources import TokenDataSource
from tests.property.profile import tried
from tests.sources.reading import check_source


def write(path: Path, tokens: Any) -> str:
    tokens.tofile(path)
    return str(path)


def windows(tokens: Any, length: int, stride: int, offset: int = 0) -> list[Any]:
    starts = range(offset, len(tokens) - length + 1, stride)
    return [tokens[start : start + length] for start in starts]


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<i4", "u1", ">u2", "<i8"])
def test_types(dtype: str, tmp_path: Path) -> None:
    tokens = np.arange(23).astype(dtype)
    path = write(tmp_path / "a.bin", tokens)
    native = tokens.astype(tokens.dtype.newbyteorder("="))
    check_source(TokenDataSource(path, 4, dtype=dtype), windows(native, 4, 4))
    np.save(tmp_path / "a.npy", tokens)
    check_source(TokenDataSource(tmp_path / "a.npy", 4), windows(native, 4, 4))
    check_source(TokenDataSource(tmp_path / "a.npy", 4, dtype=dtype), windows(native, 4, 4))


@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    length=st.integers(1, 6),
    stride=st.none() | st.integers(1, 8),
    offset=st.integers(0, 4),
    targets=st.booleans(),
)
@tried
def test_windows(
    sizes: list[int],
    length: int,
    stride: int | None,
    offset: int,
    targets: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    files = [np.arange(size, dtype=np.uint16) + 100 * number for number, size in enumerate(sizes)]
    for number, tokens in enumerate(files):
        write(folder / f"{number}.bin", tokens)
    width = length + targets
    wanted = [
        window for tokens in files for window in windows(tokens, width, stride or length, offset)
    ]
    options: Any = {"dtype": "uint16", "stride": stride, "offset": offset, "targets": targets}
    if not wanted:
        with pytest.raises(PlanError, match=f"the {offset + width} tokens that one window takes"):
            TokenDataSource(folder, length, **options)
        return
    source = TokenDataSource(folder, length, **options)
    if targets:
        wanted = [{"inputs": window[:-1], "targets": window[1:]} for window in wanted]
    check_source(source, wanted)
    for key, window in enumerate(wanted):
        path, _, start = source.place_of(key)
        first = (window["inputs"] if targets else window)[0]
        assert np.fromfile(path, dtype=np.uint16, offset=start)[0] == first


def test_inputs_and_targets_are_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin", np.arange(21, dtype=np.uint16))
    source = TokenDataSource(path, 5, dtype=np.uint16, targets=True)
    assert len(source) == 4
    batch: Any = MapDataset.source(source).batch(4)[0]
    # Who masks inputs does not mean the targets.
    batch["inputs"][:] = 0
    assert batch["targets"].tolist() == (np.arange(20).reshape(4, 5) + 1).tolist()
    assert source[0]["inputs"].tolist() == [0, 1, 2, 3, 4]


def test_what_cannot_be_a_source(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin", np.zeros(9, dtype=np.uint8))
    np.save(tmp_path / "b.npy", np.zeros((3, 3), dtype=np.uint16))
    np.save(tmp_path / "c.npy", np.zeros(3))
    np.save(tmp_path / "d.npy", np.zeros(3, dtype=np.uint16))

    def refused(error: type[Exception], match: str, *arguments: Any, **options: Any) -> None:
        with pytest.raises(error, match=match):
            TokenDataSource(*arguments, **options)

    refused(PlanError, r"a.bin' is a raw file.*Add `dtype=numpy.uint16`", path, 2)
    refused(FileError, "a.bin' has 9 bytes.*uint16 tokens of 2 bytes", path, 2, dtype=np.uint16)
    refused(PlanError, "tokens are integers.*float32", path, 2, dtype=np.float32)
    refused(
        PlanError, "10 tokens that one window takes: the longest of 1 has 9", path, 10, dtype="u1"
    )
    refused(PlanError, "`length` is a number of tokens, at least 1, and got 0", path, 0, dtype="u1")
    refused(PlanError, "`stride`.*got -1", path, 2, dtype="u1", stride=-1)
    refused(PlanError, "`offset`.*at least 0, and got 1.5", path, 2, dtype="u1", offset=1.5)
    refused(FileError, r"b.npy' is an array of shape \(3, 3\)", tmp_path / "b.npy", 2)
    refused(PlanError, "tokens are integers.*float64", tmp_path / "c.npy", 2)
    refused(PlanError, "has tokens of uint16, and dtype='u1'", tmp_path / "d.npy", 2, dtype="u1")
    np.save(tmp_path / "e.npy", np.zeros(3, dtype=np.uint32))
    both = str(tmp_path / "[de].npy")
    refused(PlanError, "of one type, and .*d.npy' has uint16, .*e.npy' has uint32", both, 2)
    refused(MissingFileError, "there is no file", tmp_path / "e.bin", 2, dtype="u1")


def test_a_file_that_changes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write(path, np.arange(10_000, dtype=np.uint16))
    source = TokenDataSource(path, 100, dtype=np.uint16)
    sent = pickle.dumps(source)
    os.truncate(path, 4096)
    with pytest.raises(FileError, match=r"a.bin' was written to.*20,000 bytes and now has 4,096"):
        source[99]
    with pytest.raises(FileError, match=r"a.bin' is another file"):
        pickle.loads(sent)[0]


def test_what_a_source_shows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin", np.arange(10, dtype=np.uint16))
    source = TokenDataSource(path, 4, dtype=np.uint16)
    assert repr(source) == f"TokenDataSource({path!r}, 1 file, 2 windows of 4 uint16)"
    source = TokenDataSource(path, 4, dtype=np.uint16, stride=2, offset=1, targets=True)
    assert repr(source).endswith("3 windows of 4 uint16, stride=2, offset=1, targets=True)")
    assert source.paths == [path]
