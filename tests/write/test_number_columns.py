"""Written tables of numbers are read as columns; elements are as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset
from tests.write.test_round_trips import assert_same

KINDS = ("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8")


def of_numpy(number: int) -> dict[str, Any]:
    return {kind: np.dtype(kind).type(number % 100) for kind in KINDS}


def of_python(number: int) -> dict[str, Any]:
    return {"id": number, "share": number / 3, "odd": bool(number % 2)}


def nested(number: int) -> Any:
    return {"at": (np.int32(number), np.float32(number / 7))}


def alone(number: int) -> Any:
    return np.int16(number)


def mixed(number: int) -> dict[str, Any]:
    return {"id": number, "label": np.int64(number)}


def with_text(number: int) -> dict[str, Any]:
    return {"label": np.int64(number), "text": str(number)}


def in_python_and_nested(number: int) -> dict[str, Any]:
    return {"at": {"x": number}}


def written(make: Any, folder: Path, format: str) -> Any:
    MapDataset.range(50).map(make).write(folder / f"a-*.{format}", shards=3, workers=0)
    return bushel.open(folder)


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("make", [of_numpy, of_python, nested, alone])
def test_numbers_are_columns(make: Any, format: str, tmp_path: Path) -> None:
    source = written(make, tmp_path, format)
    assert source.read_columns(np.array([40, 3])) is not None
    ds = MapDataset.source(source).shuffle(seed=1)
    expected = MapDataset.range(50).map(make).shuffle(seed=1)
    for one, other in zip(ds, expected, strict=True):
        assert_same(one, other)
    # Blocks of several, of which a step of the user's sees the elements.
    seen = list(ds.to_iter_dataset().filter(lambda _: True))
    for one, other in zip(seen, expected, strict=True):
        assert_same(one, other)
    for one, other in zip(ds.batch(8), expected.batch(8), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("make", [mixed, with_text, in_python_and_nested])
def test_what_is_read_by_rows(make: Any, tmp_path: Path) -> None:
    source = written(make, tmp_path, "parquet")
    assert source.read_columns(np.array([40, 3])) is None
    for one, other in zip(
        MapDataset.source(source).batch(8), MapDataset.range(50).map(make).batch(8), strict=True
    ):
        assert_same(one, other)


def test_other_formats_are_read_by_rows(tmp_path: Path) -> None:
    source = written(of_python, tmp_path, "jsonl")
    assert source.read_columns(np.array([40, 3])) is None
    assert source[40] == of_python(40)
