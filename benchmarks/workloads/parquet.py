"""Records of a Parquet file in any order, in memory that holds a sixth of them, and all."""

import atexit
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import proof
from benchmarks.throughput import Throughput
from benchmarks.workload import MEGABYTES, Form, Goal, Make, Unit, Workload

BATCH_SIZE = 256
RECORDS = 400 * BATCH_SIZE
SIDE = 16
GROUP_ROWS = 1024
CACHE_BYTES = RECORDS * SIDE * SIDE // 6
SEED = 42
# For the memory, a file much larger than what may be kept of it.
LARGE = 4 * RECORDS


@cache
def file(n: int) -> str:
    """Writes n images and their numbers to a file that goes with this process."""
    import pyarrow
    import pyarrow.parquet

    folder = TemporaryDirectory(prefix="bushel-benchmarks-")
    atexit.register(folder.cleanup)
    # Row groups that bushel keeps on disk go with this process too.
    os.environ["BUSHEL_CACHE"] = folder.name
    path = str(Path(folder.name) / "images.parquet")
    noise = np.random.default_rng(n).integers(0, 16, (GROUP_ROWS, SIDE * SIDE), dtype=np.uint8)
    kinds = {"id": pyarrow.int64(), "image": pyarrow.list_(pyarrow.uint8(), SIDE * SIDE)}
    with pyarrow.parquet.ParquetWriter(path, pyarrow.schema(kinds)) as writer:
        for start in range(0, n, GROUP_ROWS):
            ids = np.arange(start, min(start + GROUP_ROWS, n))
            pixels = pyarrow.array((noise[: len(ids)] + start // GROUP_ROWS % 200).reshape(-1))
            images = pyarrow.FixedSizeListArray.from_arrays(pixels, SIDE * SIDE)
            writer.write_table(pyarrow.table({"id": ids, "image": images}))
    return path


def by_hand(n: int) -> Iterator[Any]:
    """Reads the row group of each record, which is all that pyarrow offers."""
    import pyarrow.parquet

    opened = pyarrow.parquet.ParquetFile(file(n))
    order = np.random.default_rng(SEED).permutation(n).tolist()
    for start in range(0, n, BATCH_SIZE):
        rows = []
        for key in order[start : start + BATCH_SIZE]:
            group, row = divmod(key, GROUP_ROWS)
            rows.append(opened.read_row_group(group).slice(row, 1))
        images = [np.array(row["image"][0].values) for row in rows]
        yield {"id": np.array([row["id"][0].as_py() for row in rows]), "image": np.stack(images)}


def dataset(lib: ModuleType, n: int) -> Iterable[Any]:
    source = lib.sources.ParquetDataSource(file(n), cache_bytes=CACHE_BYTES)
    pipeline: Iterable[Any] = lib.MapDataset.source(source).shuffle(seed=SEED).batch(BATCH_SIZE)
    return pipeline


def dataset_inline(lib: ModuleType, n: int) -> Iterable[Any]:
    """Reads no batches ahead, which would count too."""
    source = lib.sources.ParquetDataSource(file(n), cache_bytes=CACHE_BYTES)
    shuffled = lib.MapDataset.source(source).shuffle(seed=SEED).batch(BATCH_SIZE)
    pipeline: Iterable[Any] = shuffled.to_iter_dataset(lib.ReadOptions(num_threads=0))
    return pipeline


def in_memory(lib: ModuleType, n: int) -> Iterable[Any]:
    source = lib.sources.ParquetDataSource(file(n))
    pipeline: Iterable[Any] = lib.MapDataset.source(source).shuffle(seed=SEED).batch(BATCH_SIZE)
    return pipeline


@dataclass(frozen=True, slots=True)
class OwnMemoryGrowth:
    """Measures how far the memory of a process itself grows at most over an epoch.

    Pages of files, which the system takes back when it needs them, do not count.
    """

    @property
    def unit(self) -> Unit:
        return MEGABYTES

    @property
    def fresh_process(self) -> bool:
        return True

    def prove(self, make: Make) -> proof.Proof:
        return proof.of(list(make(4 * BATCH_SIZE)))

    def read(self, make: Make, seconds: float) -> float:
        file(LARGE)
        before = peak = own_bytes()
        iterator = iter(make(LARGE))
        for number, _ in enumerate(iterator):
            if number % 20 == 0:
                peak = max(peak, own_bytes())
        proof.close(iterator)
        return (max(peak, own_bytes()) - before) / 1e6


def own_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError("/proc/self/status has no line RssAnon")


WORKLOAD = Workload(
    name="parquet",
    title="Parquet, shuffled",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=by_hand,
    forms=(
        Form("a sixth in memory", dataset, Goal(20.0, "hand"), grain_agrees=None),
        Form("all in memory", in_memory, Goal(20.0, "hand"), grain_agrees=None),
    ),
)
MEMORY = Workload(
    name="parquet_memory",
    title="memory over 108 MB of Parquet, shuffled",
    gauge=OwnMemoryGrowth(),
    # By hand, the whole table.
    stated={"hand": LARGE * (SIDE * SIDE + 8) / 1e6},
    forms=(Form("4 MB in memory", dataset_inline, Goal(40.0), grain_agrees=None),),
)
