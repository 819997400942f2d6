"""The records of the image workloads: made once, the same in every process."""

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
