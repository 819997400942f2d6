"""Batches of a random-access dataset that its stream cuts or takes apart: a record for each row."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import IterDataset, MapDataset
from bushel.experimental import RebatchIterDataset


def _rebatched(ds: MapDataset[Any], size: int) -> IterDataset[Any]:
    return RebatchIterDataset(ds.to_iter_dataset(), size)


def _mixture() -> IterDataset[Any]:
    parts = [MapDataset.range(30).batch(8), MapDataset.range(100, 130).batch(4)]
    return _rebatched(MapDataset.mix(parts), 5)


CASES: dict[str, Callable[[], IterDataset[Any]]] = {
    "larger": lambda: _rebatched(MapDataset.range(50).batch(8), 13),
    "smaller": lambda: _rebatched(MapDataset.range(50).batch(8), 3),
    "epochs": lambda: _rebatched(MapDataset.range(20).shuffle(seed=1).batch(8).repeat(3), 13),
    "batches in another order": lambda: _rebatched(MapDataset.range(50).batch(8)[::-1], 5),
    "a mixture of batches": _mixture,
    "unbatch": lambda: MapDataset.range(20).batch(8).to_iter_dataset().unbatch(),
    "unbatch, and batches again": lambda: RebatchIterDataset(
        MapDataset.range(50).batch(8).to_iter_dataset().unbatch().batch(3), 4
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_row_has_its_record(name: str) -> None:
    ds = CASES[name]()
    for step, element in enumerate(ds):
        answer = bushel.where(ds, step=step)
        numbers = [answer.records.sources[record.source].numbers[record.key] for record in answer]
        assert numbers == np.atleast_1d(element).tolist()
        assert [record.row for record in answer] == list(range(len(numbers)))


@pytest.mark.parametrize("positional", [True, False])
def test_rows_that_a_function_made_may_be_of_any_record(positional: bool) -> None:
    ds: Any = MapDataset.range(16)
    ds = ds.batch(8).to_iter_dataset() if positional else ds.to_iter_dataset().batch(8)
    halves = RebatchIterDataset(ds.map(lambda batch: batch[::2]), 3)
    second = [(record.row, record.key) for record in bushel.where(halves, step=1)]
    # Row 3 of the first batch, and rows 0 and 1 of the second one.
    members = [range(8), range(8, 16), range(8, 16)]
    assert second == [(row, key) for row, keys in enumerate(members) for key in keys]


def test_covers_and_when_follow() -> None:
    ds = _rebatched(MapDataset.range(50).batch(8), 13)
    assert "each of 50 records once" in str(bushel.covers(ds, replay=True))
    assert "step 2, row 4" in str(bushel.when(ds, key=30, replay=True))
