"""Sources that have grown since a state was saved."""

from collections.abc import Callable
from typing import Any

import pytest

import bushel
from bushel import MapDataset, ReadOptions
from bushel.errors import ChangedPipelineWarning, PlanError, StateError
from tests.contract.events import freeze

INLINE = ReadOptions(0, 0)
OLD, NEW = (
    [f"record {number}" for number in range(50)],
    [f"record {number}" for number in range(73)],
)


def _plain(source: Any) -> Any:
    return MapDataset.source(source).map(str.upper).to_iter_dataset(INLINE).batch(4)


# Pipelines in which what is left does not depend on how many records there are.
IN_ORDER: dict[str, Callable[[Any], Any]] = {
    "plain": _plain,
    "filtered": lambda source: (
        MapDataset.source(source)
        .to_iter_dataset(INLINE)
        .filter(lambda text: "3" not in text)
        .batch(3)
    ),
    "whole batches by position": lambda source: (
        MapDataset.source(source)
        .seed(3)
        .random_map(lambda text, rng: f"{text} {rng.integers(9)}")
        .batch(4, drop_remainder=True)
        .to_iter_dataset(INLINE)
    ),
}
# And in which it does.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "shuffled": lambda source: MapDataset.source(source).shuffle(seed=1).to_iter_dataset(INLINE),
    "repeated": lambda source: MapDataset.source(source).repeat(2).to_iter_dataset(INLINE),
    "batches by position": lambda source: (
        MapDataset.source(source).batch(4).to_iter_dataset(INLINE)
    ),
    "sliced from the end": lambda source: MapDataset.source(source)[-10:].to_iter_dataset(INLINE),
}


def _after(ds: Any, taken: int) -> tuple[dict[str, Any], list[Any]]:
    iterator = iter(ds)
    for _ in range(taken):
        next(iterator)
    return iterator.get_state(), list(iterator)


@pytest.mark.parametrize("name", IN_ORDER)
def test_goes_on_with_a_warning(name: str) -> None:
    state, _ = _after(IN_ORDER[name](OLD), 5)
    iterator = iter(IN_ORDER[name](NEW))
    with pytest.warns(ChangedPipelineWarning, match="had 50 records and has 73 now"):
        iterator.set_state(state)
    _, rest = _after(IN_ORDER[name](NEW), 5)
    assert list(map(freeze, iterator)) == list(map(freeze, rest))
    with pytest.raises(StateError, match=r"had 50 records.*`strict=True`"):
        iterator.set_state(state, strict=True)


@pytest.mark.parametrize("name", OTHERS)
def test_is_refused_and_goes_on_with_the_old_records(name: str) -> None:
    state, rest = _after(OTHERS[name](OLD), 5)
    with pytest.raises(StateError, match=r"checkpoint.pinned\(source, 50\)"):
        iter(OTHERS[name](NEW)).set_state(state)
    iterator = iter(OTHERS[name](bushel.checkpoint.pinned(NEW, 50)))
    iterator.set_state(state)
    assert list(map(freeze, iterator)) == list(map(freeze, rest))


def test_a_source_that_shrank_is_refused() -> None:
    state, _ = _after(_plain(NEW), 5)
    with pytest.raises(StateError, match="another pipeline") as caught:
        iter(_plain(OLD)).set_state(state)
    assert "pinned" not in str(caught.value)


def test_only_what_is_there_can_be_kept() -> None:
    with pytest.raises(PlanError, match="here 60 of 50"):
        bushel.checkpoint.pinned(OLD, 60)
    kept = bushel.checkpoint.pinned(NEW, 50)
    assert [len(kept), kept[49], kept[-1]] == [50, "record 49", "record 49"]
    with pytest.raises(IndexError):
        kept[50]


def test_a_longer_source_of_another_kind_is_no_source_that_has_grown() -> None:
    state, _ = _after(_plain(OLD), 5)
    with pytest.raises(StateError, match="another pipeline"):
        iter(_plain(tuple(NEW))).set_state(state)
