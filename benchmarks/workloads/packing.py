"""Documents of many lengths made into rows of one: packed, or laid end to end and cut."""

from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.records import Record
from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

ROW = 2048
BINS = 64
# Of about 240 tokens on average, and up to a row.
DOCUMENTS = 20_000
TOKEN_BYTES = 4


@cache
def documents(n: int) -> list[Record]:
    """Makes n documents whose lengths are distributed as those of texts are."""
    random = np.random.default_rng(n)
    lengths = np.clip(random.lognormal(5, 1, n).astype(int), 1, ROW)
    tokens = random.integers(1, 50_000, int(lengths.sum()), dtype=np.int32)
    ends = np.cumsum(lengths)
    return [
        {"tokens": tokens[end - length : end].copy()}
        for end, length in zip(ends, lengths, strict=True)
    ]


def stream(lib: ModuleType, n: int) -> Any:
    return lib.MapDataset.source(documents(n)).to_iter_dataset(lib.ReadOptions(num_threads=0))


def first_fit(lib: ModuleType, n: int) -> Iterable[Record]:
    rows: Iterable[Record] = lib.experimental.FirstFitPackIterDataset(
        stream(lib, n), length_struct={"tokens": ROW}, num_packing_bins=BINS
    )
    return rows


def best_fit(lib: ModuleType, n: int) -> Iterable[Record]:
    rows: Iterable[Record] = lib.experimental.BestFitPackIterDataset(
        stream(lib, n), length_struct={"tokens": ROW}, num_packing_bins=BINS
    )
    return rows


def end_to_end(lib: ModuleType, n: int) -> Iterable[Record]:
    rows: Iterable[Record] = lib.experimental.ConcatThenSplitIterDataset(
        stream(lib, n), length_struct={"tokens": ROW}
    )
    return rows


def end_to_end_by_hand(n: int) -> Iterator[Record]:
    """All of the corpus joined, and what tells its documents apart, then cut into rows."""
    arrays = [document["tokens"] for document in documents(n)]
    lengths = np.array([len(array) for array in arrays])
    rows = -(-int(lengths.sum()) // ROW)
    tokens = np.zeros(rows * ROW, np.int32)
    np.concatenate(arrays, out=tokens[: lengths.sum()])
    ends = np.cumsum(lengths)
    for start in range(0, rows * ROW, ROW):
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, start + ROW, side="left"))
        cuts = np.minimum(ends[first : last + 1], start + ROW) - start
        sizes = np.diff(cuts, prepend=0)
        ids, places = np.zeros(ROW, np.int32), np.zeros(ROW, np.int32)
        used = int(cuts[-1])
        ids[:used] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        places[:used] = np.arange(used) - np.repeat(cuts - sizes, sizes)
        yield {
            "tokens": tokens[start : start + ROW],
            "tokens_segment_ids": ids,
            "tokens_positions": places,
        }


GAUGE = Throughput(DOCUMENTS, ROW, record_bytes=TOKEN_BYTES)

FIRST_FIT = Workload(
    name="pack_first_fit",
    title=f"packing into {BINS} rows of {ROW:,} tokens, first fit",
    gauge=GAUGE,
    forms=(Form("", first_fit, Goal(10, "grain")),),
)
BEST_FIT = Workload(
    name="pack_best_fit",
    title=f"packing into {BINS} rows of {ROW:,} tokens, best fit",
    gauge=GAUGE,
    forms=(Form("", best_fit, Goal(10, "grain")),),
)
END_TO_END = Workload(
    name="pack_end_to_end",
    title=f"documents end to end, cut into rows of {ROW:,} tokens",
    gauge=GAUGE,
    hand=end_to_end_by_hand,
    forms=(Form("", end_to_end, Goal(10, "grain")),),
)
