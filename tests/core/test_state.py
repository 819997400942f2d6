"""The grammar of states knows every stream that a state has in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bushel.core.state import children, replaced, walk_states

KEPT = Path(__file__).parent.parent / "golden" / "states-0.1.0.jsonl"


def _all_within(value: Any) -> Iterator[dict[str, Any]]:
    """Everything that may be a state, whatever it is called."""
    if isinstance(value, dict):
        yield value
        for name, item in value.items():
            if name != "iterator":  # A user's own iterator, whose state is its own business.
                yield from _all_within(item)
    elif isinstance(value, list):
        for item in value:
            yield from _all_within(item)


def _saved() -> list[tuple[str, Any]]:
    entries = map(json.loads, KEPT.read_text().splitlines())
    return [(entry["program"], entry["state"]) for entry in entries]


def test_every_stream_of_every_kept_state_is_found() -> None:
    """By the positions that streams are at: each has a `next_index` at its root."""
    seen = 0
    for program, state in _saved():
        if not isinstance(state, dict) or program.startswith("DataLoader"):
            continue
        expected = sum("next_index" in part for part in _all_within(state))
        assert sum("next_index" in part for part in walk_states(state)) == expected, program
        seen += expected > 1
    assert seen > 100


def test_places_lead_to_children() -> None:
    for program, state in _saved():
        for place, child in children(state):
            found = state
            for name in place:
                found = found[int(name)] if isinstance(found, list) else found[name]
            assert found is child, program


def test_a_state_within_is_replaced_and_nothing_else() -> None:
    state = {"parent": {"parent": {"next_index": 3}, "epoch": 1}, "bad": [2]}
    changed = replaced(state, 2, lambda inner: {"next_index": inner["next_index"] + 1})
    assert changed == {"parent": {"parent": {"next_index": 4}, "epoch": 1}, "bad": [2]}
    assert state["parent"] == {"parent": {"next_index": 3}, "epoch": 1}
