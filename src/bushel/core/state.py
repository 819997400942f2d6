"""The structure of states, which are plain JSON: finds and replaces states within a state.

A step's state holds the states of the streams that it reads from, and fields of its own:

    {"parent": {"next_index": 12}, "epoch": 1}      of a stream over one other
    {"parents": [{...}, {...}], "index": 7}         over several; in a dict by their names
    {"lanes": {"0": {...}, "3": {...}}, "step": 9}  over those lanes that this host owns

To search in states, use `children`, which knows the fields of all steps.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

State: TypeAlias = dict[str, Any]

# Fields that hold the state of one other stream.
_ONE = ("parent", "parent_state", "parent_window_start_state")
# Fields that hold those of several, in a list or by their names.
_SEVERAL = ("parents", "iterators_in_use_states", "lanes")


def children(state: Any) -> Iterator[tuple[tuple[str, ...], State]]:
    """The states of the streams that a stream reads from, with their paths in its own state.

    >>> list(children({"parent": {"next_index": 3}, "epoch": 1}))
    [(('parent',), {'next_index': 3})]
    >>> [place for place, _ in children({"parents": [{"next_index": 3}, None], "index": 0})]
    [('parents', '0')]
    """
    if not isinstance(state, dict):
        return
    for name, value in state.items():
        if name in _ONE and isinstance(value, dict):
            yield (name,), value
        elif name in _SEVERAL:
            for key, child in by_name(value).items():
                if isinstance(child, dict):
                    yield (name, key), child


def input_state(state: Any) -> Any:
    """The state of the input, in the state of a step with one input; None if it has none.

    >>> input_state({"parent": {"next_index": 3}, "epoch": 1})
    {'next_index': 3}
    """
    if not isinstance(state, dict):
        return None
    return next((state[name] for name in _ONE if name in state), None)


def by_name(values: Any) -> dict[str, Any]:
    """Values of several streams by name, or by number if they are in a list."""
    if isinstance(values, dict):
        return values
    return {str(number): value for number, value in enumerate(values or ())}


def walk_states(state: Any) -> Iterator[State]:
    """A state and all states within it, each before those that it contains.

    >>> [sorted(part) for part in walk_states({"parent": {"parent": {"next_index": 3}}, "bad": []})]
    [['bad', 'parent'], ['parent'], ['next_index']]
    """
    if isinstance(state, dict):
        waiting = [state]
        while waiting:
            here = waiting.pop()
            yield here
            waiting += reversed([child for _, child in children(here)])


def replaced(state: State, depth: int, make: Callable[[State], State]) -> State:
    """The same state, with another in place of the one `depth` parents below it.

    >>> replaced({"parent": {"next_index": 3}, "epoch": 1}, 1, lambda inner: {"next_index": 4})
    {'parent': {'next_index': 4}, 'epoch': 1}
    """
    outer: list[State] = []
    for _ in range(depth):
        outer.append(state)
        state = state["parent"]
    state = make(state)
    for around in reversed(outer):
        state = {**around, "parent": state}
    return state


def innermost_index(state: State) -> int:
    """The number of positions read according to a state, whatever later steps added around it.

    >>> innermost_index({"parent": {"next_index": 3}, "counter": 2})
    3
    """
    while "next_index" not in state:
        state = state["parent"]
    return int(state["next_index"])


def indices_in(state: Any) -> list[Any]:
    """The positions that a state and those within it have reached.

    >>> indices_in({"parents": [{"next_index": 3}, {"parent": {"next_index": 7}}], "index": 9})
    [3, 7]
    """
    return [part["next_index"] for part in walk_states(state) if "next_index" in part]


def copy_state(value: Any) -> Any:
    """Copies the plain values that states are made of, and anything else as `deepcopy` does."""
    if value is None or isinstance(value, (int, str, float)):
        return value
    if type(value) is dict:
        return {name: copy_state(item) for name, item in value.items()}
    if type(value) is list:
        return [copy_state(item) for item in value]
    return copy.deepcopy(value)
