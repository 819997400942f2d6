"""On systems without `memfd_create` a file in the temporary folder serves, and nobody notices."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, MultiprocessingOptions
from bushel.sources import SharedMemoryDataSource


@pytest.fixture(autouse=True)
def no_memfd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on macOS, here and (through the environment) in workers."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def _forget_memfd(index: int, count: int) -> None:
    if hasattr(os, "memfd_create"):
        del os.memfd_create


def _large(number: int) -> dict[str, Any]:
    return {"image": np.full((64, 1024), number, dtype=np.int32), "pid": os.getpid()}


def _with_workers(ds: Any, count: int = 2) -> Any:
    return ds.mp_prefetch(MultiprocessingOptions(num_workers=count), _forget_memfd)


def test_the_stream_is_the_same_and_no_file_is_left(tmp_path: Path) -> None:
    ds = MapDataset.range(60).shuffle(seed=1).map(_large).batch(3).to_iter_dataset()
    kept = []
    with iter(_with_workers(ds)) as iterator:
        for number, batch in enumerate(iterator):
            kept.append(batch["image"])
            if number == 5:
                os.kill(int(batch["pid"][0]), signal.SIGKILL)
    for batch, expected in zip(kept, ds, strict=True):
        np.testing.assert_array_equal(batch, expected["image"])
    assert list(tmp_path.iterdir()) == []


def test_steps_behind_a_cut_and_shared_sources(tmp_path: Path) -> None:
    columns = {"x": np.arange(40_000).reshape(400, 100), "y": np.arange(400)}
    ds = MapDataset.source(SharedMemoryDataSource(columns)).to_iter_dataset()
    ds = ds.filter(lambda row: row["y"] % 3 > 0).batch(10).map(lambda batch: batch["x"] * 2)
    for batch, expected in zip(_with_workers(ds), ds, strict=True):
        np.testing.assert_array_equal(batch, expected)
    assert list(tmp_path.iterdir()) == []
