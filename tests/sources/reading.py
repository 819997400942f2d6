"""What every source over files is held to, whatever it reads."""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.core.stack import stack
from bushel.run.inline import compile_node
from bushel.sources.memory import source_node
from tests.grain.oracle import assert_same
from tests.patience import PATIENCE_SECONDS


def check_source(source: Any, records: Sequence[Any], *, workers: bool = False) -> None:
    """Compares all ways to read a source with its records."""
    length = len(records)
    assert len(source) == length
    assert_same([source[key] for key in range(length)], list(records))
    rng = np.random.default_rng(1)
    keys = rng.integers(0, length, 3 * length).tolist() if length else []
    wanted = [records[key] for key in keys]
    assert_same(source.__getitems__(keys), wanted)
    assert source.__getitems__([]) == []
    _check_columns(source, keys, wanted)
    for wrong in (-1, length):
        with pytest.raises(IndexError, match=f"has no record {wrong}; it has {length:,}"):
            source[wrong]
        with pytest.raises(IndexError, match=f"has no record {wrong}; it has {length:,}"):
            source.__getitems__([0, wrong] if length else [wrong])
    assert type(source).__name__ in repr(source)
    assert len(repr(source)) < 1000
    again = pickle.loads(pickle.dumps(source))
    assert repr(again) == repr(source)
    assert_same(again.__getitems__(keys), wanted)
    _check_threads(again, keys, wanted)
    _check_datasets(source, records, workers)


def _check_columns(source: Any, keys: list[int], wanted: list[Any]) -> None:
    read_columns = getattr(source, "read_columns", None)
    columns = read_columns(np.array(keys, dtype=np.int64)) if read_columns else None
    if columns is not None and keys:
        assert_same(columns, stack(wanted))


def _check_threads(source: Any, keys: list[int], wanted: list[Any]) -> None:
    """Reads a source that nobody has read yet, side by side."""
    with ThreadPoolExecutor(4) as pool:
        for read in pool.map(source.__getitems__, [keys] * 8, timeout=PATIENCE_SECONDS):
            assert_same(read, wanted)


def _check_datasets(source: Any, records: Sequence[Any], workers: bool) -> None:
    dataset = bushel.MapDataset.source(source)
    assert_same(list(dataset), list(records))
    if not records:
        return
    # Whole epochs at a time, and beyond them.
    block = compile_node(source_node(source)).at(np.array([len(records), 0]))
    assert_same(block.rows(), [records[0], records[0]])
    stream = dataset.seed(3).shuffle().to_iter_dataset()
    if workers:
        options = bushel.MultiprocessingOptions(num_workers=1)
        assert_same(list(stream.mp_prefetch(options)), list(stream))


def run(program: str, *arguments: str) -> str:
    """Runs a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
