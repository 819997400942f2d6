"""A dataset of torch's, in a module that is imported when it is used."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

IMAGES = torch.arange(60, dtype=torch.uint8).reshape(10, 2, 3)
LABELS = torch.arange(10)
ROWS = [(IMAGES[key].numpy(), np.int64(key)) for key in range(10)]


class Pictures(Dataset[Any]):  # type: ignore[misc]
    """A dataset as people write them."""

    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: int) -> Any:
        if not isinstance(key, int):
            raise TypeError(f"{key!r} is no int")
        return {"image": IMAGES[key], "label": key, "more": [LABELS[key], None, "text"]}


def pictures(keys: Any) -> list[Any]:
    return [
        {"image": IMAGES[key].numpy(), "label": key, "more": [np.int64(key), None, "text"]}
        for key in keys
    ]
