"""`ParquetIterDataset`: Grain's stream, and its states."""

from pathlib import Path
from typing import Any

import grain.experimental as grain_experimental
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bushel
from bushel.errors import FileError, PlanError
from bushel.experimental import (
    ParquetIterDataset,
    ThreadPrefetchIterDataset,
    assert_equal_output_after_checkpoint,
)
from tests.grain.oracle import assert_same
from tests.sources.test_parquet import MIXED, cache_folder, write

__all__ = ["cache_folder"]


def stream_files(folder: Path) -> list[str]:
    mixed = {name: array for name, (array, _) in MIXED.items() if name != "nothing"}
    paths = [write(folder / "mixed.parquet", mixed, rows=2)]
    ids = {"id": pa.array(range(20), pa.int32()), "l": [[i] * (i % 3) for i in range(20)]}
    paths.append(write(folder / "numbers.parquet", ids))
    paths.append(write(folder / "empty.parquet", pa.table(ids).slice(0, 0)))
    paths += [write(folder / f"{i}.parquet", {"i": [i, -i]}) for i in range(17)]
    return paths


def test_the_stream_is_grains(tmp_path: Path) -> None:
    paths = stream_files(tmp_path)
    for path in (*paths[:3], paths[:1], paths[:2], paths, tuple(paths[2:5])):
        theirs = list(grain_experimental.ParquetIterDataset(path))
        assert_same(list(ParquetIterDataset(path)), theirs)
        assert_same(list(ParquetIterDataset(path, memory_map=True)), theirs)
    ours, theirs = ParquetIterDataset(paths), grain_experimental.ParquetIterDataset(paths)
    for ds in (ours, theirs):
        ds.set_slice(slice(1, None, 3))
    assert_same(list(ours), list(theirs))


def test_the_stream_goes_on_from_any_state(tmp_path: Path) -> None:
    paths = stream_files(tmp_path)
    assert_equal_output_after_checkpoint(ParquetIterDataset(paths[1]))
    several = ParquetIterDataset(paths[:1] + paths[3:6]).map(dict)
    assert_equal_output_after_checkpoint(several)
    ahead = ThreadPrefetchIterDataset(several, prefetch_buffer_size=2)
    assert_equal_output_after_checkpoint(ahead)
    stream = ParquetIterDataset(paths[1]).map(lambda row: row["id"]).batch(3)
    assert_same(list(stream.mp_prefetch(bushel.MultiprocessingOptions(1))), list(stream))


def test_the_stream_of_many_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file says of itself, which grows with them, is not read for each of them."""
    path = write(tmp_path / "a.parquet", {"x": range(50)}, 1)
    given: list[bool] = []
    whole = pq.ParquetFile.__init__

    def watched(self: Any, source: Any, **options: Any) -> None:
        given.append(options.get("metadata") is not None)
        whole(self, source, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", watched)
    assert [row["x"] for row in ParquetIterDataset(path)] == list(range(50))
    assert given.count(False) <= 3


def test_the_stream_of_a_file_that_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"x": range(9)}, 1)
    stream = iter(ParquetIterDataset(path))
    next(stream)
    write(tmp_path / "b.parquet", {"x": range(10, 20)}, 1)
    (tmp_path / "b.parquet").replace(path)
    with pytest.raises(FileError, match=r"a\.parquet' was replaced while it was being read"):
        list(stream)


def test_the_stream_refuses_what_grain_does(tmp_path: Path) -> None:
    missing = ParquetIterDataset(str(tmp_path / "none.parquet"))
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        list(missing)
    path = write(tmp_path / "a.parquet", {"x": [1]})
    with pytest.raises(TypeError, match="columns"):
        list(ParquetIterDataset(path, columns=["x"]))
    with pytest.raises(PlanError, match="at least one file"):
        ParquetIterDataset([])
