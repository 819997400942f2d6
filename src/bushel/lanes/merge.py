"""`merge_states`: merges the states of all hosts, for another number of hosts."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from bushel.core.state import State, by_name, children, copy_state
from bushel.errors import StateError

# The states of the streams below a stream, by their paths in its own state.
_Below: TypeAlias = dict[tuple[str, ...], State]


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merges the states of all hosts into one, from which any number of hosts can continue.

    Each host's state has the lanes that it owned. Everything else must be the same in all.

    >>> ours = {"step": 3, "lanes": {"0": {"next_index": 6}}}
    >>> theirs = {"step": 3, "lanes": {"1": {"next_index": 9}}}
    >>> merge_states([ours, theirs])
    {'step': 3, 'lanes': {'0': {'next_index': 6}, '1': {'next_index': 9}}}
    """
    if not states:
        raise StateError("there are no states to merge.")
    for state in states:
        if not isinstance(state, dict):
            raise StateError(
                f"states are merged as the dicts that `get_state()` returns, and one is a "
                f"{type(state).__name__}: {state!r:.200}."
            )
    merged: State = copy_state(states[0])
    # Lanes come last: other differences explain why they differ.
    for here in list(_streams_of([merged, *states[1:]])):
        if isinstance(here[0].get("lanes"), dict):
            here[0]["lanes"] = _all_lanes([state["lanes"] for state in here])
    return merged


def _streams_of(states: list[State]) -> Iterator[list[State]]:
    """The states of each stream on all hosts, which differ only in their lanes."""
    waiting = [("", states)]
    while waiting:
        path, here = waiting.pop()
        below = [_below(state) for state in here]
        _check_same([_own_fields(*pair) for pair in zip(here, below, strict=True)], path)
        yield here
        for place in below[0]:
            waiting.append((f"{path}/{'/'.join(place)}", [inner[place] for inner in below]))


def _below(state: State) -> _Below:
    found = {place: child for place, child in children(state) if place[0] != "lanes"}
    for name, value in state.items():
        # A user's own iterator keeps the states of its pipelines under any names.
        if isinstance(value, dict) and (name == "iterator" or "bushel" in value):
            found[name,] = value
    return found


def _own_fields(state: State, below: _Below) -> State:
    """The state without the streams below it and without its lanes, replaced by `...`."""
    own = dict(state)
    if isinstance(own.get("lanes"), dict):
        own["lanes"] = ...
    if isinstance(signature := own.get("bushel"), dict):
        # Each host has its own files.
        own["bushel"] = {name: signature[name] for name in signature if name != "made_with"}
    for name in {place[0] for place in below}:
        inner = {key: ... for field, *keys in below if field == name for key in keys}
        own[name] = {**by_name(own[name]), **inner} if inner else ...
    return own


def _check_same(states: list[State], path: str) -> None:
    first: Any = states[0]
    host = next((host for host, state in enumerate(states) if state != first), None)
    if host is None:
        return
    other: Any = states[host]
    while isinstance(first, (dict, list)) and type(other) is type(first):
        ours, theirs = by_name(first), by_name(other)
        if ours.keys() != theirs.keys():
            break
        name = next(name for name in ours if ours[name] != theirs[name])
        first, other, path = ours[name], theirs[name], f"{path}/{name}"
    raise StateError(
        f"these states cannot be put together: at {path or '/'} host 0 has {_show(first)} and host "
        f"{host} has {_show(other)}. Either they are of different steps, or the pipeline "
        "gives each host a part of its own (a shard). With `MapDataset.lanes` any number of hosts "
        "can go on from what any other number saved."
    )


def _all_lanes(of_hosts: list[dict[str, Any]]) -> dict[str, Any]:
    lanes: dict[str, Any] = {}
    for own in of_hosts:
        for name, state in own.items():
            if lanes.setdefault(name, state) != state:
                raise StateError(f"lane {name} is in two of these states, and differs.")
    numbers = {int(name) for name in lanes if str(name).isdecimal()}
    if holes := sorted(set(range(max(numbers, default=0))) - numbers):
        raise StateError(
            f"lane {holes[0]} is in none of these states, so one of them is missing, or is there "
            "twice."
        )
    return dict(sorted(lanes.items(), key=lambda item: (len(str(item[0])), str(item[0]))))


def _show(value: Any) -> str:
    return f"{json.dumps(value, default=repr)[:200]}"
