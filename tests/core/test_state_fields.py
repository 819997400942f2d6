"""States are checked against what streams declare: as a whole, and before anything moves."""

from typing import Any

import pytest

from bushel.core.state import State
from bushel.core.state_fields import (
    Fields,
    Flag,
    Inner,
    InnerOf,
    Inners,
    Opaque,
    Whole,
    Wholes,
    check_state,
    given_by,
)
from bushel.errors import StateError, StateRangeError


class Numbers:
    """What a stream of so many positions declares."""

    def __init__(self, length: int) -> None:
        self.length = length

    def fields(self) -> Fields:
        return Fields(next_index=Whole(self.length))

    def most_before(self, state: State | None) -> int | None:
        return self.length if state is None else state["next_index"]


class Over:
    """What a step over streams declares."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def fields(self) -> Fields:
        return self._fields

    def most_before(self, state: State | None) -> int | None:
        return None


COUNTING = Over(
    Fields(parent=Inner(Numbers(20)), rows=Whole(within=given_by(Numbers(20))), end=Flag(True))
)
TWO = Over(
    Fields(
        part=Whole(1),
        parent=InnerOf("part", [Numbers(5), Numbers(9)]),
        parents=Inners([Numbers(5), COUNTING], of="it has {} inputs"),
        taken=Wholes(2, optional=True, most=1),
        mine=Opaque(),
    )
)
NAMED = Over(Fields(parents=Inners([Numbers(5), Numbers(9)], ["a", "b"])))


def _two(**changed: Any) -> State:
    counting = {"parent": {"next_index": 7}, "rows": 3}
    parents = [{"next_index": 5}, counting]
    return {"part": 1, "parent": {"next_index": 9}, "parents": parents, "mine": {}, **changed}


@pytest.mark.parametrize(
    ("stream", "state"),
    [
        (COUNTING, {"parent": {"next_index": 7}, "rows": 7}),
        (COUNTING, {"parent": {"next_index": 7}, "rows": 0, "end": True, "another": "thing"}),
        (TWO, _two()),
        (TWO, _two(taken=[0, 1], mine=None)),
        (NAMED, {"parents": {"b": {"next_index": 9}, "gone": 7}}),
    ],
)
def test_a_state_that_fits(stream: Any, state: State) -> None:
    check_state(stream, state)


REFUSED: list[tuple[Any, Any, str]] = [
    (COUNTING, [1], "this is a list"),
    (COUNTING, {"rows": 1}, "has no 'parent'"),
    (COUNTING, {"parent": {"next_index": 7}}, "has no 'rows'"),
    (COUNTING, {"parent": {}, "rows": 1}, r"has no 'next_index' \(at parent\)"),
    (COUNTING, {"parent": {"next_index": 7}, "rows": True}, "a whole number, and is True"),
    (COUNTING, {"parent": {"next_index": 7}, "rows": 1.0}, "a whole number, and is 1.0"),
    (COUNTING, {"parent": {"next_index": 7}, "rows": -1}, "must not be negative"),
    (COUNTING, {"parent": {"next_index": 7}, "rows": 8}, "'rows' is 8, and there are only 7"),
    (COUNTING, {"parent": {"next_index": 21}, "rows": 8}, r"\(at parent.next_index\).* exceed 20"),
    (COUNTING, {"parent": {"next_index": 10**9999}, "rows": 1}, "a number of 33216 bits"),
    (COUNTING, {"parent": {"next_index": 7}, "rows": 1, "end": 2}, "must be true or false"),
    (COUNTING, {"parent": {"next_index": 7}, "rows": 1, "end": None}, "must be true or false"),
    (TWO, _two(part=2), "'part' in a state must not exceed 1, and is 2"),
    (TWO, _two(part=0), "'next_index' in a state .at parent.next_index. must not exceed 5"),
    (TWO, _two(parents=[{"next_index": 5}]), "it has 2 inputs, and 'parents' of the state"),
    (TWO, _two(parents=[{"next_index": 5}, {"next_index": 5}]), r"'parent' \(at parents\[1\]\)"),
    (TWO, _two(taken=[0, 2]), r"'taken' in a state \(at taken\[1\]\) must not exceed 1"),
    (NAMED, {"parents": {"a": {"next_index": 9}}}, "at parents.a.next_index"),
    (NAMED, {"parents": [{"next_index": 1}]}, "has named parts, and 'parents' of the state"),
]


@pytest.mark.parametrize(("stream", "state", "words"), REFUSED)
def test_a_state_that_does_not(stream: Any, state: Any, words: str) -> None:
    with pytest.raises(StateError, match=words):
        check_state(stream, state)


def test_what_is_out_of_range_is_an_index_error() -> None:
    for rows in (-1, 8, 2**70):
        with pytest.raises(StateRangeError):
            check_state(COUNTING, {"parent": {"next_index": 7}, "rows": rows})


def test_more_steps_than_calls_may_be_nested() -> None:
    class Endless(Numbers):
        def fields(self) -> Fields:
            return Fields(depth=Whole(5, optional=True), parent=Inner(self))

    state: State = {"depth": 6}
    for _ in range(100_000):
        state = {"parent": state}
    with pytest.raises(StateRangeError, match="must not exceed 5, and is 6"):
        check_state(Endless(0), state)
