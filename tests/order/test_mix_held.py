"""How far mixtures were read: what is noted is the furthest that anybody holds, and never less."""

from typing import Any

import pytest

from bushel.order.mix_held import with_held, with_seen


def mixture(index: int, **noted: Any) -> dict[str, Any]:
    """The state of a mixture of which so many elements were taken."""
    return {"parents": [], "index": index, "weights": {"fixed": [1, 1]}, **noted}


# The mixture before a group, and after it; what is noted of the first by the group that is held.
HELD: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "as far as the group has read": (mixture(4), mixture(9), {"front": 9}),
    "a group that has read nothing": (mixture(4), mixture(4), {"front": 4}),
    "an earlier group has read further": (mixture(4, front=9), mixture(6), {"front": 9}),
    "this group has read further": (mixture(4, front=6), mixture(9), {"front": 9}),
    "an earlier group has seen further": (mixture(4, shown=8), mixture(6), {"front": 8}),
    "a group after it has seen further": (mixture(4), mixture(6, shown=8), {"front": 8}),
    "a step after it holds more": (mixture(4), mixture(6, front=12), {"front": 12}),
    "beyond the end, as before": (mixture(4, front=None), mixture(6), {"front": None}),
    "beyond the end, as after it": (mixture(4), mixture(6, front=None), {"front": None}),
    "the end is where it was": (mixture(4), mixture(6, ends=6), {"front": 6, "ends": 6}),
    "the end was another one": (mixture(4, front=8), mixture(6, ends=6), {"front": 8}),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_group_holds(name: str) -> None:
    before, behind, noted = HELD[name]
    wanted = {**before, **noted}
    assert with_held(before, lambda: behind) == wanted
    # The same below other steps, whatever these are.
    assert with_held({"parent": before, "n": 3}, lambda: {"parent": behind, "n": 5}) == {
        "parent": wanted,
        "n": 3,
    }
    assert with_held({"parts": [before]}, lambda: {"parts": [behind]}) == {"parts": [wanted]}


def test_a_group_that_the_end_has_ended() -> None:
    wanted = mixture(4, front=7, ends=7)
    assert with_held(mixture(4), lambda: mixture(7), is_last=True) == wanted


@pytest.mark.parametrize("passes", ["epoch", "part", "iterators_in_use_indices"])
def test_a_group_that_goes_on_in_the_next_epoch_holds_all_of_this_one(passes: str) -> None:
    before = {"parent": mixture(4), passes: 1}
    held = with_held(before, lambda: {"parent": mixture(2), passes: 2})
    assert held == {"parent": mixture(4, front=None), passes: 1}


SEEN: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "one more": (mixture(4), mixture(5), {"shown": 5}),
    "none": (mixture(4), mixture(4), {}),
    "no more than is held": (mixture(4, front=9), mixture(5), {}),
    "no more than was seen": (mixture(4, shown=6), mixture(6), {}),
    "more than is held": (mixture(4, front=5), mixture(9), {"shown": 9}),
    "with its end": (mixture(4), mixture(5, ends=5), {"shown": 5, "ends": 5}),
    "the end of what is held": (mixture(4, front=5), mixture(5, ends=5), {"ends": 5}),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_a_group_has_seen(name: str) -> None:
    before, behind, noted = SEEN[name]
    assert with_seen(before, lambda: behind) == {**before, **noted}
