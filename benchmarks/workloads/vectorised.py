"""The small-record work again, on columns: the limit is numpy, so every microsecond shows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from benchmarks.records import Columns, Record, image_columns, normalise
from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

BATCH_SIZE = 128
SEED = 42


@dataclass(frozen=True, slots=True)
class Rows:
    """A source of single records over columns, for libraries that read one at a time."""

    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["label"])

    def __getitem__(self, key: int) -> Record:
        return {"image": self.columns["image"][key], "label": self.columns["label"][key]}


@dataclass(frozen=True, slots=True)
class Images:
    """The work on square images of one size."""

    side: int

    def by_hand(self, n: int) -> Iterator[Columns]:
        columns = image_columns(n, self.side)
        order = np.random.default_rng(SEED).permutation(n)
        for start in range(0, n, BATCH_SIZE):
            keys = order[start : start + BATCH_SIZE]
            yield normalise({name: column[keys] for name, column in columns.items()})

    def map_after_batch(self, lib: ModuleType, n: int) -> Iterable[Columns]:
        source = lib.MapDataset.source(image_columns(n, self.side))
        pipeline: Iterable[Columns] = source.shuffle(seed=SEED).batch(BATCH_SIZE).map(normalise)
        return pipeline

    def map_batches(self, lib: ModuleType, n: int) -> Iterable[Columns]:
        source = lib.MapDataset.source(image_columns(n, self.side))
        shuffled = source.shuffle(seed=SEED)
        pipeline: Iterable[Columns] = shuffled.map_batches(normalise).batch(BATCH_SIZE)
        return pipeline

    def rows_then_batch(self, lib: ModuleType, n: int) -> Iterable[Columns]:
        """Writes `map_after_batch` for Grain, which does not read columns."""
        source = lib.MapDataset.source(Rows(image_columns(n, self.side)))
        pipeline: Iterable[Columns] = source.shuffle(seed=SEED).batch(BATCH_SIZE).map(normalise)
        return pipeline

    def with_torch(self, n: int) -> Iterable[Columns]:
        """Uses `__getitems__`, by which torch reads a whole batch in one call."""
        from torch.utils.data import DataLoader

        class WholeBatches(Rows):
            def __getitems__(self, keys: list[int]) -> Columns:
                return {name: column[keys] for name, column in self.columns.items()}

        source = WholeBatches(image_columns(n, self.side))
        batches: Iterable[Columns] = DataLoader(
            source, batch_size=BATCH_SIZE, shuffle=True, collate_fn=normalise
        )
        return batches


def images_workload(name: str, side: int, records: int) -> Workload:
    images = Images(side)
    goal = Goal(0.8, "hand")
    return Workload(
        name=name,
        title=f"vectorised {side}x{side}",
        gauge=Throughput(records, BATCH_SIZE),
        hand=images.by_hand,
        torch=images.with_torch,
        forms=(
            Form("map after batch", images.map_after_batch, goal, images.rows_then_batch),
            Form("map_batches", images.map_batches, goal, images.rows_then_batch),
        ),
    )


SMALL_IMAGES = images_workload("vectorised_8x8", side=8, records=1000 * BATCH_SIZE)
MNIST_IMAGES = images_workload("vectorised_28x28", side=28, records=400 * BATCH_SIZE)
