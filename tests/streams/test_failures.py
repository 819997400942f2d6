"""Sequences that cannot be packed fail in their place, and take nothing with them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset
from bushel.experimental import (
    BestFitPackIterDataset,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
)
from tests.grain.oracle import Raised, assert_same, events
from tests.streams.compare import through_json

ODD: dict[str, Callable[[], Any]] = {
    "too long": lambda: {"x": np.zeros(7, int), "m": 0},
    "no feature": lambda: {"m": 0},
    "no loose feature": lambda: {"x": np.zeros(2, int)},
    "a list": lambda: {"x": [1, 2], "m": 0},
    "nothing": lambda: {"x": None, "m": 0},
    "another shape": lambda: {"x": np.zeros((2, 3), int), "m": 0},
    "no dict": lambda: 3,
}
every_odd = pytest.mark.parametrize("odd", ODD)
every_fit = pytest.mark.parametrize("make", [FirstFitPackIterDataset, BestFitPackIterDataset])


def _element(number: int, odd: str | None) -> Any:
    if odd is not None and number in (3, 4, 11):
        return ODD[odd]()
    return {"x": np.full(number % 4 + 1, number), "m": number}


def _stream(odd: str | None, without: tuple[int, ...] = ()) -> IterDataset[Any]:
    numbers = [number for number in range(24) if number not in without]
    return MapDataset.source(numbers).map(lambda n: _element(n, odd)).to_iter_dataset()


@every_odd
@every_fit
def test_packing_goes_on_without_it(make: Any, odd: str) -> None:
    how: Any = {
        "length_struct": {"x": 6},
        "num_packing_bins": 3,
        "meta_features": ["m"],
        "seed": 5,
    }
    happened = events(make(_stream(odd), **how))
    rows = [event for event in happened if not isinstance(event, Raised)]
    assert len(happened) - len(rows) == 3
    assert_same(list(make(_stream(None, without=(3, 4, 11)), **how)), rows)


@every_odd
@every_fit
def test_states_around_it(make: Any, odd: str) -> None:
    ds = make(_stream(odd), length_struct={"x": 6}, num_packing_bins=3, meta_features=["m"])
    happened = events(ds)
    with iter(ds) as first, iter(ds) as used:
        for done in range(len(happened) + 1):
            state = through_json(first.get_state())
            with iter(ds) as fresh:
                for iterator in (fresh, used):
                    iterator.set_state(state)
                    assert_same(happened[done:], events(iterator), f"from {done}: ")
            try:
                next(first, None)
            except Exception:
                continue


def test_a_row_that_cannot_be_made_is_lost_alone() -> None:
    """What is put into one array can still be of kinds that do not go together."""
    elements = [{"x": np.array(values)} for values in ([1, 2, 3], [4, 5], ["a"], [6], [7, 8])]
    ds = MapDataset.source(elements).to_iter_dataset()
    happened = events(ConcatThenSplitIterDataset(ds, length_struct={"x": 3}))
    shown = ["!" if isinstance(row, Raised) else row["x"].tolist() for row in happened]
    assert shown == [[1, 2, 3], "!", [6, 7, 8]]


def test_a_sequence_that_fits_into_no_row() -> None:
    elements = [{"x": np.arange(2), "m": np.arange(n)} for n in (1, 5, 1)]
    ds = ConcatThenSplitIterDataset(
        MapDataset.source(elements).to_iter_dataset(),
        length_struct={"x": 6, "m": 3},
        meta_features=["m"],
    )
    iterator = iter(ds)
    rows = [next(iterator)]
    with pytest.raises(ValueError, match="fits into no row"):
        next(iterator)
    rows += list(iterator)
    assert [row["x"].tolist() for row in rows] == [[0, 1, 0, 0, 0, 0]] * 2
