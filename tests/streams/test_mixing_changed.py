"""Weights that are others when a state is restored, while a step holds elements of the mixture.

What such a step holds is made again of what the old weights chose, and the new ones hold after
it. So the whole run is that of the step over what a mixture gives whose weights change there.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions, WeightSchedule
from bushel.checkpoint import mix_counts
from bushel.errors import StateError
from bushel.experimental import (
    RebatchIterDataset,
    RepeatIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
)
from tests.streams.compare import states_of, through_json
from tests.thorough import THOROUGH, slow, spread, usually
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]

INLINE = ReadOptions(0, 0)
Step = Callable[[IterDataset[Any]], IterDataset[Any]]


def record(number: int) -> dict[str, Any]:
    return {"x": np.full(1 + number % 5, number), "id": number}


def part(number: int, length: int) -> IterDataset[Any]:
    """Elements that count from 1000, 2000, ... on: part 0 from 1000."""
    first = 1000 * (number + 1)
    return MapDataset.range(first, first + length).map(record).to_iter_dataset(INLINE)


def mixture(weights: Any, on_end: str = "drop") -> IterDataset[Any]:
    return IterDataset.mix([part(0, 30), part(1, 22)], weights, on_end=on_end)


def ids(ds: IterDataset[Any]) -> IterDataset[Any]:
    return ds.map(lambda element: {"id": element["id"]})


def listed(ds: IterDataset[Any], feature: str) -> IterDataset[Any]:
    # Without padding: no element is 0.
    return ds.map(lambda element: [x for x in np.atleast_1d(element[feature]).tolist() if x])


STEPS: dict[str, Step] = {
    "none": lambda ds: listed(ds, "id"),
    "pack": lambda ds: listed(ds.pack({"x": 8}, bins=3), "x"),
    "best fit": lambda ds: listed(ds.pack({"x": 8}, bins=3, strategy="best_fit"), "x"),
    "split": lambda ds: listed(ds.pack({"x": 7}, strategy="concat_then_split"), "x"),
    "split small": lambda ds: listed(ds.pack({"x": 2}, strategy="concat_then_split"), "x"),
    "shuffle": lambda ds: listed(ds.shuffle(9, seed=1), "id"),
    "window shuffle": lambda ds: listed(WindowShuffleIterDataset(ds, window_size=7, seed=1), "id"),
    "buckets": lambda ds: listed(ds.bucket_by_length([2, 5], 3, length="x", window=11), "id"),
    "tokens": lambda ds: listed(ds.batch_by_tokens(20, length="x"), "id"),
    "windows": lambda ds: listed(ids(ds).windows(4, stride=2), "id"),
    "batch": lambda ds: listed(ids(ds).batch(4), "id"),
    "unbatch": lambda ds: listed(ids(ds).batch(4).unbatch(), "id"),
    "rebatch": lambda ds: listed(RebatchIterDataset(ids(ds).batch(5), 3), "id"),
    "rebatch small": lambda ds: listed(RebatchIterDataset(ids(ds).batch(5), 2), "id"),
    "filter, pack": lambda ds: listed(ds.filter(lambda e: e["id"] % 3).pack({"x": 8}, bins=3), "x"),
    "unbatch, shuffle": lambda ds: listed(ids(ds).batch(3).unbatch().shuffle(9, seed=1), "id"),
    "pack, shuffle": lambda ds: listed(ds.pack({"x": 8}, bins=2).shuffle(4, seed=1), "x"),
    "pack, windows of windows": lambda ds: listed(
        WindowShuffleIterDataset(
            WindowShuffleIterDataset(ds.pack({"x": 8}, bins=3), window_size=5, seed=1),
            window_size=3,
            seed=2,
        ),
        "x",
    ),
    "shuffle, split": lambda ds: listed(
        ds.shuffle(4, seed=2).pack({"x": 7}, strategy="concat_then_split"), "x"
    ),
    "prefetch": lambda ds: listed(
        ThreadPrefetchIterDataset(ids(ds).batch(4).unbatch(), prefetch_buffer_size=3), "id"
    ),
}


def mixtures_in(state: Any) -> Iterator[dict[str, Any]]:
    """What a state says of its mixtures."""
    if isinstance(state, dict):
        if "weights" in state:
            yield state
        for value in state.values():
            yield from mixtures_in(value)
    if isinstance(state, list):
        for value in state:
            yield from mixtures_in(value)


def front_of(state: Any) -> tuple[int, bool]:
    """Up to where the old weights hold, and whether nothing comes after it."""
    (mixed,) = mixtures_in(state)
    return mixed.get("front", mixed["index"]), mixed.get("ends") == mixed.get("front", -1)


def ends_anywhere(state: Any) -> bool:
    """Whether the group before ended because of what came next, which may be another element."""
    return any("shown" in mixed for mixed in mixtures_in(state))


def changed(legs: list[tuple[Any, int | None]], on_end: str) -> list[Any]:
    """The elements of mixtures whose weights change at once, after so many elements of all."""
    made: list[Any] = []
    state = None
    for weights, stop in legs:
        iterator = iter(mixture(weights, on_end))
        if state is not None:
            iterator.set_state(state)
        made += islice(iterator, None if stop is None else stop - len(made))
        state = through_json(iterator.get_state())
    return made


def counted(rows: list[Any]) -> Counter[int]:
    return Counter(item for row in rows for item in row)


def over(step: Step, elements: list[Any]) -> list[Any]:
    return list(step(MapDataset.source(elements).to_iter_dataset(INLINE)))


CHANGES: dict[str, tuple[Any, Any]] = {
    "fixed": ([1, 1], [5, 1]),
    "from a schedule": (WeightSchedule.linear([(0, [1, 0]), (30, [1, 4])]), [5, 1]),
    "to a function": ([1, 2], lambda step: [1 + step % 3, 1]),
}


@pytest.mark.parametrize("on_end", usually(["drop", "stop"], "drop"))
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_nothing_is_lost_or_comes_twice(step: Step, on_end: str) -> None:
    before, later = [1, 1], [5, 1]
    ds, other = step(mixture(before, on_end)), step(mixture(later, on_end))
    whole, states = list(ds), states_of(ds)
    expected: dict[Any, list[Any]] = {}
    # After the last one there may be more now.
    places = range(len(states) - 1) if THOROUGH else range(on_end == "drop", len(states) - 1, 3)
    for done, state in ((place, states[place]) for place in places):
        front, is_last = key = front_of(state)
        if key not in expected:
            legs: list[tuple[Any, int | None]] = [(before, front), (later, None)]
            expected[key] = over(step, changed(legs[: 1 if is_last else 2], on_end))
        iterator = iter(other)
        iterator.set_state(state)
        made = whole[:done] + list(iterator)
        if not ends_anywhere(state):
            assert made == expected[key]
        if on_end == "drop" and step is not STEPS["windows"]:
            assert counted(made) == counted(whole)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("name", ["pack", "split", "shuffle", "unbatch"])
def test_weights_of_all_kinds(name: str, change: Any) -> None:
    before, later = change
    step = STEPS[name]
    whole, states = list(step(mixture(before))), states_of(step(mixture(before)))
    for done in range(1, len(states), 3 if THOROUGH else 5):
        legs = [(before, front_of(states[done])[0]), (later, None)]
        made = whole[:done] + list(_again(step(mixture(later)), states[done]))
        if not ends_anywhere(states[done]):
            assert made == over(step, changed(legs, "drop"))
        assert counted(made) == counted(whole)


@pytest.mark.parametrize("name", ["pack", "split", "shuffle", "window shuffle", "unbatch"])
@pytest.mark.parametrize(
    "last",
    [
        pytest.param([1, 1], id="back to the first", marks=slow),
        pytest.param([1, 9], id="to others"),
    ],
)
def test_weights_change_twice(name: str, last: Any) -> None:
    step, weights = STEPS[name], ([1, 1], [5, 1], last)
    states = states_of(step(mixture(weights[0])))
    whole = list(step(mixture(weights[0])))
    for first in range(1, len(states) // 2, 3):
        for second in (1, 2, 5) if THOROUGH else (1 + first % 5,):
            iterator = iter(step(mixture(weights[1])))
            iterator.set_state(states[first])
            made = whole[:first] + list(islice(iterator, second))
            state = through_json(iterator.get_state())
            fronts = front_of(states[first])[0], front_of(state)[0]
            # The same weights once more change nothing: neither what comes, nor the state.
            same = iter(step(mixture(weights[1])))
            same.set_state(state)
            assert same.get_state() == state
            assert list(same) == list(iterator)
            iterator = iter(step(mixture(weights[2])))
            iterator.set_state(state)
            legs = [*zip(weights[:2], fronts, strict=True), (weights[2], None)]
            made += list(iterator)
            if not ends_anywhere(states[first]) and not ends_anywhere(state):
                assert made == over(step, changed(legs, "drop"))
            assert counted(made) == counted(whole)


def test_new_weights_hold_behind_what_is_held() -> None:
    parts = [part(0, 900), part(1, 900)]
    step = STEPS["shuffle"]
    iterator = iter(step(IterDataset.mix(parts, [1, 1])))
    list(islice(iterator, 50))
    state = through_json(iterator.get_state())
    front, _ = front_of(state)
    resumed = iter(step(IterDataset.mix(parts, [9, 1])))
    resumed.set_state(state)
    list(islice(resumed, 300))
    counts = [count.elements for count in mix_counts(resumed).values()]
    since = sum(counts) - front
    assert since > 200
    assert abs(counts[0] - front / 2 - since * 0.9) <= 1
    # By then nothing is left of the old ones in its states.
    assert [mixed["weights"] for mixed in mixtures_in(resumed.get_state())] == [
        {"fixed": [900, 100]}
    ]


def _outcomes(iterator: Any, most: int = 1000) -> list[Any]:
    made: list[Any] = []
    while len(made) < most:
        try:
            made.append(next(iterator))
        except StopIteration:
            break
        except ValueError as error:
            made.append(str(error).partition("\n")[0])
    return made


def _fails(element: Any) -> Any:
    if element["id"] in (1003, 2004, 1017):
        raise ValueError(f"element {element['id']}")
    return element


@pytest.mark.parametrize("name", ["pack", "split", "shuffle", "window shuffle", "unbatch"])
def test_elements_that_failed_are_told_once(name: str) -> None:
    def step(ds: IterDataset[Any]) -> IterDataset[Any]:
        return STEPS[name](ds.map(_fails))

    whole = _outcomes(iter(step(mixture([1, 1]))))
    assert len([outcome for outcome in whole if isinstance(outcome, str)]) == 3
    for done in range(0, len(whole), 1 if THOROUGH else 3):
        iterator = iter(step(mixture([1, 1])))
        assert _outcomes(iterator, done) == whole[:done]
        state = through_json(iterator.get_state())
        legs: list[tuple[Any, int | None]] = [([1, 1], front_of(state)[0]), ([5, 1], None)]
        source = MapDataset.source(changed(legs, "drop")).to_iter_dataset(INLINE)
        resumed = iter(step(mixture([5, 1])))
        resumed.set_state(state)
        made = whole[:done] + _outcomes(resumed)
        if not ends_anywhere(state):
            assert made == _outcomes(iter(step(source)))
        if name in ("pack", "split", "shuffle"):  # Of others a whole group is lost, and which one.
            assert counted(made) == counted(whole)


@pytest.mark.parametrize("name", ["pack", "split", "shuffle", "unbatch", "pack, shuffle"])
def test_mixtures_of_mixtures(name: str) -> None:
    def build(outer: Any, inner: Any) -> IterDataset[Any]:
        parts = {"a": mixture(inner), "b": part(2, 20).shuffle(5, seed=3)}
        return STEPS[name](IterDataset.mix(parts, outer, on_end="drop"))

    whole, states = list(build([1, 1], [1, 1])), states_of(build([1, 1], [1, 1]))
    # (By threes, as there are three kinds of weights.)
    for done, state in spread(list(enumerate(states)), 20):
        weights = (([1, 4], [3, 1]), ([1, 1], [1, 5]), ([4, 1], [1, 1]))[done % 3]
        made = whole[:done] + list(_again(build(*weights), state))
        assert counted(made) == counted(whole)


@pytest.mark.parametrize("name", ["none", "split", "unbatch"])
def test_lanes(name: str) -> None:
    def build(weights: Any) -> IterDataset[Any]:
        parts = [
            MapDataset.range(1000 * n, 1000 * n + 60).map(record).lanes(2).filter(bool)
            for n in (1, 2)
        ]
        return STEPS[name](IterDataset.mix(parts, weights, on_end="restart"))

    whole = list(islice(build([1, 1]), 60))
    iterator = iter(build([1, 1]))
    tried = set(spread(range(40), 14))
    for done in range(40):
        if done not in tried:
            next(iterator)
            continue
        resumed = iter(build([5, 1]))
        resumed.set_state(through_json(iterator.get_state()))
        made = whole[:done] + list(islice(resumed, 20))
        for lane in range(2):
            for number in (1, 2):
                # Each has every second element of a part, of which some are longer.
                tokens = [x for row in made for x in row if (x // 1000, x % 2) == (number, lane)]
                every = [
                    [x] * (record(x)["x"].size if name == "split" else 1)
                    for x in range(1000 * number + lane, 1000 * number + 60, 2)
                ]
                flat = [x for element in every for x in element]
                assert tokens == (flat * 3)[: len(tokens)]
        next(iterator)


def test_states_of_workers() -> None:
    def build(weights: Any) -> IterDataset[Any]:
        fours: IterDataset[Any] = ids(mixture(weights)).batch(4).map(dict).unbatch()
        return fours.map(lambda element: int(element["id"]))

    whole, states = list(build([1, 1])), states_of(build([1, 1]))
    options = MultiprocessingOptions(num_workers=2)
    with iter(build([1, 1]).mp_prefetch(options)) as iterator:
        for done in range(10):
            assert through_json(iterator.get_state()) == states[done]
            assert next(iterator) == whole[done]
    with iter(build([5, 1]).mp_prefetch(options)) as resumed:
        for done in (6, 8, 21):
            here = iter(build([5, 1]))
            for iterator in (resumed, here):
                iterator.set_state(states[done])
            assert [next(resumed) for _ in range(15)] == [next(here) for _ in range(15)]
            assert through_json(resumed.get_state()) == through_json(here.get_state())
            assert sorted(whole[:done] + list(_again(build([5, 1]), states[done]))) == sorted(whole)


def _again(ds: IterDataset[Any], state: Any) -> Any:
    iterator = iter(ds)
    iterator.set_state(state)
    return iterator


# Parts by name, and what cannot be followed.


def _named(parts: dict[str, int], weights: Any) -> IterDataset[Any]:
    numbers = {"a": 0, "b": 1, "c": 2}
    streams = {name: part(numbers[name], length) for name, length in parts.items()}
    mixed: IterDataset[Any] = IterDataset.mix(streams, weights, on_end="drop")
    return STEPS["pack"](mixed)


@pytest.mark.parametrize(
    "weights", [[2, 1], WeightSchedule.steps([(0, {"a": 1, "c": 3}), (20, {"a": 3, "c": 1})])]
)
@pytest.mark.parametrize(
    "later", [[1, 2, 3], WeightSchedule.linear([(0, [1, 1, 1]), (30, [3, 2, 1])])]
)
def test_new_parts_come_behind_what_is_held(weights: Any, later: Any) -> None:
    old, new = {"a": 30, "c": 22}, {"a": 30, "b": 15, "c": 22}
    whole, states = list(_named(old, weights)), states_of(_named(old, weights))
    expected = Counter(x for name in new for x in _tokens(name, new[name]))
    for done in range(len(whole) - 6):  # After the last group nothing comes.
        rest = list(_again(_named(new, later), states[done]))
        assert counted(whole[:done] + rest) == expected
        if states[done]["next_row"]:
            assert rest[0] == whole[done]


def _tokens(name: str, length: int) -> list[int]:
    first = 1000 * (1 + "abc".index(name))
    return [x for number in range(first, first + length) for x in record(number)["x"].tolist()]


def test_a_part_that_is_gone_and_needed_is_told() -> None:
    states = states_of(_named({"a": 30, "b": 22}, [1, 1]))
    is_open = [state for state in states if state["next_row"]]
    with pytest.raises(StateError, match="has no part 'b' any more, and it is needed once more"):
        _again(_named({"a": 30}, [1]), is_open[0])
    closed = [state for state in states if not state["next_row"]]
    assert next(_again(_named({"a": 30}, [1]), closed[2]))


def test_functions_cannot_be_followed_when_they_are_others() -> None:
    def build(weights: Any) -> IterDataset[Any]:
        return STEPS["pack"](mixture(weights))

    def one(step: int) -> list[int]:
        return [1, 1 + step % 2]

    def two(step: int) -> list[int]:
        return [1, 3]

    whole, states = list(build(one)), states_of(build(one))
    for done, state in enumerate(states):
        assert whole[:done] + list(_again(build(one), state)) == whole
        for other in two, [1, 5]:
            if not state["next_row"]:
                assert next(_again(build(other), state), None) or done == len(whole)
                continue
            with pytest.raises(
                StateError, match="they were those of `one`, which a state cannot keep"
            ):
                _again(build(other), state)
    # The code of a function depends on the release of Python.
    state = states[1]
    (mixed,) = mixtures_in(state)
    mixed["weights"]["code"] = ["3.5", "0123"]
    assert whole[:1] + list(_again(build(one), state)) == whole


def test_what_goes_on_in_the_next_pass_is_refused() -> None:
    def build(weights: Any) -> IterDataset[Any]:
        return STEPS["window shuffle"](RepeatIterDataset(mixture(weights), 2))

    whole, states = list(build([1, 1])), states_of(build([1, 1]))
    across = [done for done in range(len(states)) if _goes_on(states[done])]
    assert across == list(range(50, 56))
    # All of those that are refused, and their neighbours.
    for done in {*across, across[0] - 1, across[-1] + 1, *spread(range(len(states)), 20)}:
        assert whole[:done] + list(_again(build([1, 1]), states[done])) == whole
        if done not in across:
            made = whole[:done] + list(_again(build([5, 1]), states[done]))
            assert sorted(made) == sorted(whole)
            continue
        with pytest.raises(StateError, match="go on in the next pass over it"):
            _again(build([5, 1]), states[done])


def _goes_on(state: Any) -> bool:
    (mixed,) = mixtures_in(state)
    return "front" in mixed and mixed["front"] is None


def test_mixtures_side_by_side() -> None:
    def build(first: Any, second: Any) -> IterDataset[Any]:
        pairs = ZipIterDataset([ids(mixture(first)), ids(mixture(second))])
        both = pairs.map(lambda pair: {"id": [pair[0]["id"], pair[1]["id"]]})
        return listed(WindowShuffleIterDataset(both, window_size=7, seed=1), "id")

    whole, states = list(build([1, 1], [1, 2])), states_of(build([1, 1], [1, 2]))
    for done, state in spread(list(enumerate(states)), 20):
        made = whole[:done] + list(_again(build([1, 1], [7, 1]), state))
        for side in range(2):
            assert sorted(row[side] for row in made) == sorted(row[side] for row in whole)


def test_states_without_weights_are_taken_as_they_are() -> None:
    iterator = iter(mixture([1, 1]))
    list(islice(iterator, 7))
    state = through_json(iterator.get_state())
    assert state.pop("weights") == {"fixed": [100, 100]}
    rest = [element["id"] for element in _again(mixture([1, 1]), state)]
    assert rest == [element["id"] for element in iterator]


def _counts_of(*names: str) -> IterDataset[Any]:
    parts = {name: MapDataset.range(30).to_iter_dataset(INLINE) for name in names}
    return IterDataset.mix(parts)


def test_how_much_came_is_known_when_parts_have_come_and_gone() -> None:
    """An 'index' that is not what the parts, with those that are gone, have given is damage."""
    state: Any = None
    for names, not_taken in (("abc", 0), ("bc", 4), ("bcd", 4), ("d", 32), ("a", 48)):
        iterator = iter(_counts_of(*names))
        if state is not None:
            iterator.set_state(through_json(state))
        list(islice(iterator, 12))
        state = iterator.get_state()
        assert state["not_taken"] == not_taken
        again = iter(_counts_of(*names))
        again.set_state(through_json(state))
        assert again.get_state() == state
        for damaged in ({"index": 10**6}, {"not_taken": not_taken + 1}, {"not_taken": "1"}):
            with pytest.raises(StateError):
                again.set_state({**state, **damaged})
        assert list(again) == list(iterator)
    with pytest.raises(StateError, match="'taken' is"):
        again.set_state(
            {
                **state,
                "taken": {**state["taken"], "gone": "x"},
                "parents": {**state["parents"], "gone": {}},
            }
        )
    # Older states do not tell.
    del state["not_taken"]
    again.set_state({**state, "index": 10**6})
