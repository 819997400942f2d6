"""A dataset of Hugging Face, shuffled, against the library's own batches."""

import atexit
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

BATCH_SIZE = 128
RECORDS = 1000 * BATCH_SIZE
TOKENS = 64
MOST_TOKENS = 500
SEED = 42


def saved(columns: dict[str, Any]) -> Any:
    """Writes columns to files that go with this process, and opens them."""
    import datasets

    datasets.disable_progress_bars()
    folder = TemporaryDirectory(prefix="bushel-benchmarks-")
    atexit.register(folder.cleanup)
    datasets.Dataset.from_dict(columns).save_to_disk(folder.name)
    return datasets.load_from_disk(folder.name)


@cache
def numbers(n: int) -> Any:
    rng = np.random.default_rng(n)
    features = {f"x{i}": rng.integers(0, 1000, n).astype(np.float32) / 16 for i in range(4)}
    return saved({"id": np.arange(n), **features, "label": rng.integers(0, 10, n)})


@cache
def tokens(n: int) -> Any:
    rng = np.random.default_rng(n)
    columns = {"id": np.arange(n), "tokens": rng.integers(0, 50_000, (n, TOKENS), dtype=np.int32)}
    return saved(columns).with_format("numpy")


@cache
def lists(n: int) -> Any:
    rng = np.random.default_rng(n)
    ends = np.cumsum(rng.integers(MOST_TOKENS // 5, MOST_TOKENS, n))
    return saved({"tokens": np.split(rng.integers(0, 50_000, ends[-1]), ends[:-1])})


def own_numbers(n: int) -> Iterator[Any]:
    batches: Iterator[Any] = numbers(n).shuffle(seed=SEED).iter(BATCH_SIZE)
    return batches


def own_tokens(n: int) -> Iterator[Any]:
    batches: Iterator[Any] = tokens(n).shuffle(seed=SEED).iter(BATCH_SIZE)
    return batches


def own_lists(n: int) -> Iterator[Any]:
    for batch in lists(n).shuffle(seed=SEED).iter(BATCH_SIZE):
        yield joined(batch["tokens"])


def joined(rows: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(rows))


def joined_records(records: list[dict[str, list[int]]]) -> list[int]:
    return joined([record["tokens"] for record in records])


def of_numbers(lib: ModuleType, n: int) -> Iterable[Any]:
    batches: Iterable[Any] = lib.MapDataset.source(numbers(n)).shuffle(seed=SEED).batch(BATCH_SIZE)
    return batches


def of_tokens(lib: ModuleType, n: int) -> Iterable[Any]:
    batches: Iterable[Any] = lib.MapDataset.source(tokens(n)).shuffle(seed=SEED).batch(BATCH_SIZE)
    return batches


def of_lists(lib: ModuleType, n: int) -> Iterable[Any]:
    shuffled = lib.MapDataset.source(lists(n)).shuffle(seed=SEED)
    batches: Iterable[Any] = shuffled.batch(BATCH_SIZE, batch_fn=joined_records)
    return batches


GOAL = Goal(1.5, "hand")
NUMBERS = Workload(
    name="huggingface",
    title="Hugging Face, numbers",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=own_numbers,
    forms=(Form("MapDataset", of_numbers, GOAL),),
)
WITH_TOKENS = Workload(
    name="huggingface_tokens",
    title="Hugging Face, 64 tokens, numpy format",
    gauge=Throughput(RECORDS // 4, BATCH_SIZE),
    hand=own_tokens,
    forms=(Form("MapDataset", of_tokens, GOAL),),
)
WITH_LISTS = Workload(
    name="huggingface_lists",
    title="Hugging Face, lists of 100 to 500 tokens",
    gauge=Throughput(RECORDS // 16, BATCH_SIZE),
    hand=own_lists,
    forms=(Form("MapDataset", of_lists, GOAL),),
)
