"""Mixtures whose weights change, and what happens when a part ends: against a plain model."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import islice, pairwise
from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions, WeightSchedule
from bushel.checkpoint import mix_counts
from bushel.dataset import stream_node
from bushel.deliver.open import open_stream
from bushel.errors import PlanError, StateError
from bushel.experimental import LimitIterDataset
from tests.contract.events import pull_events, wants_from
from tests.lanes.hosts import on_hosts
from tests.property.profile import tried
from tests.streams.compare import states_of, through_json
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]

INLINE = ReadOptions(0, 0)
# A mixture whose parts begin again has no end.
MOST = 60
fewer = settings(tried, max_examples=min(40, tried.max_examples))

Points = list[tuple[int, list[float]]]
Weigh = Callable[[int], Sequence[float]]


def stream(first: int, count: int) -> IterDataset[int]:
    return MapDataset.range(first, first + count).to_iter_dataset(INLINE)


def numbers(lengths: Sequence[int]) -> list[list[int]]:
    """The elements of parts: part n counts from 1000 * n."""
    return [list(range(1000 * n, 1000 * n + length)) for n, length in enumerate(lengths)]


def streams(lengths: Sequence[int]) -> list[IterDataset[int]]:
    return [stream(1000 * n, length) for n, length in enumerate(lengths)]


# The model.


def model(parts: list[list[int]], weigh: Weigh, on_end: str, most: int) -> list[int]:
    """What a mixture means: exact fractions, one element after the other."""
    ahead = [Fraction(0)] * len(parts)
    used = [0] * len(parts)
    stays = [True] * len(parts)
    made: list[int] = []
    while len(made) < most:
        weights = [w * s for w, s in zip(proportions(weigh(len(made))), stays, strict=True)]
        if not sum(weights):
            break
        part, behind = next_turn(weights, ahead)
        if used[part] == len(parts[part]) and on_end == "restart":
            used[part] = 0
        if used[part] == len(parts[part]):
            if on_end == "stop":
                break
            stays[part] = False
            continue
        made.append(parts[part][used[part]])
        used[part] += 1
        ahead = behind
    return made


def next_turn(weights: Sequence[int], ahead: Sequence[Fraction]) -> tuple[int, list[Fraction]]:
    behind, rest = list(ahead), sum(weights)
    for part, weight in enumerate(weights):
        if not rest:
            break
        share = Fraction(weight, rest)
        gets = share > ahead[part]
        behind[part] += int(gets) - share
        if gets:
            return part, behind
        rest -= weight
    raise AssertionError("the last part with a weight gets what is left")


def proportions(weights: Sequence[float]) -> list[int]:
    smallest = min(weight for weight in weights if weight)
    return [int(weight * (100 / smallest)) for weight in weights]


def weights_at(points: Points, is_linear: bool, step: int) -> list[float]:
    if step <= points[0][0]:
        return points[0][1]
    for (start, low), (stop, high) in pairwise(points):
        if start <= step < stop:
            way = (step - start) / (stop - start)
            return [a + (b - a) * way if is_linear else a for a, b in zip(low, high, strict=True)]
    return points[-1][1]


# Random mixtures.

_weight = st.one_of(st.integers(0, 5), st.floats(0.01, 9))


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[int], Any, Weigh, str]:
    """The lengths of parts, weights as `mix` takes them and as the model does, and a policy."""
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    on_end = draw(st.sampled_from(["stop", "restart", "drop"]))
    if on_end == "restart":
        lengths = [length + 1 for length in lengths]
    row = st.lists(_weight, min_size=len(lengths), max_size=len(lengths)).filter(any)
    kind = draw(st.sampled_from(["linear", "steps", "function"]))
    steps = draw(st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True))
    points: Points = [(step, [float(w) for w in draw(row)]) for step in sorted(steps)]
    if kind == "function":
        rows = [weights for _, weights in points]
        return lengths, (w := lambda step: rows[step % len(rows)]), w, on_end
    made = WeightSchedule.linear(points) if kind == "linear" else WeightSchedule.steps(points)
    return lengths, made, lambda step: weights_at(points, kind == "linear", step), on_end


@tried
@given(mixtures())
def test_means_what_the_model_does(mixture: Any) -> None:
    lengths, weights, weigh, on_end = mixture
    ds = IterDataset.mix(streams(lengths), weights, on_end=on_end)
    assert list(islice(ds, MOST)) == model(numbers(lengths), weigh, on_end, MOST)


@fewer
@given(mixtures(), st.integers(0, 2**32 - 1))
def test_cuts_do_not_show(mixture: Any, seed: int) -> None:
    lengths, weights, _, on_end = mixture
    ds = LimitIterDataset(IterDataset.mix(streams(lengths), weights, on_end=on_end), MOST)
    assert pull_events(ds, wants_from(seed, 30)) == pull_events(ds, [1] * 2000)


@fewer
@given(mixtures(), st.integers(0, MOST), st.integers(0, 20))
def test_goes_on_from_anywhere(mixture: Any, first: int, second: int) -> None:
    lengths, weights, weigh, on_end = mixture
    ds = IterDataset.mix(streams(lengths), weights, on_end=on_end)
    expected = model(numbers(lengths), weigh, on_end, MOST + 20)
    iterator, done = iter(ds), 0
    for leg in (first, second):
        done += len(list(islice(iterator, leg)))
        state = through_json(iterator.get_state())
        iterator = iter(ds)
        iterator.set_state(state)
        assert iterator.get_state() == state
    assert list(islice(iterator, len(expected) - done)) == expected[done:]


@fewer
@given(st.lists(st.one_of(st.integers(1, 9), st.floats(0.001, 100)), min_size=1, max_size=5))
def test_weights_that_do_not_change_are_those_of_mix(weights: list[float]) -> None:
    parts = streams([300] * len(weights))
    expected = list(islice(IterDataset.mix(parts, weights), 200))
    for schedule in (
        lambda step: weights,
        WeightSchedule.steps([(3, weights), (50, weights)]),
        WeightSchedule.linear([(0, weights), (7, weights), (90, weights)]),
    ):
        assert list(islice(IterDataset.mix(parts, schedule), 200)) == expected


@fewer
@given(st.lists(st.floats(0.01, 9), min_size=2, max_size=4), st.data())
def test_elements_are_spread_evenly(weights: list[float], data: st.DataObject) -> None:
    size = len(weights)
    other = data.draw(st.lists(st.floats(0.01, 9), min_size=size, max_size=size))
    ramp = WeightSchedule.linear([(0, weights), (400, other)])
    made = list(islice(IterDataset.mix(streams([500] * size), ramp), 400))
    due, got = np.zeros(size), np.zeros(size)
    for step, element in enumerate(made):
        parts = np.array(proportions(weights_at([(0, weights), (400, other)], True, step)))
        due += parts / parts.sum()
        got[element // 1000] += 1
        assert abs(got - due).max() < size


def test_the_same_with_workers() -> None:
    parts = {"a": stream(0, 7).map(abs), "b": stream(1000, 40).filter(lambda x: x % 3)}
    ramp = WeightSchedule.linear([(0, {"a": 1, "b": 0}), (20, {"a": 1, "b": 4})])
    ds = LimitIterDataset(IterDataset.mix(parts, ramp, on_end="restart"), 80)
    expected, states = list(ds), states_of(ds)
    with iter(ds.mp_prefetch(MultiprocessingOptions(num_workers=2))) as iterator:
        assert list(iterator) == expected
        for done in (3, 50):
            iterator.set_state(states[done])
            assert next(iterator) == expected[done]
            assert iterator.get_state() == states[done + 1]
            assert mix_counts(iterator) == mix_counts(states[done + 1])


# Weights that are others when a state is restored.


def _is_complete(elements: Sequence[int]) -> bool:
    """Whether elements of each part came in order, and none was left out."""
    for part in range(3):
        mine = [element for element in elements if element // 1000 == part]
        if mine != list(range(1000 * part, 1000 * part + len(mine))):
            return False
    return True


OTHER_WEIGHTS: dict[str, Any] = {
    "fixed": [1, 2, 7],
    "a schedule": WeightSchedule.steps([(0, [1, 1, 1]), (37, [1, 2, 7])]),
    "a function": lambda step: [1, 2, 7],
}


@pytest.mark.parametrize("later", OTHER_WEIGHTS.values(), ids=OTHER_WEIGHTS.keys())
@pytest.mark.parametrize("before", [[8, 1, 1], WeightSchedule.linear([(0, [1, 0, 1])])])
def test_new_weights_hold_from_where_it_was(before: Any, later: Any) -> None:
    parts = streams([900, 900, 900])
    iterator = iter(IterDataset.mix(parts, before).map(abs))
    taken = list(islice(iterator, 37))
    resumed = iter(IterDataset.mix(parts, later).map(abs))
    resumed.set_state(through_json(iterator.get_state()))
    rest = list(islice(resumed, 200))
    assert _is_complete(taken + rest)
    # At once, and without making up for what was before.
    for stop in (10, 50, 200):
        counts = np.bincount([element // 1000 for element in rest[:stop]], minlength=3)
        assert abs(counts - np.array([0.1, 0.2, 0.7]) * stop).max() < 3
    whole = np.bincount([element // 1000 for element in taken + rest], minlength=3)
    assert [count.elements for count in mix_counts(resumed).values()] == whole.tolist()


def test_parts_by_name_come_and_go() -> None:
    a, b, c = streams([900, 900, 900])
    iterator = iter(IterDataset.mix({"a": a, "b": b}, lambda step: {"a": 1, "b": 1}))
    taken = list(islice(iterator, 10))
    assert len(set(taken)) == 10
    resumed = iter(IterDataset.mix({"b": b, "c": c}, lambda step: {"b": 1, "c": 3}))
    resumed.set_state(iterator.get_state())
    rest = list(islice(resumed, 40))
    assert sorted(rest) == [*range(1005, 1015), *range(2000, 2030)]


def test_states_that_do_not_count_are_restored() -> None:
    """Those of Grain, and of releases of bushel that compared the weights."""
    theirs = iter(grain.IterDataset.mix([grain.MapDataset.range(90).to_iter_dataset()] * 2, [1, 2]))
    for _ in range(7):
        next(theirs)
    state = through_json(theirs.get_state())
    parts = [stream(0, 90), stream(0, 90)]
    ours = iter(IterDataset.mix(parts, [1, 2]))
    ours.set_state(state)
    assert [count.elements for count in mix_counts(ours).values()] == [3, 4]
    pipeline = ours.get_state()["bushel"]["pipeline"]
    assert pipeline[-1] == "mix(2 parts)"
    pipeline = [*pipeline[:-1], "mix(2 parts, proportions=[100, 200])"]
    other = iter(IterDataset.mix(parts, [1, 5]))
    other.set_state({**state, "bushel": {"version": 1, "pipeline": pipeline}})
    assert [count.elements for count in mix_counts(other).values()][1] > 3
    assert next(other) == 4


def test_real_changes_are_told() -> None:
    state = iter(IterDataset.mix(streams([9, 9]), [1, 2])).get_state()
    with pytest.raises(ValueError, match=r"was `mix\(2 parts\)` and is `mix\(3 parts\)` now"):
        iter(IterDataset.mix(streams([9, 9, 9]))).set_state(state)
    with pytest.raises(ValueError, match=r"is `mix\(2 parts, on_end='drop'\)` now"):
        iter(IterDataset.mix(streams([9, 9]), on_end="drop")).set_state(state)


# Lanes.


def _lanes_mixed(**how: Any) -> IterDataset[Any]:
    parts = [
        MapDataset.source([part]).repeat().lanes(20, **how).filter(lambda x: True)
        for part in range(3)
    ]
    # Steps are elements of all lanes together: 200 are ten batches.
    weights = WeightSchedule.steps([(0, [1, 3, 6]), (200, [12, 6, 2])])
    return IterDataset.mix(parts, weights).batch(20)


def test_every_batch_of_lanes_is_mixed_as_it_should() -> None:
    whole = list(islice(_lanes_mixed(), 25))
    for step, batch in enumerate(whole):
        counts = np.bincount(batch, minlength=3)
        if step < 10:
            assert counts.tolist() == [2, 6, 12]
        else:
            assert abs(counts - np.array([12, 6, 2])).max() <= 2
    halves = on_hosts(_lanes_mixed, 2, lambda iterator: list(islice(iterator, 25)))
    joined = [np.concatenate(rows).tolist() for rows in zip(*halves, strict=True)]
    assert joined == [batch.tolist() for batch in whole]


@pytest.mark.parametrize("on_end", ["stop", "restart", "drop"])
def test_parts_end_in_each_lane_for_itself(on_end: str) -> None:
    def build(**how: Any) -> IterDataset[Any]:
        parts = [
            MapDataset.range(1000 * part, 1000 * part + length).lanes(4, **how).filter(bool)
            for part, length in enumerate((14, 40))
        ]
        weights = WeightSchedule.linear([(0, [1, 1]), (20, [3, 1])])
        return IterDataset.mix(parts, weights, on_end=on_end).batch(4)

    whole = list(islice(build(), 15))
    halves = on_hosts(build, 2, lambda iterator: list(islice(iterator, 15)))
    joined = [np.concatenate(rows).tolist() for rows in zip(*halves, strict=True)]
    assert joined == [batch.tolist() for batch in whole]
    for lane in range(4):
        parts = [[x for x in numbers([14, 40])[part] if x and x % 4 == lane] for part in (0, 1)]
        # Lanes begin at different places of the pattern, so only what comes is the same.
        rows = [int(batch[lane]) for batch in whole]
        for part, elements in enumerate(parts):
            mine = [row for row in rows if row // 1000 == part]
            repeated = elements * (1 + len(rows) if on_end == "restart" else 1)
            assert mine == repeated[: len(mine)]


def test_a_lane_without_elements_cannot_begin_again() -> None:
    parts = [MapDataset.range(1, 4).lanes(4), MapDataset.range(90).lanes(4)]
    ds = IterDataset.mix([part.filter(bool) for part in parts], on_end="restart")
    with pytest.raises(PlanError, match="part 0 has no elements in lane 3 of 4"):
        next(iter(ds.batch(8)))


DAMAGE: dict[str, Any] = {
    "parts too many": {"taken": [1, 2, 3]},
    "no numbers": {"taken": ["a", 2]},
    "less than nothing": {"ahead": [-1, 0]},
    "no list": {"ahead": 7},
    "names": {"left": {"a": 1, "b": 1}},
    "no parents": {"parents": None},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_states_are_refused(damage: Any) -> None:
    ds = IterDataset.mix(streams([9, 9]), lambda step: [1, 1], on_end="drop")
    with iter(ds) as iterator:
        first = next(iterator)
        state = iterator.get_state()
        with pytest.raises(StateError, match="|".join(damage)):
            iterator.set_state({**state, **damage})
        assert [first, *iterator] == list(ds)


# Ends.


def test_ends_where_no_part_that_is_left_has_a_weight() -> None:
    only_first = WeightSchedule.steps([(0, [1, 0])])
    assert list(IterDataset.mix(streams([3, 9]), only_first, on_end="drop")) == [0, 1, 2]


def test_a_function_is_asked_once_for_each_element() -> None:
    asked: list[int] = []

    def weights(step: int) -> list[float]:
        asked.append(step)
        return [1, 1 + step % 3]

    # Parts end on the way, so blocks are cut short.
    made = list(IterDataset.mix(streams([4, 5]), weights, on_end="drop"))
    assert len(made) == 9
    assert len(asked) == len(set(asked))


def test_prints_as_written() -> None:
    ramp = WeightSchedule.linear([(0, [1, 0]), (10, [1, 3])])
    shown = repr(IterDataset.mix(streams([3, 3]), ramp, on_end="drop"))
    assert shown.endswith(
        "-> mix(2 parts, weights=WeightSchedule.linear([(0, [1, 0]), (10, [1, 3])]), "
        "on_end='drop'))"
    )
    named = IterDataset.mix({"a": stream(0, 3), "b": stream(0, 3)}, {"a": 1, "b": 2})
    assert repr(named).endswith("-> mix(a, b, proportions=[100, 200]))")
    assert bushel.WeightSchedule.steps([(5, {"a": 1})]).at(3) == {"a": 1.0}


def test_states_of_what_came_long_ago() -> None:
    """A part that gives nothing for a while, and then does, was not there before."""
    ramp = WeightSchedule.linear([(0, [0, 1, 1]), (40, [0, 1, 1]), (41, [1, 1, 1])])
    parts = [stream(1000 * n, 100).filter(lambda x: x >= 0) for n in range(3)]
    mixture = open_stream(stream_node(IterDataset.mix(parts, ramp)))
    taken = []
    for _ in range(80):
        chunk = mixture.pull(1)
        assert chunk is not None
        taken.append((chunk, chunk.marks.at(1)))
    for chunk, state in taken:
        assert chunk.marks.at(1) == state
