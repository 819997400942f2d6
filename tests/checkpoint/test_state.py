"""States are signed with the pipeline they belong to, and say how another one differs."""

import json
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.errors import StateError, StateRangeError
from bushel.experimental import (
    DatasetOptions,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    WithOptionsIterDataset,
    ZipIterDataset,
)

INLINE = ReadOptions(0, 0)


def _stream(size: int = 20) -> IterDataset[Any]:
    return MapDataset.range(size).to_iter_dataset(INLINE)


def _state(ds: Any, steps: int = 3) -> Any:
    iterator = iter(ds)
    for _ in range(steps):
        next(iterator)
    return json.loads(json.dumps(iterator.get_state()))


def _base() -> MapDataset[Any]:
    return MapDataset.range(20).shuffle(seed=1).map(abs)


DIFFERENCES = {
    "another length": (
        MapDataset.range(21).shuffle(seed=1).map(abs).batch(2),
        "step 1 was `range(0, 20, 1)` and is `range(0, 21, 1)` now.",
    ),
    "another seed": (
        MapDataset.range(20).shuffle(seed=2).map(abs).batch(2),
        "step 2 was `shuffle(seed=1)` and is `shuffle(seed=2)` now.",
    ),
    "another step": (
        MapDataset.range(20).shuffle(seed=1).filter(abs).to_iter_dataset().batch(2),
        "step 3 was `map` and is `filter` now; `to_iter_dataset()` is new, after step 3 (`map`); "
        "step 5 (`to_iter_dataset()`) is gone.",
    ),
    "another batch size": (
        _base().batch(4),
        "step 4 was `batch(2)` and is `batch(4)` now.",
    ),
    "a step more": (
        _base().batch(2).map(abs),
        "`map` is new, after step 4 (`batch(2)`).",
    ),
    "a step more in the stream": (
        _base().batch(2).to_iter_dataset().map(abs).filter(np.any),
        "`map`, `filter` are new, after step 5 (`to_iter_dataset()`).",
    ),
    "a step less": (_base(), "step 4 (`batch(2)`) is gone."),
    "several": (
        MapDataset.range(21).shuffle(seed=2).map(abs).filter(np.any).to_iter_dataset().batch(4),
        "step 1 was `range(0, 20, 1)` and is `range(0, 21, 1)` now; step 2 was `shuffle(seed=1)` "
        "and is `shuffle(seed=2)` now; ",
    ),
}


@pytest.mark.parametrize(("ds", "words"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_another_pipeline_is_told_apart(ds: Any, words: str) -> None:
    iterator = iter(ds)
    first = next(iterator)
    with pytest.raises(StateError) as caught:
        iterator.set_state(_state(_base().batch(2)))
    text = str(caught.value)
    assert text.startswith(f"this state belongs to another pipeline: {words}")
    assert text.endswith("(To restore it all the same, remove its 'bushel' entry.)")
    assert isinstance(caught.value, ValueError)
    # Refused, it has changed nothing.
    rest = list(iterator)
    assert [str(element) for element in [first, *rest]] == [str(element) for element in ds]


def test_a_state_of_a_longer_pipeline() -> None:
    iterator = iter(_stream())
    with pytest.raises(
        StateError, match="step 3 \\(`map`\\) is gone; step 4 \\(`batch\\(2\\)`\\) is gone"
    ):
        iterator.set_state(_state(_stream().map(abs).batch(2)))


def test_the_parts_of_a_mixture_are_told_apart() -> None:
    mixed = IterDataset.mix([_stream(), _stream().map(abs)], [1, 2])
    other = IterDataset.mix([_stream(), _stream().filter(abs)], [1, 2])
    with pytest.raises(StateError, match="step 5 was `map` and is `filter` now"):
        iter(other).set_state(_state(mixed))
    more = IterDataset.mix([_stream(), _stream().map(abs), _stream()], [1, 2, 1])
    with pytest.raises(StateError, match=r"was `mix\(2 parts\)` and is `mix\(3 parts\)` now"):
        iter(more).set_state(_state(mixed))


def test_weights_are_part_of_a_random_access_mixture() -> None:
    # Which element is at a position depends on them.
    parts = [MapDataset.range(9), MapDataset.range(9)]
    state = _state(MapDataset.mix(parts, [1, 2]).to_iter_dataset())
    with pytest.raises(StateError, match=r"proportions=\[100, 200\].*proportions=\[100, 300\]"):
        iter(MapDataset.mix(parts, [1, 3]).to_iter_dataset()).set_state(state)


def test_named_parts_may_come_and_go() -> None:
    first = iter(IterDataset.mix({"a": _stream(), "b": MapDataset.range(100, 120)}))
    taken = [next(first) for _ in range(6)]
    parts = {"b": MapDataset.range(100, 120), "c": MapDataset.range(200, 220)}
    second = iter(IterDataset.mix(parts))
    state = first.get_state()
    del state["bushel"]
    second.set_state(state)
    seen = [number for number in taken if number >= 100]
    later = [next(second) for _ in range(6)]
    assert next(number for number in later if number < 200) == seen[-1] + 1
    assert next(number for number in later if number >= 200) == 200


@pytest.mark.parametrize(
    "other",
    [
        ThreadPrefetchIterDataset(_stream().map(abs), prefetch_buffer_size=5),
        WithOptionsIterDataset(_stream().map(abs), DatasetOptions()),
        _stream().seed(3).map(abs),
        MapDataset.range(20).to_iter_dataset(ReadOptions(2, 8)).map(abs),
    ],
    ids=["prefetch", "options", "seed", "threads"],
)
def test_what_changes_no_element_does_not_matter(other: Any) -> None:
    iterator = iter(other)
    iterator.set_state(_state(_stream().map(abs)))
    assert list(iterator) == list(range(3, 20))
    iterator.close()


def test_a_state_without_a_signature_is_taken_as_it_is() -> None:
    iterator = iter(_stream())
    iterator.set_state({"next_index": 5})
    assert next(iterator) == 5
    counted = iter(_stream().filter(lambda number: number % 2).map_with_index(lambda i, x: (i, x)))
    counted.set_state({"parent": {"next_index": 4}, "counter": 2})
    assert next(counted) == (2, 5)


DAMAGED = {
    "no dict": (None, "a state is a dict, as `get_state()` returned it, and this is a NoneType"),
    "a list": ([1, 2], "and this is a list: [1, 2]."),
    "bytes": (b"{}", "and this is bytes"),
    "empty": ({}, "this state has no 'next_index', so it was made by another pipeline: {}."),
    "of another kind": ({"parent": {}}, "this state has no 'next_index'"),
    "a text for a number": (
        {"next_index": "5"},
        "'next_index' in a state must be a whole number, and is '5'.",
    ),
    "a truth for a number": ({"next_index": True}, "must be a whole number, and is True."),
    "a half": ({"next_index": 2.5}, "must be a whole number, and is 2.5."),
    "negative": ({"next_index": -1}, "'next_index' in a state must not be negative, and is -1."),
    "a damaged signature": (
        {"next_index": 3, "bushel": 7},
        "the 'bushel' entry of this state is damaged: 7.",
    ),
    "a signature without a pipeline": (
        {"next_index": 3, "bushel": {"version": 1}},
        "the 'bushel' entry of this state is damaged",
    ),
    "from the future": (
        {"next_index": 3, "bushel": {"version": 99, "pipeline": []}},
        "this state has version 99; this release of bushel reads version 1.",
    ),
}


@pytest.mark.parametrize(("state", "words"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_state(state: Any, words: str) -> None:
    iterator = iter(_stream())
    assert next(iterator) == 0
    with pytest.raises(StateError) as caught:
        iterator.set_state(state)
    assert words in str(caught.value)
    assert list(iterator) == list(range(1, 20))


def test_a_state_beyond_the_end() -> None:
    iterator = iter(_stream())
    with pytest.raises(StateRangeError, match="is at element 21, and the dataset has only 20") as e:
        iterator.set_state({"next_index": 21})
    assert isinstance(e.value, IndexError)
    iterator.set_state({"next_index": 20})
    assert list(iterator) == []


@pytest.mark.parametrize(
    ("ds", "state", "words"),
    [
        (_stream().map_with_index(max), {"parent": {}}, "no 'counter'"),
        (
            WindowShuffleIterDataset(_stream(), window_size=3, seed=1),
            {"next_index": 3},
            "no 'parent_window_start_state'",
        ),
        (
            IterDataset.mix([_stream(), _stream()]),
            {"parents": [{"next_index": 1}], "index": 0, "stop": False},
            "this mixture has 2 parts",
        ),
        (
            ZipIterDataset([_stream(), _stream()]),
            {"parents": {"a": 1}},
            "this zip has 2 inputs",
        ),
    ],
    ids=["counter", "window", "mix", "zip"],
)
def test_a_state_of_another_shape(ds: Any, state: Any, words: str) -> None:
    iterator = iter(ds)
    first = str(next(iterator))
    with pytest.raises(StateError, match=words):
        iterator.set_state(state)
    assert [first, *map(str, iterator)] == [str(element) for element in ds]


def test_a_state_belongs_to_whoever_asked_for_it() -> None:
    iterator = iter(IterDataset.mix([_stream(), _stream()]))
    next(iterator)
    state = iterator.get_state()
    saved = json.loads(json.dumps(state))
    state["parents"][0]["next_index"] = 17
    assert iterator.get_state() == saved
    iterator.set_state(saved)
    saved["parents"][0]["next_index"] = 17
    assert next(iterator) == 0


def test_states_stay_small() -> None:
    ds = MapDataset.source(list(range(100_000))).shuffle(seed=1).to_iter_dataset().batch(10)
    assert len(json.dumps(_state(ds, 50))) < 500


@pytest.mark.parametrize("version", [None, 0, -1, 2, 1.5, "1", [1]])
def test_states_of_other_versions_are_refused_whatever_those_are(version: Any) -> None:
    state = _state(_stream())
    state["bushel"]["version"] = version
    with pytest.raises(StateError, match="this release of bushel reads version 1"):
        iter(_stream()).set_state(state)
