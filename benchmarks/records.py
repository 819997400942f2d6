"""The records that several workloads read: made once, the same in every process.

They are no part of `workloads`, so that a worker process which needs them does not wait for the
import of every workload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
Record = dict[str, Any]


@cache
def image_columns(n: int, side: int) -> Columns:
    """Makes n grey images and their labels; the labels are all different, so none can hide."""
    pixels = np.random.default_rng(n).integers(0, 256, (n, side, side), dtype=np.uint8)
    return {"image": pixels, "label": np.arange(n)}


@cache
def image_records(n: int, side: int) -> list[Record]:
    """Gives the same images as a list of records, each with an array of its own."""
    columns = image_columns(n, side)
    return [
        {"image": image.copy(), "label": label}
        for image, label in zip(columns["image"], columns["label"].tolist(), strict=True)
    ]


def normalise(record: Record) -> Record:
    """Scales the pixels, for one record and for a batch alike; sixteenths keep sums exact."""
    return {"image": record["image"].astype(np.float32) / 16, "label": record["label"]}


@dataclass(frozen=True, slots=True)
class Reused:
    """A source of n records, which are the given ones over and over.

    With it an epoch is long, but neither making the records nor sending them to a worker is.

    >>> [Reused("abc", 5)[key] for key in range(5)]
    ['a', 'b', 'c', 'a', 'b']
    """

    records: Sequence[Any]
    n: int

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, key: int) -> Any:
        return self.records[key % len(self.records)]
