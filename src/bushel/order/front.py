"""How far the mixtures below a step have been read for a group that is not complete.

The state of such a step is where its input was before the group: after a restore the group is
made again. Where a mixture lies below, it has to give the same elements for that once more,
though its weights may be others by then. So its state says up to which of its elements that
goes: its front. It is not in what the mixture says by itself, as it is a matter of the group.

A group that is complete need not be made again, unless a step further on holds what it made.
Then it must end where it did, and where that was because of the next element, this one must be
the same, too. So the state says what was shown to the group.
"""

from collections.abc import Callable
from typing import Any

from bushel.core.state import State

# The end of a group that continues in the next epoch: it has no index in this one.
_BEYOND = object()
# Fields that number the epoch of a step below, or the stream that it is at.
_PASSES = ("epoch", "part", "iterators_in_use_indices")


def with_front(before: State, behind: Callable[[], State], is_last: bool = False) -> State:
    """Notes in a state how far mixtures were read, of which the state after all of that tells.

    `is_last` says that the group is as it is because nothing came after it, and so nothing may
    come the next time.

    >>> mixture = {"parents": [], "index": 4, "weights": {"fixed": [1, 1]}}
    >>> with_front({"parent": mixture}, lambda: {"parent": {**mixture, "index": 9}})["parent"]
    {'parents': [], 'index': 4, 'weights': {'fixed': [1, 1]}, 'front': 9}
    >>> with_front({"next_index": 4}, lambda: {"next_index": 9})
    {'next_index': 4}
    """
    if not _has_mixture(before):
        return before
    noted: State = _noted(before, behind(), "front", is_last)
    return noted


def with_shown(before: State, behind: Callable[[], State]) -> State:
    """Notes in a state what was shown to the group before it.

    >>> mixture = {"parents": [], "index": 4, "weights": {"fixed": [1, 1]}}
    >>> with_shown(mixture, lambda: {**mixture, "index": 5})
    {'parents': [], 'index': 4, 'weights': {'fixed': [1, 1]}, 'shown': 5}
    >>> with_shown(mixture, lambda: mixture) == mixture
    True
    """
    if not _has_mixture(before):
        return before
    noted: State = _noted(before, behind(), "shown", False)
    return noted


def _has_mixture(state: Any) -> bool:
    if isinstance(state, dict):
        return _is_mixture(state) or any(map(_has_mixture, state.values()))
    return isinstance(state, list) and any(map(_has_mixture, state))


def _is_mixture(state: State) -> bool:
    # Parts of a mixture may be called anything, and their states are dicts.
    return "weights" in state and "parents" in state and isinstance(state.get("index"), int)


def _noted(before: Any, behind: Any, field: str, is_last: bool) -> Any:
    if isinstance(before, list):
        known = isinstance(behind, list) and len(behind) == len(before)
        others = behind if known else [_BEYOND] * len(before)
        pairs = zip(before, others, strict=True)
        return [_noted(value, other, field, is_last) for value, other in pairs]
    if not isinstance(before, dict):
        return before
    if not isinstance(behind, dict) or any(_differs(before, behind, name) for name in _PASSES):
        behind = {}
    noted = {
        name: _noted(value, behind.get(name, _BEYOND), field, is_last)
        for name, value in before.items()
    }
    if not _is_mixture(before):
        return noted
    least, reached = _reached(before), _reached(behind) if _is_mixture(behind) else None
    front = None if least is None or reached is None else max(least, reached)
    if field == "shown" and front == least:
        return noted  # Nothing beyond what it says already.
    noted[field] = front
    if front is not None and (is_last or behind.get("ends") == front):
        noted["ends"] = front
    return noted


def _reached(state: State) -> int | None:
    """How far a mixture was read, as far as its own state tells; None for beyond its end."""
    index: int = state["index"]
    reached = [index, state.get("front", index), state.get("shown", index)]
    return None if None in reached else max(reached)


def _differs(before: State, behind: State, name: str) -> bool:
    value = before.get(name)
    return isinstance(value, (int, list)) and value != behind.get(name)
