"""Documents to pack, in a module that a worker imports in no time."""

from typing import Any

import numpy as np


def document(number: int) -> Any:
    if number == 17:
        raise LookupError(f"document {number}")
    return {"x": np.full(number % 6 + 1, number)}  # Those of six are too long for packing.


def shape(row: Any) -> Any:
    return {"x": row["x"], "sum": row["x"].sum()}
