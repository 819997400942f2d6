"""Sources and functions of the pipelines.

Workers import this file, each of them, so it imports little itself.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel import transforms


class BrokenRecord(Exception):
    """What a source raises for a record that it cannot read."""


class RowSource:
    """Records one by one; those in `broken` cannot be read."""

    def __init__(self, size: int, broken: Sequence[int] = ()) -> None:
        self._size, self._broken = size, frozenset(broken)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: int) -> Any:
        if key in self._broken:
            raise BrokenRecord(f"record {key}")
        return record(key)


class ManySource(RowSource):
    """The same, many at a time."""

    def __getitems__(self, keys: Sequence[int]) -> list[Any]:
        return [self[key] for key in keys]


def record(key: int) -> Any:
    return {"id": np.int64(key), "pair": np.array([key, key / 2], np.float32)}


def columns(size: int) -> Any:
    ids = np.arange(size)
    return {"id": ids, "pair": np.stack([ids, ids / 2], axis=1).astype(np.float32)}


def double(element: Any) -> Any:
    return {"id": element["id"] * 2, "pair": element["pair"] * 2}


def is_not_third(element: Any) -> bool:
    return bool(element["id"] % 3)


def fail_on_third(element: Any) -> Any:
    if element["id"] % 3 == 1:
        raise BrokenRecord(f"record {element['id']}")
    return element


def fail_on_negative(element: Any) -> Any:
    if element["id"] < 0:
        raise BrokenRecord("negative")
    return element


def is_rare(element: Any) -> bool:
    return bool(element["id"] % 7 == 5)


def ids_of(elements: Sequence[Any]) -> list[int]:
    return [int(element["id"]) for element in elements]


def jitter(element: Any, rng: np.random.Generator) -> Any:
    return {**element, "noise": rng.random(), "more": rng.integers(9, size=2)}


def with_index(index: int, element: Any) -> Any:
    return (index, element)


def double_columns(tree: Any) -> Any:
    return {"id": tree["id"] * 2, "pair": tree["pair"] * 2}


def double_columns_with_last(tree: Any) -> Any:
    return {**double_columns(tree), "last": tree["last"]}


def ragged(element: Any) -> Any:
    """Sequences of several lengths: `id` of one to five, `pair` of none to two."""
    key = int(element["id"])
    return {"id": np.full(key % 5 + 1, key), "pair": element["pair"][: key % 3]}


def size_of_id(element: Any) -> int:
    return len(element["id"])


def ids_in_rows(batch: Any) -> Any:
    return {"id": batch["id"][:, 0]}


def with_name(element: Any) -> Any:
    return {**element, "name": f"record {element['id']}", "bytes": b"x"}


class Copies(transforms.FlatMap):
    """Makes id % 4 copies of an element: of every fourth none."""

    max_fan_out = 3

    def flat_map(self, element: Any) -> list[Any]:
        return [{**element, "copy": copy} for copy in range(int(element["id"]) % 4)]


class Double(transforms.Map):
    def map(self, element: Any) -> Any:
        return double(element)


class Jitter(transforms.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return jitter(element, rng)


class WithIndex(transforms.MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return with_index(index, element)


class NotThird(transforms.Filter):
    def filter(self, element: Any) -> bool:
        return is_not_third(element)


class DoubleColumns(transforms.MapBatches):
    def map_batches(self, columns: Any) -> Any:
        return double_columns(columns)


class Backwards(transforms.DatasetSelectionMap):
    """Takes the elements of two datasets in turn, the second from its end."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index % 2, 7 - index // 2 if index % 2 else index // 2
