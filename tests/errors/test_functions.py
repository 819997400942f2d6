"""What is said of sources, functions and batches that cannot be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, errors, transforms
from bushel.experimental import (
    FlatMapMapDataset,
)
from tests.errors.cases import Case, TooMany, assert_says, numbers, stream


class NoLength:
    def __getitem__(self, index: int) -> int:
        return index


class WrongCount:
    """Gives one record too few when asked for many."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        return list(indices[:-1])


def _stop(element: Any) -> Any:
    raise StopIteration


def _stop_always(elements: Any) -> Any:
    raise StopIteration


class StopDataset(MapDataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        raise StopIteration


class StopSource:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        raise StopIteration


CASES: dict[str, Case] = {
    # Sources.
    "a source without a length": (
        lambda: MapDataset.source(NoLength()),
        errors.SourceError,
        TypeError,
        r"a source needs `__len__` and `__getitem__`.*and NoLength has not",
    ),
    "an iterator as a source": (
        lambda: MapDataset.source(iter([1])),
        errors.SourceError,
        TypeError,
        r"Put the records of an iterator in a list first\.",
    ),
    "a number as a source": (
        lambda: MapDataset.source(3),
        errors.SourceError,
        TypeError,
        "and int has not: 3",
    ),
    "columns of several lengths": (
        lambda: MapDataset.source({"a": np.zeros(3), "b": {"c": np.zeros(4)}}),
        errors.PlanError,
        ValueError,
        r"must be equally long.*element\['a'\]: 3, element\['b'\]\['c'\]: 4",
    ),
    "half columns": (
        lambda: MapDataset.source({"a": np.zeros(3), "b": [1, 2, 3]}),
        errors.SourceError,
        TypeError,
        r"element\['b'\]\[0\] is a int\. Convert it with `numpy.asarray`",
    ),
    "__getitems__ returns too few": (
        lambda: list(MapDataset.source(WrongCount())),
        errors.SourceError,
        TypeError,
        r"WrongCount\.__getitems__ was asked for \d+ records? and returned \d+",
    ),
    # Functions.
    "no function": (
        lambda: numbers.map(3),
        TypeError,
        TypeError,
        r"`map` takes a function or a `transforms\.Map`, and got int: 3",
    ),
    "no filter": (
        lambda: numbers.filter("odd"),
        TypeError,
        TypeError,
        r"`filter` takes a function or a `transforms\.Filter`, and got str",
    ),
    "no random map": (
        lambda: stream.random_map(None, seed=1),
        TypeError,
        TypeError,
        r"`random_map` takes a function or a `transforms\.RandomMap`, and got NoneType",
    ),
    "no map with index": (
        lambda: stream.map_with_index(7),
        TypeError,
        TypeError,
        r"`map_with_index` takes a function or a `transforms\.MapWithIndex`, and got int: 7",
    ),
    "no map of batches": (
        lambda: numbers.map_batches([]),
        TypeError,
        TypeError,
        r"`map_batches` takes a function or a `transforms\.MapBatches`, and got list",
    ),
    "no flat map": (
        lambda: FlatMapMapDataset(numbers, abs),
        TypeError,
        TypeError,
        r"takes a `FlatMap` object.*Subclass it and define `flat_map`",
    ),
    "apply of a function": (
        lambda: numbers.apply(abs),
        NotImplementedError,
        NotImplementedError,
        r"`apply` takes objects of the classes.*write `ds\.map\(function\)`",
    ),
    "more than max_fan_out": (
        lambda: FlatMapMapDataset(numbers, TooMany())[0],
        errors.PlanError,
        ValueError,
        r"`flat_map\(TooMany\)` made 2 elements of one, more than its max_fan_out of 1",
    ),
    "map_batches of another length": (
        lambda: numbers.map_batches(lambda x: np.zeros(3))[0],
        errors.BatchError,
        ValueError,
        r"got columns of 1 elements? and returned shape \(3,\) at element\. It must return arrays",
    ),
    "map_batches of no array": (
        lambda: numbers.map_batches(lambda x: {"sum": 3})[0],
        errors.BatchError,
        ValueError,
        r"returned a int at element\['sum'\]",
    ),
    "map_batches of nothing": (
        lambda: numbers.map_batches(lambda x: None)[0],
        errors.BatchError,
        ValueError,
        r"returned None: no columns",
    ),
    # StopIteration would end a loop without a word.
    "StopIteration in a map": (
        lambda: list(numbers.map(_stop)),
        RuntimeError,
        RuntimeError,
        r"`map\(_stop\)` raised StopIteration",
    ),
    "StopIteration in a stream's map": (
        lambda: list(stream.map(_stop)),
        RuntimeError,
        RuntimeError,
        r"`map\(_stop\)` raised StopIteration",
    ),
    "StopIteration in a filter": (
        lambda: list(stream.filter(_stop)),
        RuntimeError,
        RuntimeError,
        r"`filter\(_stop\)` raised StopIteration",
    ),
    "StopIteration in a batch_fn": (
        lambda: list(stream.batch(2, batch_fn=_stop_always)),
        RuntimeError,
        RuntimeError,
        r"`batch\(2, batch_fn=_stop_always\)` raised StopIteration",
    ),
    "StopIteration in a map of batches": (
        lambda: list(numbers.map_batches(_stop_always)),
        RuntimeError,
        RuntimeError,
        r"`map_batches\(_stop_always\)` raised StopIteration",
    ),
    "StopIteration in a source": (
        lambda: list(MapDataset.source(StopSource())),
        RuntimeError,
        RuntimeError,
        r"StopSource.* raised StopIteration",
    ),
    "StopIteration in a user's dataset": (
        lambda: list(StopDataset().map(abs)),
        RuntimeError,
        RuntimeError,
        r"`StopDataset` raised StopIteration",
    ),
    # Batches.
    "a batch of none": (
        lambda: numbers.batch(0),
        errors.PlanError,
        ValueError,
        r"batch_size must be positive\. Got 0",
    ),
    "a batch of less than none": (
        lambda: stream.batch(-3),
        errors.PlanError,
        ValueError,
        r"batch_size must be positive\. Got -3",
    ),
    "Batch of none": (
        lambda: transforms.Batch(0),
        errors.PlanError,
        ValueError,
        r"batch_size must be positive\. Got 0",
    ),
    "a batch of a half": (
        lambda: numbers.batch(2.5),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "batch_size must be an integer, and is 2.5, a float",
    ),
    "batch_fn is no function": (
        lambda: numbers.batch(2, batch_fn=3),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "`batch_fn` must be a function, and is 3",
    ),
    "a batch after a filter": (
        lambda: numbers.filter(bool).map(abs).batch(2),
        errors.PlanError,
        ValueError,
        r"`batch\(2\)` cannot follow `filter\(bool\)` on a random-access dataset.*to_iter_dataset",
    ),
    "a batch after a flat map": (
        lambda: FlatMapMapDataset(numbers, TooMany()).batch(2),
        errors.PlanError,
        ValueError,
        r"cannot follow `flat_map\(TooMany\)`",
    ),
    "unequal shapes": (
        lambda: numbers.map(lambda n: {"image": np.zeros((2, n // 3))}).batch(5)[0],
        errors.BatchError,
        ValueError,
        r"element\['image'\] has shape \(2, 0\) in element 0 of the batch and \(2, 1\) in element 3"
        r"\. Pad or crop",
    ),
    "unequal shapes in a list": (
        lambda: list(stream.map(lambda n: (n, np.zeros(n))).batch(2)),
        errors.BatchError,
        ValueError,
        r"element\[1\] has shape \(0,\) in element 0 of the batch and \(1,\) in element 1\. Pad or",
    ),
    "other keys": (
        lambda: numbers.map(lambda n: {"a": 1} if n else {"b": 1}).batch(2)[0],
        errors.BatchError,
        ValueError,
        r"one structure, but element is a dict with keys \['b'\] in element 0 of the batch and "
        r"a dict with keys \['a'\] in element 1",
    ),
    "other structures": (
        lambda: numbers.map(lambda n: {"a": (1, 2) if n < 2 else (1,)}).batch(4)[0],
        errors.BatchError,
        ValueError,
        r"element\['a'\] is a tuple of 2 in element 0 of the batch and a tuple of 1 in element 2",
    ),
    "None among others": (
        lambda: numbers.map(lambda n: {"a": None if n == 0 else n}).batch(2)[0],
        errors.BatchError,
        ValueError,
        r"element\['a'\] is a NoneType in element 0",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_says(case: Case) -> None:
    assert_says(case)
