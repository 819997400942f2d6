"""Notes in a mixture's state which of its elements later steps hold back, or have seen.

The state of such a step is where its input was before the group: after a restore the group is
made again. A mixture below the step then has to give the same elements once more, though its
weights may be others by then. So the state of the mixture says up to which element a later
step holds some. The mixture cannot know that by itself; the step with the group notes it.

A complete group need not be made again, unless a step further on holds what it made. Then the
group must end where it did. If the next element is what ended the group, that element must be
the same, too. So the state also says up to which element the group has seen some.

In a state these two are called "front" and "shown".
"""

from collections.abc import Callable
from typing import Any

from bushel.core.state import State

# The end of a group that continues in the next epoch, and so has no index in this one.
_BEYOND = object()
# Fields that number the epoch of a step below, or its current stream.
_PASSES = ("epoch", "part", "iterators_in_use_indices")


def with_held(before: State, behind: Callable[[], State], is_last: bool = False) -> State:
    """Notes in the state before a group how far it has read mixtures, by the state after it.

    `is_last` says that the group ended because the input did: nothing may follow the next time,
    either.

    >>> mixture = {"parents": [], "index": 4, "weights": {"fixed": [1, 1]}}
    >>> with_held({"parent": mixture}, lambda: {"parent": {**mixture, "index": 9}})["parent"]
    {'parents': [], 'index': 4, 'weights': {'fixed': [1, 1]}, 'front': 9}
    >>> with_held({"next_index": 4}, lambda: {"next_index": 9})
    {'next_index': 4}
    """
    if not _has_mixture(before):
        return before
    noted: State = _noted(before, behind(), "front", is_last)
    return noted


def with_end(state: State) -> State:
    """Notes in a state that nothing follows."""
    return with_held(state, lambda: state, True)


def with_seen(before: State, behind: Callable[[], State]) -> State:
    """Notes in the state before a group how far the previous group has seen elements.

    >>> mixture = {"parents": [], "index": 4, "weights": {"fixed": [1, 1]}}
    >>> with_seen(mixture, lambda: {**mixture, "index": 5})
    {'parents': [], 'index': 4, 'weights': {'fixed': [1, 1]}, 'shown': 5}
    >>> with_seen(mixture, lambda: mixture) == mixture
    True
    """
    if not _has_mixture(before):
        return before
    noted: State = _noted(before, behind(), "shown", False)
    return noted


def _has_mixture(state: Any) -> bool:
    # Every value is looked at, not only the `children` of a state: a user's own iterator keeps
    # the states of the pipelines that it reads from under names of its own.
    if isinstance(state, dict):
        return _is_mixture(state) or any(map(_has_mixture, state.values()))
    return isinstance(state, list) and any(map(_has_mixture, state))


def _is_mixture(state: State) -> bool:
    # A dict may also hold the states of a mixture's parts, which may have any names.
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
    until = None if least is None or reached is None else max(least, reached)
    if field == "front" or until != least:  # Otherwise the state says so already.
        noted[field] = until
    if until is not None and (is_last or behind.get("ends") == until):
        noted["ends"] = until
    return noted


def _reached(state: State) -> int | None:
    """How far a mixture was read, as far as its own state tells; None if beyond its end."""
    index: int = state["index"]
    reached = [index, state.get("front", index), state.get("shown", index)]
    return None if None in reached else max(reached)


def _differs(before: State, behind: State, name: str) -> bool:
    value = before.get(name)
    return isinstance(value, (int, list)) and value != behind.get(name)
