"""What is made of many elements at once is what is made of them one by one."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import DatasetIterator, IterDataset, MapDataset, ReadOptions
from bushel.experimental import (
    BestFitPackIterDataset,
    BOSHandling,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    RebatchIterDataset,
)
from tests.contract.events import Event, run_events
from tests.property.profile import tried


class OneByOne(IterDataset[Any]):
    """A user's own stream, of which no more elements are asked than are needed."""

    def __iter__(self) -> "_Iterator":
        return _Iterator(self._parent.__iter__())


class _Iterator(DatasetIterator[Any]):
    def __next__(self) -> Any:
        return next(self._parent)

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._parent.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        self._parent.set_state(state)


Build = Callable[[Any], Any]
LENGTHS = {"x": 9, "y": 9}
BUILDS: dict[str, Build] = {
    "first fit": lambda ds: FirstFitPackIterDataset(ds, length_struct=LENGTHS, num_packing_bins=19),
    "best fit": lambda ds: BestFitPackIterDataset(
        ds, length_struct=LENGTHS, num_packing_bins=19, meta_features=["at"]
    ),
    "aligned": lambda ds: FirstFitPackIterDataset(
        ds,
        length_struct=LENGTHS,
        num_packing_bins=10,
        pack_alignment_struct={"x": 2, "y": 2},
        max_sequences_per_bin=3,
    ),
    "split": lambda ds: ConcatThenSplitIterDataset(
        ds, length_struct={"x": 7, "y": 11, "at": 9}, meta_features=["at"]
    ),
    "split one": lambda ds: ConcatThenSplitIterDataset(
        ds.map(lambda element: {"x": element["x"]}),
        length_struct={"x": 7},
        bos_handling=BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS,
        bos_features=["x"],
        bos_token_id=-1,
    ),
    "split, whole rows": lambda ds: ConcatThenSplitIterDataset(
        ds.map(lambda element: {"x": element["x"]}),
        length_struct={"x": 5},
        split_full_length_features=False,
    ),
}


@st.composite
def documents(draw: st.DrawFn) -> list[Any]:
    """Elements that are all alike, or nearly."""
    made = []
    alike = draw(st.booleans())
    for at, size in enumerate(draw(st.lists(st.integers(0, 9), min_size=20, max_size=90))):
        other = size if alike else (size * 7 + at) % 10
        made.append({"x": np.arange(size), "y": np.full(other, at), "at": np.array([at])})
    for at in draw(st.lists(st.integers(0, len(made) - 1), max_size=2)):
        odd = draw(st.sampled_from([np.arange(3.0), 5, np.arange(30), "text"]))
        made[at] = {**made[at], draw(st.sampled_from(["x", "y"])): odd}
    return made


def _same_events(build: Build, elements: list[Any]) -> None:
    stream = MapDataset.range(len(elements)).map(elements.__getitem__)
    ds = stream.to_iter_dataset(ReadOptions(0, 0))

    def shown(events: list[Event]) -> list[Any]:
        return [what[:3] for what, _ in events]

    assert shown(run_events(build(ds))) == shown(run_events(build(OneByOne(ds))))


@pytest.mark.parametrize("name", BUILDS)
@tried
@given(documents())
def test_rows(name: str, elements: list[Any]) -> None:
    _same_events(BUILDS[name], elements)


def _array(start: int, stop: int) -> Any:
    return np.arange(start, stop)


def _dict(start: int, stop: int) -> Any:
    return {"b": np.arange(start, stop), "a": np.ones((stop - start, 2)) * start}


def _nested(start: int, stop: int) -> Any:
    return {"b": (np.arange(start, stop), _dict(start, stop))}


@tried
@given(
    st.sampled_from([_array, _dict, _nested]),
    st.lists(st.integers(1, 9), max_size=60),
    st.integers(1, 40),
    st.lists(st.integers(0, 59), max_size=2),
)
def test_batches(make: Any, sizes: list[int], size: int, odd: list[int]) -> None:
    ends = np.cumsum([0, *sizes]).tolist()
    batches = [make(*edges) for edges in pairwise(ends)]
    for at in odd:
        if at < len(batches):
            batches[at] = {"other": np.arange(2)} if at % 2 else make(0, 0)
    _same_events(lambda ds: RebatchIterDataset(ds, size), batches)
