"""Parses many similar Examples at once with numpy, as columns.

Examples of one dataset have the same features in the same order. Those of equal length mostly
differ only in their values, which are at the same places:

    0a 1c 0a 0c 0a 01 78 12 07 1a 05 0a 03 | 01 02 03 | 0a 0c 0a 01 79 ...
    structure, the same in all               values      structure
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from bushel.sources.tfrecord.example_quick import FLOATS, INTS, spans_of

# With more kinds of structure, numpy has too little to do.
_MOST_KINDS = 16

# The kind of values and the shape of a feature.
Shapes = Mapping[str, tuple[int, tuple[int, ...]]]


def parse_columns(records: Sequence[bytes], shapes: Shapes) -> dict[str, Any] | None:
    """The features of many Examples; None if they are too different, or something is wrong."""
    columns: dict[str, Any] = {
        name: np.empty((len(records), prod(shape)), np.int64 if kind == INTS else np.float32)
        for name, (kind, shape) in shapes.items()
    }
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    kinds = 0
    for length in np.unique(lengths).tolist():
        left = np.flatnonzero(lengths == length)
        joined = b"".join([records[number] for number in left.tolist()])
        rows = np.frombuffer(joined, dtype=np.uint8).reshape(len(left), length)
        while len(left):
            kinds += 1
            alike = _read_alike(rows, shapes, columns, left) if kinds <= _MOST_KINDS else None
            if alike is None:
                return None
            rows, left = rows[~alike], left[~alike]
    return {
        name: columns[name].reshape(len(records), *shape) for name, (_, shape) in shapes.items()
    }


def _read_alike(rows: Any, shapes: Shapes, columns: dict[str, Any], places: Any) -> Any:
    """Reads the rows with the same structure as the first, and returns which; None if it fails."""
    spans = spans_of(rows[0].tobytes())
    if spans is None:
        return None
    structure = np.ones(rows.shape[1], dtype=bool)
    # The parts in which Examples may differ are masked: values, and ends of whole numbers.
    for _, start, stop in spans.values():
        structure[start:stop] = False
    alike = (rows[:, structure] == rows[0, structure]).all(1)
    for kind, start, stop in spans.values():
        if kind == INTS:
            continues = rows[:, start:stop] > 127
            alike &= (continues == continues[0]).all(1)
    some = rows if alike.all() else rows[alike]
    for name, (kind, _) in shapes.items():
        found, start, stop = spans.get(name, (0, 0, 0))
        if found != kind:
            return None
        values = some[:, start:stop]
        made = _floats(values) if kind == FLOATS else _ints(values)
        if made is None or made.shape[1] != columns[name].shape[1]:
            return None
        columns[name][places[alike]] = made
    return alike


def _floats(values: Any) -> Any:
    return np.ascontiguousarray(values).view("<f4")


def _ints(values: Any) -> Any:
    ends = np.flatnonzero(values[0] < 128)
    if not len(ends) or ends[-1] != values.shape[1] - 1:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max() > 9:
        return None
    places = np.arange(values.shape[1]) - np.repeat(starts, ends - starts + 1)
    worth = (values & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(worth, starts, axis=1).view(np.int64)
