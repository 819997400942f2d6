"""Arguments that make no sense are refused when they are written, and states when restored."""

from typing import Any

import numpy as np
import pytest

from bushel import MapDataset
from bushel.errors import PlanError, StateError
from bushel.experimental import (
    BestFitPackIterDataset,
    BOSHandling,
    CacheIterDataset,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RebatchIterDataset,
    RepeatIterDataset,
    ThreadPrefetchDatasetIterator,
    multithread_prefetch,
)

NUMBERS = MapDataset.range(9).to_iter_dataset()
ROWS = MapDataset.range(9).map(lambda n: {"x": np.full(n % 3 + 1, n)}).to_iter_dataset()
REPLACE = BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS

PACKINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"length_struct": [3]}, PlanError, "must be a dict"),
    ({"length_struct": {}}, PlanError, "no features"),
    ({"length_struct": {"x": None}}, PlanError, "meta_features"),
    ({"length_struct": {"x": 2.5}}, PlanError, "whole number"),
    ({"length_struct": {"x": -1}}, PlanError, "whole number"),
    ({"length_struct": {"x": {"y": 3}}}, PlanError, "segment ids"),
    ({"length_struct": {"x": 3, "x_positions": 3}}, PlanError, "Rename"),
    ({"num_packing_bins": 0}, PlanError, "must be positive"),
    ({"num_packing_bins": 1.5}, TypeError, "integer"),
    ({"max_sequences_per_bin": 0}, PlanError, "positive integer"),
    ({"max_sequences_per_bin": 1.5}, TypeError, "integer"),
    ({"meta_features": "m"}, PlanError, r"\['m'\]"),
    ({"seed": None}, TypeError, "integer"),
    ({"seed": -1}, PlanError, "must not be negative"),
    ({"pack_alignment_struct": {"y": 2}}, PlanError, "same features"),
    ({"pack_alignment_struct": {"x": 0}}, PlanError, "positive whole number"),
    ({"pack_alignment_struct": {"x": -2}}, PlanError, "positive whole number"),
    ({"pack_alignment_struct": {"x": "2"}}, PlanError, "positive whole number"),
    ({"padding_struct": {"y": 2}}, PlanError, "same features"),
    ({"shuffle_bins_group_by_feature": "z"}, PlanError, "x_segment_ids"),
]


@pytest.mark.parametrize("make", [FirstFitPackIterDataset, BestFitPackIterDataset])
@pytest.mark.parametrize(("arguments", "kind", "text"), PACKINGS)
def test_packings(make: Any, arguments: Any, kind: type[Exception], text: str) -> None:
    good: dict[str, Any] = {"length_struct": {"x": 3}, "num_packing_bins": 2}
    assert list(make(ROWS, **good))
    with pytest.raises(kind, match=text):
        make(ROWS, **{**good, **arguments})


SPLITS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"length_struct": {}}, PlanError, "must be a dict"),
    ({"length_struct": 3}, PlanError, "must be a dict"),
    ({"length_struct": {"x": 1.5}}, PlanError, "whole number"),
    ({"length_struct": {"x": None}}, PlanError, "whole number"),
    ({"length_struct": {"x": -3}}, PlanError, "whole number"),
    ({"meta_features": "x"}, PlanError, r"\['x'\]"),
    ({"bos_handling": REPLACE, "bos_features": "x", "bos_token_id": 1}, PlanError, r"\['x'\]"),
    ({"bos_handling": REPLACE, "bos_features": ["x"]}, PlanError, "`bos_token_id` must be given"),
    ({"bos_features": ["x"]}, PlanError, "DO_NOTHING"),
    ({"bos_token_id": 0}, PlanError, "DO_NOTHING"),
    ({"bos_handling": "replace"}, TypeError, "BOSHandling"),
    ({"bos_handling": REPLACE, "bos_token_id": 1.5}, TypeError, "integer"),
    (
        {
            "bos_handling": REPLACE,
            "bos_features": ["x"],
            "bos_token_id": 1,
            "meta_features": ["x"],
        },
        PlanError,
        "in one",
    ),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), SPLITS)
def test_splits(arguments: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ConcatThenSplitIterDataset(ROWS, **{"length_struct": {"x": 3}, **arguments})


OTHERS: list[tuple[Any, type[Exception], str]] = [
    (lambda: RebatchIterDataset(NUMBERS, 0), PlanError, "must be positive"),
    (lambda: RebatchIterDataset(NUMBERS, 1.5), TypeError, "integer"),  # type: ignore[arg-type]
    (lambda: RepeatIterDataset(NUMBERS, 0), PlanError, "must be positive"),
    (lambda: RepeatIterDataset(NUMBERS, -1), PlanError, "must be positive"),
    (lambda: LimitIterDataset(NUMBERS, 0), PlanError, "must be positive"),
    (lambda: LimitIterDataset(NUMBERS, 2.0), TypeError, "integer"),  # type: ignore[arg-type]
    (lambda: InterleaveIterDataset([NUMBERS], cycle_length=0), PlanError, "must be positive"),
    (
        lambda: InterleaveIterDataset([NUMBERS], cycle_length=1, iter_buffer_size=-1),
        PlanError,
        "iter_buffer_size",
    ),
    (
        lambda: InterleaveIterDataset((d for d in [NUMBERS]), cycle_length=1),  # type: ignore[arg-type]
        TypeError,
        r"list\(",
    ),
    (
        lambda: InterleaveIterDataset([NUMBERS, 3], cycle_length=1),  # type: ignore[arg-type]
        TypeError,
        "int in it: 3",
    ),
    (lambda: multithread_prefetch(NUMBERS, -1, 2), PlanError, "must not be negative"),
    (lambda: multithread_prefetch(NUMBERS, 2, -2), PlanError, "must not be negative"),
    (
        lambda: multithread_prefetch(InterleaveIterDataset([NUMBERS], cycle_length=1), 2, 2),
        PlanError,
        "random-access",
    ),
    (lambda: ThreadPrefetchDatasetIterator(iter(NUMBERS), -1), PlanError, "must not be negative"),
]


@pytest.mark.parametrize(("make", "kind", "text"), OTHERS)
def test_others(make: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        make()


STREAMS: dict[str, Any] = {
    "pack": FirstFitPackIterDataset(ROWS, length_struct={"x": 3}, num_packing_bins=2),
    "split": ConcatThenSplitIterDataset(ROWS, length_struct={"x": 2}),
    "rebatch": RebatchIterDataset(NUMBERS.batch(4), 2),
    "repeat": RepeatIterDataset(NUMBERS, 2),
    "limit": LimitIterDataset(NUMBERS, 4),
    "cache": CacheIterDataset(NUMBERS),
    "interleave": InterleaveIterDataset([NUMBERS, NUMBERS], cycle_length=2),
}
_DEEP: Any = {}
for _ in range(3000):
    _DEEP = {"parent": _DEEP}
HOSTILE: tuple[Any, ...] = (
    None,
    -1,
    2.5,
    "7",
    [],
    {},
    [None],
    [[0]],
    {"x": 3},
    True,
    10**30,
    _DEEP,
)


def _damaged(state: Any) -> list[Any]:
    """A state with each of its parts, at any depth, replaced by something else."""
    made = list(HOSTILE)
    if isinstance(state, dict):
        for name in state:
            made.append({key: value for key, value in state.items() if key != name})
            made += [{**state, name: part} for part in _damaged(state[name])]
    elif isinstance(state, list):
        for place, item in enumerate(state):
            made.append(state[:place] + state[place + 1 :])
            made += [[*state[:place], part, *state[place + 1 :]] for part in _damaged(item)]
    return made


@pytest.mark.parametrize("name", STREAMS)
def test_damaged_states(name: str) -> None:
    """They are refused, or mean something: nothing breaks within."""
    ds = STREAMS[name]
    with iter(ds) as iterator:
        for _ in range(3):
            next(iterator)
        state = iterator.get_state()
        expected = next(iterator)
        del state["bushel"]
        refused = 0
        for damaged in _damaged(state):
            try:
                iterator.set_state(damaged)
                next(iterator, None)
            except StateError:
                refused += 1
        assert refused > 20
        # And the iterator is none the worse for it.
        iterator.set_state(state)
        assert str(next(iterator)) == str(expected)


@pytest.mark.parametrize(
    ("name", "state", "text"),
    [
        ("pack", {"parent": {"next_index": 0}, "next_row": 2, "counter": 1}, "row 2 of a group"),
        ("pack", {"parent": {"next_index": 0}, "next_row": 9, "counter": 9}, "not exceed 2"),
        (
            "split",
            {
                "parent_state": {"next_index": 0},
                "remainder_slices": {"x": [3, 40]},
                "elements_from_buffer_after_checkpoint": 0,
            },
            "other data",
        ),
        ("rebatch", {"parent": {"next_index": 0}, "batch_idx": 7}, "other data"),
    ],
)
def test_states_of_other_data(name: str, state: Any, text: str) -> None:
    with iter(STREAMS[name]) as iterator, pytest.raises(StateError, match=text):
        iterator.set_state(state)
        next(iterator)
