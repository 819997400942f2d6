"""Streams gone through from each of their states, here and from Grain's."""

import json
from contextlib import closing
from typing import Any

from tests.grain.oracle import assert_same, events


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


def states_of(ds: Any) -> list[Any]:
    """The states before everything and after each element, as they come back from disk."""
    with closing(iter(ds)) as iterator:
        states = [through_json(iterator.get_state())]
        for _ in iterator:
            states.append(through_json(iterator.get_state()))
    return states


def assert_resumes(ds: Any, expected: list[Any]) -> None:
    """A stream is what is expected, and goes on from each of its states: anew, and back."""
    states = states_of(ds)
    assert len(states) == len(expected) + 1
    with closing(iter(ds)) as used:
        assert_same(expected, list(used))
        for done in reversed(range(len(states))):
            with closing(iter(ds)) as fresh:
                for iterator in (fresh, used):
                    iterator.set_state(states[done])
                    assert iterator.get_state() == states[done]
                    assert_same(expected[done:], events(iterator), f"from {done}: ")


def assert_goes_on(theirs: Any, ours: Any, done: int) -> None:
    """What Grain has not given after so many elements, bushel gives from Grain's state."""
    with closing(iter(theirs)) as iterator:
        for _ in range(done):
            next(iterator)
        state = through_json(iterator.get_state())
        expected = list(iterator)
    with closing(iter(ours)) as iterator:
        iterator.set_state(state)
        assert_same(expected, events(iterator), f"from {state}: ")
