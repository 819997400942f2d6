"""Rows of an Arrow file in any order, against pyarrow's own `take`."""

import atexit
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

BATCH_SIZE = 128
RECORDS = 1000 * BATCH_SIZE
# Rows of one record batch of the file.
CHUNK = 1024
TOKENS = 64
MOST_TOKENS = 500
SEED = 42

Columns = Callable[[int], dict[str, Any]]


@cache
def folder() -> Path:
    made = TemporaryDirectory(prefix="bushel-benchmarks-")
    atexit.register(made.cleanup)
    return Path(made.name)


def numbers(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    features = {f"x{i}": rng.random(n, np.float32) for i in range(4)}
    return {"id": np.arange(n), **features}


def tokens(n: int) -> dict[str, Any]:
    import pyarrow

    flat = np.random.default_rng(n).integers(0, 50_000, n * TOKENS, dtype=np.int32)
    return {"id": np.arange(n), "tokens": pyarrow.FixedSizeListArray.from_arrays(flat, TOKENS)}


def lists(n: int) -> dict[str, Any]:
    import pyarrow

    rng = np.random.default_rng(n)
    ends = np.cumsum(rng.integers(MOST_TOKENS // 5, MOST_TOKENS, n))
    bounds = np.concatenate([[0], ends])
    flat = rng.integers(0, 50_000, ends[-1], dtype=np.int32)
    return {"tokens": pyarrow.LargeListArray.from_arrays(bounds, flat)}


@cache
def file(columns: Columns, n: int) -> str:
    import pyarrow

    path = str(folder() / f"{columns.__name__}-{n}.arrow")
    table = pyarrow.table(columns(n))
    with pyarrow.OSFile(path, "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=CHUNK)
    return path


def taken(columns: Columns, n: int) -> Iterator[Any]:
    """Batches as tables, by `take`."""
    import pyarrow

    table = pyarrow.ipc.open_file(pyarrow.memory_map(file(columns, n))).read_all()
    order = np.random.default_rng(SEED).permutation(n)
    for start in range(0, n, BATCH_SIZE):
        yield table.take(order[start : start + BATCH_SIZE]).combine_chunks()


def dataset(lib: ModuleType, columns: Columns, n: int) -> Any:
    source = lib.sources.ArrowDataSource(file(columns, n))
    return lib.MapDataset.source(source).shuffle(seed=SEED)


def take_numbers(n: int) -> Iterator[Any]:
    for table in taken(numbers, n):
        yield {name: table[name].to_numpy() for name in table.column_names}


def take_tokens(n: int) -> Iterator[Any]:
    for table in taken(tokens, n):
        flat = table["tokens"].chunk(0).flatten().to_numpy()
        yield {"id": table["id"].to_numpy(), "tokens": flat.reshape(-1, TOKENS)}


def take_lists(n: int) -> Iterator[Any]:
    for table in taken(lists, n):
        column = table["tokens"].chunk(0)
        flat, bounds = column.flatten().to_numpy(), column.offsets.to_numpy().tolist()
        yield joined({"tokens": flat[start:stop]} for start, stop in pairwise(bounds))


def joined(records: Iterable[Any]) -> Any:
    """What a function of the user's does to the records of a batch, an array each."""
    return np.concatenate([record["tokens"] for record in records])


def of_numbers(lib: ModuleType, n: int) -> Any:
    return dataset(lib, numbers, n).batch(BATCH_SIZE)


def of_tokens(lib: ModuleType, n: int) -> Any:
    return dataset(lib, tokens, n).batch(BATCH_SIZE)


def of_lists(lib: ModuleType, n: int) -> Any:
    return dataset(lib, lists, n).batch(BATCH_SIZE, batch_fn=joined)


GOAL = Goal(1.0, "hand")
NUMBERS = Workload(
    name="arrow",
    title="Arrow, five numbers, against `take`",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=take_numbers,
    forms=(Form("MapDataset", of_numbers, GOAL, grain_agrees=None),),
)
WITH_TOKENS = Workload(
    name="arrow_tokens",
    title="Arrow, 64 tokens, against `take`",
    gauge=Throughput(RECORDS // 4, BATCH_SIZE),
    hand=take_tokens,
    forms=(Form("MapDataset", of_tokens, GOAL, grain_agrees=None),),
)
WITH_LISTS = Workload(
    name="arrow_lists",
    title="Arrow, lists of 100 to 500 tokens, against `take`",
    gauge=Throughput(RECORDS // 16, BATCH_SIZE),
    hand=take_lists,
    forms=(Form("MapDataset", of_lists, GOAL, grain_agrees=None),),
)
