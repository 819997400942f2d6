"""The states of all hosts of a job, put together."""

import json
from collections.abc import Sequence
from typing import Any

from bushel.errors import StateError


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Makes one state of those of all hosts, which any number of hosts can go on from.

    Each host's state has the lanes that it owned. What else is in them must be the same.

    >>> merge_states([{"step": 3, "lanes": {"0": 6}}, {"step": 3, "lanes": {"1": 9}}])
    {'step': 3, 'lanes': {'0': 6, '1': 9}}
    """
    if not states:
        raise StateError("there are no states to merge.")
    for state in states:
        if not isinstance(state, dict):
            raise StateError(
                f"states are merged as the dicts that `get_state()` returns, and one is a "
                f"{type(state).__name__}: {state!r:.200}."
            )
    merged: dict[str, Any] = _merged(list(states), "")
    return merged


def _merged(values: list[Any], path: str) -> Any:
    first = values[0]
    if all(value == first for value in values[1:]):
        return first
    if path == "/bushel/made_with":
        return first  # Each host has files of its own.
    if path.endswith("/lanes") and all(map(_are_lanes, values)):
        return _all_lanes(values)
    if all(isinstance(value, dict) and value.keys() == first.keys() for value in values):
        # Lanes last: what else differs tells why they do.
        names = sorted(first, key=lambda name: name == "lanes")
        parts = {
            name: _merged([value[name] for value in values], f"{path}/{name}") for name in names
        }
        return {name: parts[name] for name in first}
    if all(isinstance(value, list) and len(value) == len(first) for value in values):
        columns = zip(*values, strict=True)
        return [_merged(list(column), f"{path}/{i}") for i, column in enumerate(columns)]
    other = next(number for number, value in enumerate(values) if value != first)
    raise StateError(
        f"these states cannot be put together: at {path or '/'} host 0 has {_show(first)} and host "
        f"{other} has {_show(values[other])}. Either they are of different steps, or the pipeline "
        "gives each host a part of its own (a shard). With `MapDataset.lanes` any number of hosts "
        "can go on from what any other number saved."
    )


def _are_lanes(value: Any) -> bool:
    # A part of a mixture may be called "lanes", too.
    return isinstance(value, dict) and all(str(name).isdecimal() for name in value)


def _all_lanes(values: list[dict[str, Any]]) -> dict[str, Any]:
    lanes: dict[str, Any] = {}
    for value in values:
        for name, state in value.items():
            if lanes.setdefault(name, state) != state:
                raise StateError(f"lane {name} is in two of these states, and differs.")
    return dict(sorted(lanes.items(), key=lambda item: (len(item[0]), item[0])))


def _show(value: Any) -> str:
    return f"{json.dumps(value, default=repr)[:200]}"
