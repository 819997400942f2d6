"""Mixtures that cannot be, and what is said of them."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, WeightSchedule
from bushel.errors import PlanError, StateError
from bushel.order.exact_shares import ONE_ELEMENT
from tests.property.profile import tried
from tests.streams.test_mixing import Weigh, mixtures, stream, streams
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]


def _bad(step: int, weights: Any) -> Weigh:
    return lambda number: weights if number == step else [1, 1]


BAD_WEIGHTS: dict[str, tuple[Any, str]] = {
    "negative": ([1, -1], r"step 5 must be finite and not negative, and are \[1, -1\]"),
    "nan": ([1, float("nan")], "step 5 must be finite"),
    "endless": ([float("inf"), 1], "step 5 must be finite"),
    "all zero": ([0, 0], "step 5 are all 0, so no part could give the element"),
    "too few": ([1], r"step 5 are \[1\], and there are 2 parts"),
    "by name": ({"a": 1}, "are by name, and the parts of this mixture have none"),
    "words": (["a", "b"], r"step 5 must be numbers, and are \['a', 'b'\]"),
    "nothing": (None, "step 5 must be a list, one for each part, and are None"),
    "more than a float holds": ([10**400, 1], "step 5 must be finite"),
}


@pytest.mark.parametrize(("weights", "text"), BAD_WEIGHTS.values(), ids=BAD_WEIGHTS.keys())
def test_bad_weights_are_told_where_they_are(weights: Any, text: str) -> None:
    ds = IterDataset.mix(streams([50, 50]), _bad(5, weights))
    with iter(ds) as iterator:
        before = [next(iterator) for _ in range(5)]
        with pytest.raises((ValueError, TypeError), match=text) as caught:
            next(iterator)
        assert "at position 5" in caught.value.__notes__[0]
        state = iterator.get_state()
        # It goes on after it, without a turn for anybody.
        after = list(islice(iterator, 5))
        iterator.set_state(state)
        assert list(islice(iterator, 5)) == after
    assert before + after == list(islice(IterDataset.mix(streams([50, 50])), 10))


def test_weights_by_name_of_other_parts() -> None:
    ds = IterDataset.mix({"a": stream(0, 9), "b": stream(9, 9)}, lambda step: {"a": 1, "c": 1})
    with pytest.raises(PlanError, match=r"are for \['a', 'c'\], and the parts are \['a', 'b'\]"):
        next(iter(ds))


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no points": (lambda: WeightSchedule.linear([]), "needs at least one point"),
    "no pairs": (lambda: WeightSchedule.steps([3]), "takes pairs of a step and its weights"),  # type: ignore[list-item]
    "half a step": (
        lambda: WeightSchedule.steps([(0.5, [1])]),  # type: ignore[list-item]
        "a step is the number of an element of the mixture, and got 0.5",
    ),
    "steps that go back": (
        lambda: WeightSchedule.steps([(5, [1]), (3, [1])]),
        "steps must go up, and 3 comes after 5",
    ),
    "points unlike each other": (
        lambda: WeightSchedule.linear([(0, [1, 1]), (3, [1])]),
        r"those at step 0 are \[1, 1\], those at step 3 are \[1\]",
    ),
    "no weight": (lambda: WeightSchedule.linear([(2, [0, 0])]), "weights at step 2 are all 0"),
    "a step that no mixture reaches": (
        lambda: WeightSchedule.linear([(2**63, [1, 1])]),
        "a step is the number of an element of the mixture, and got 9223372036854775808",
    ),
    "more than a float holds": (
        lambda: WeightSchedule.steps([(0, [10**400, 1])]),
        "the weights at step 0 must be finite",
    ),
    "weights worlds apart": (
        lambda: IterDataset.mix(streams([1, 1]), [1e-300, 1e300]),
        r"too far apart to be compared, or too small: \[1e-300, 1e\+300\]",
    ),
    "a schedule for others": (
        lambda: IterDataset.mix(streams([1, 1]), WeightSchedule.steps([(0, [1, 1, 1])])),
        "there are 2 parts",
    ),
    "a policy that is none": (
        lambda: IterDataset.mix(streams([1, 1]), on_end="repeat"),
        "on_end must be 'stop' .* and is 'repeat'",
    ),
    "a schedule of nothing": (
        lambda: IterDataset.mix([], WeightSchedule.steps([(0, [])])),
        "are all 0",
    ),
    "a function for nothing": (
        lambda: IterDataset.mix([], lambda step: []),
        "needs at least one dataset, and got none",
    ),
}


@pytest.mark.parametrize(("make", "text"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: WeightSchedule.linear({0: [1, 2]}), r"takes a list of points, .*not \{0: \[1, 2"),  # type: ignore[arg-type]
        (lambda: WeightSchedule.steps([(0, 3)]), "step 0 must be a list, one for each part"),  # type: ignore[list-item]
        (lambda: IterDataset.mix(streams([1, 1]), 5), "as a list, one for each .* and got 5"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_list(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


def test_weights_may_be_as_small_as_numbers_are() -> None:
    least = 5e-324
    expected = list(IterDataset.mix(streams([50, 50]), [1, 2]))
    assert list(IterDataset.mix(streams([50, 50]), lambda step: [least, 2 * least])) == expected
    small_then_large = WeightSchedule.steps([(0, [least, 2 * least]), (30, [1e300, 2e300])])
    assert list(IterDataset.mix(streams([50, 50]), small_then_large)) == expected


def test_random_access_takes_weights_that_stay() -> None:
    parts = [MapDataset.range(9), MapDataset.range(9)]
    with pytest.raises(TypeError, match=r"weights that do not change.*IterDataset\.mix"):
        MapDataset.mix(parts, WeightSchedule.steps([(0, [1, 1])]))  # type: ignore[arg-type]


def test_an_empty_part_cannot_begin_again() -> None:
    parts = {"some": stream(0, 9), "none": stream(0, 9).filter(lambda x: x > 9)}
    ds = IterDataset.mix(parts, {"some": 3, "none": 1}, on_end="restart")
    with iter(ds) as iterator:
        with pytest.raises(PlanError, match=r"part 'none' has no elements, so it cannot begin"):
            next(iterator)
        assert list(islice(iterator, 3)) == [0, 1, 2]
        with pytest.raises(PlanError, match="Leave it out, or write on_end='drop'"):
            next(iterator)
    assert list(IterDataset.mix(parts, on_end="drop")) == list(range(9))


DAMAGE: dict[str, dict[str, Any]] = {
    "no weights": {"weights": None},
    "of no kind": {"weights": {"random": 3}, "front": 9},
    "no pieces": {"weights": []},
    "pieces without an end": {"weights": [[None, {"fixed": [1, 1]}]] * 2},
    "too few": {"weights": {"fixed": [1]}, "front": 9},
    "less than nothing": {"weights": {"fixed": [-1, 1]}, "front": 9},
    "no numbers": {"weights": {"linear": [[0, ["a", "b"]]]}, "front": 9},
    "no schedule": {"weights": {"steps": 7}, "front": 9},
    "names": {"weights": {"fixed": [1, 1], "names": ["a", "b"]}, "front": 9},
    "front": {"front": "x"},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_weights_are_refused(damage: Any) -> None:
    iterator = iter(IterDataset.mix(streams([30, 22]), [1, 1], on_end="drop"))
    next(iterator)
    with pytest.raises(StateError, match=r"weights|front"):
        iterator.set_state({**iterator.get_state(), **damage})


@tried
@given(mixtures(), st.booleans(), st.integers(0, 60), st.data())
def test_damage_to_what_only_the_past_has_decided(
    mixture: Any, named: bool, taken: int, data: st.DataObject
) -> None:
    """Within its range, too: how far a part is ahead, and whether it is out, has a checksum."""
    lengths, weights, _, on_end = mixture
    parts = streams(lengths)
    by_name = {f"p{number}": part for number, part in enumerate(parts)}
    ds = IterDataset.mix(by_name if named else parts, weights, on_end=on_end)
    with iter(ds) as iterator:
        list(islice(iterator, taken))
        state = iterator.get_state()
        decided = [field for field in ("ahead", "left") if field in state]
        assert ("check" in state) is bool(decided)
        for field in decided:
            values = state[field]
            part = data.draw(st.sampled_from(list(values) if named else range(len(values))))
            most = ONE_ELEMENT if field == "ahead" else 1
            other = st.integers(0, most).filter(lambda value, now=values[part]: value != now)
            damaged = values.copy()
            damaged[part] = data.draw(other)
            with pytest.raises(StateError, match=f"'check' is not the checksum of .*'{field}'"):
                iterator.set_state({**state, field: damaged})
        assert iterator.get_state() == state
        iterator.set_state(state)
