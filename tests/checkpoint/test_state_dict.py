"""The spelling of torch's stateful loaders: `state_dict` and `load_state_dict`."""

import json
from typing import Any

import pytest

from bushel.checkpoint.signed import MAX_DEPTH
from bushel.errors import StateError
from tests.checkpoint.pipelines import Counter, ahead, loader, mapped, rest, streamed

every_kind = pytest.mark.parametrize("make", [loader, mapped, streamed])


def _too_deep() -> Any:
    state: Any = {}
    for _ in range(100_000):
        state = {"parent": state}
    return state


@every_kind
def test_a_state_comes_back(make: Any) -> None:
    iterator = ahead(iter(make()), 4)
    state = json.loads(json.dumps(iterator.state_dict()))
    again = iter(make())
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert rest(again) == rest(iterator)


@every_kind
def test_it_is_the_state(make: Any) -> None:
    iterator = ahead(iter(make()), 4)
    state = iterator.get_state()
    assert iterator.state_dict() == (json.loads(state) if isinstance(state, bytes) else state)
    iterator.close()


def _shift(state: Any) -> None:
    """Changes every number in a state."""
    for name, value in list(state.items()):
        if isinstance(value, dict):
            _shift(value)
        elif isinstance(value, int):
            state[name] = value + 1


@every_kind
def test_it_belongs_to_whoever_asked_for_it(make: Any) -> None:
    iterator = ahead(iter(make()), 4)
    saved = iterator.get_state()
    _shift(iterator.state_dict())
    assert iterator.get_state() == saved
    given = iterator.state_dict()
    iterator.load_state_dict(given)
    _shift(given)
    assert iterator.get_state() == saved
    iterator.close()


def test_iterators_of_a_users_own_have_it() -> None:
    iterator = ahead(Counter(), 3)
    again = Counter()
    again.load_state_dict(iterator.state_dict())
    assert again.get_state() == {"count": 3, "seen": [0, 1, 2, 3]}


@every_kind
def test_what_is_no_state(make: Any) -> None:
    iterator = ahead(iter(make()), 1)
    states: list[Any] = [None, 3, b"{}", "{}", [], {}, {"bushel": 3}]
    for state in states:
        with pytest.raises(StateError):
            iterator.load_state_dict(state)
    with pytest.raises(StateError, match=f"nested more than {MAX_DEPTH} levels"):
        iterator.load_state_dict(_too_deep())
    assert rest(iterator) == rest(ahead(iter(make()), 1))


def test_what_is_no_dict_is_not_shown_when_it_is_nested_too_deeply() -> None:
    """Its text cannot be made: that would exhaust the stack."""
    iterator: Any = iter(mapped())
    with pytest.raises(StateError, match=f"nested more than {MAX_DEPTH} levels"):
        iterator.set_state([_too_deep()])


def test_bytes_are_for_set_state() -> None:
    iterator = iter(loader())
    with pytest.raises(StateError, match=r"takes the dict of .* there is `set_state`"):
        iterator.load_state_dict(iterator.get_state())  # type: ignore[arg-type]
    with pytest.raises(StateError, match="nested too deeply"):
        iterator.set_state(b'{"a":' * 100_000)
