"""Packing what comes taken apart, as from workers, is packing the rows; and makes none of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import MapDataset, ReadOptions
from bushel.core.ragged import RaggedRows, take_apart
from bushel.core.stream import Chunk
from bushel.run.positional import PositionalStream
from tests.contract.events import run_events
from tests.property.profile import tried
from tests.streams.test_packing_blocks import BUILDS, documents


@contextmanager
def taken_apart(size: int = 1 << 30) -> Iterator[None]:
    """Has datasets deliver rows that were taken apart, at most so many at a time."""
    pull = PositionalStream.pull

    def pull_apart(self: PositionalStream, want: int) -> Chunk | None:
        chunk = pull(self, min(want, size))
        if chunk is not None and isinstance(chunk.block.values, list):
            chunk.block.values = take_apart(chunk.block.values) or chunk.block.values
        return chunk

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PositionalStream, "pull", pull_apart)
        yield


def _stream(elements: list[Any]) -> Any:
    ds = MapDataset.range(len(elements)).map(elements.__getitem__)
    return ds.to_iter_dataset(ReadOptions(0, 0))


def _packed(ds: Any, **more: Any) -> Any:
    return ds.pack({"x": 7, "y": 11}, strategy="concat_then_split", **more)


def _with_list(element: Any) -> Any:
    x = element["x"]
    return {**element, "x": x.tolist()} if type(x) is np.ndarray else element


@pytest.mark.parametrize("name", [*BUILDS, "pack"])
@tried
@given(documents(), st.integers(4, 40), st.booleans())
def test_rows(name: str, elements: list[Any], size: int, lists: bool) -> None:
    if lists:
        elements = [_with_list(element) for element in elements]
    build = BUILDS.get(name, _packed)
    expected = run_events(build(_stream(elements)))
    with taken_apart(size):
        assert run_events(build(_stream(elements))) == expected


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of rows that were taken apart."""
    calls: list[str] = []
    for name in ("rows", "__getitem__"):
        method = getattr(RaggedRows, name)

        def noted(self: Any, *args: Any, name: str = name, method: Any = method) -> Any:
            calls.append(name)
            return method(self, *args)

        monkeypatch.setattr(RaggedRows, name, noted)
    return calls


@pytest.mark.parametrize("lists", [False, True])
def test_no_row_is_made_of_what_is_laid_end_to_end(made: list[str], lists: bool) -> None:
    lengths = [1 + i * 7 % 23 for i in range(300)]
    arrays = [np.arange(length) for length in lengths]
    elements = [
        {"x": array.tolist() if lists else array, "other": "not packed"} for array in arrays
    ]
    ds = _stream(elements).pack({"x": 50}, strategy="concat_then_split")
    with taken_apart():
        rows = [row["x"] for row in ds]
    assert np.concatenate(rows)[: sum(lengths)].tolist() == np.concatenate(arrays).tolist()
    assert not made


def test_a_long_list_is_made_an_array_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    as_array = np.asarray

    def counted(value: Any, *args: Any, **more: Any) -> Any:
        if type(value) is list and len(value) > 10_000:
            made.append(len(value))
        return as_array(value, *args, **more)

    monkeypatch.setattr(np, "asarray", counted)
    ds = _stream([{"x": list(range(100_000))}] * 3).pack({"x": 100}, strategy="concat_then_split")
    assert sum(1 for _ in ds) == 3000
    assert len(made) == 3
