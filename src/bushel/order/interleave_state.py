"""The state of an interleave at every element, and its checks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bushel.core.frozen import plain
from bushel.core.positions import Keys
from bushel.core.state import State
from bushel.core.state_fields import FieldKind, Fields, Path, Whole, check_whole, is_flag
from bushel.core.stream import Marks, StateAt, state_at, state_reached
from bushel.errors import StateError

# The marks of a chunk, and the number of its elements used.
StreamPlace = tuple[Marks, int]


def interleave_state(
    turn: int,
    following: int,
    numbers: Sequence[int],
    states: Sequence[State],
    ended: Sequence[bool],
) -> State:
    """The state: whose turn it is, which dataset enters next, and the states of the open ones."""
    return {
        "next_index_in_cycle": turn,
        "next_index_in_datasets": following,
        "iterators_in_use_indices": list(numbers),
        "iterators_in_use_states": list(states),
        "exhausted": [int(flag) for flag in ended],
    }


@plain
class InterleaveMarks(Marks):
    """Marks within a run of turns in which no dataset entered or left."""

    turn: int
    following: int
    numbers: Sequence[int]
    ended: Sequence[bool]
    # For each slot: the place before this run, and the place of its first element in the run.
    starts: Sequence[StreamPlace]
    begins: Sequence[StreamPlace]
    # The slot of each element.
    order: Keys
    failed: int | None = None

    def at(self, used: int) -> State:
        return self._after(used, state_at)

    def reached(self, used: int) -> State:
        return self._after(used, state_reached)

    def _after(self, used: int, state: StateAt) -> State:
        taken = self.order[:used]
        counts = np.bincount(taken, minlength=len(self.numbers)).tolist()
        if self.failed is not None and used > len(self.order):
            counts[self.failed] += 1
        turn = self.turn if not len(taken) else (int(taken[-1]) + 1) % len(self.numbers)
        places = zip(counts, self.starts, self.begins, strict=True)
        states = [
            state(begin[0], begin[1] + count) if count else state(*before)
            for count, before, begin in places
        ]
        return interleave_state(turn, self.following, self.numbers, states, self.ended)


class _OpenNumbers(FieldKind):
    """The numbers of the open datasets: each exists, and is there once."""

    def __init__(self, datasets: int, most: int) -> None:
        self._datasets, self._most = datasets, most

    def below(self, value: Any, name: str, path: Path, state: State) -> Iterable[Any]:
        if not isinstance(value, list) or len(value) > self._most:
            raise StateError(
                f"{name!r} in a state (at {path}) must be a list of at most {self._most} numbers "
                f"of datasets, and is {value!r:.200}."
            )
        for place, number in enumerate(value):
            check_whole(number, name, path.of(place), self._datasets - 1)
        if len(set(value)) < len(value):
            raise StateError(f"{name!r} in a state (at {path}) has one twice: {value!r:.200}.")
        return ()


class _AsMany(FieldKind):
    """A list with one entry for each open dataset."""

    def __init__(self, is_right: Callable[[Any], bool] | None = None, what: str = "") -> None:
        self._is_right, self._what = is_right, what

    def below(self, value: Any, name: str, path: Path, state: State) -> Iterable[Any]:
        count = len(state["iterators_in_use_indices"])
        if not isinstance(value, list) or len(value) != count:
            raise StateError(
                f"{name!r} in a state (at {path}) must be a list of {count}, one for each dataset "
                f"that is open, and is {value!r:.200}."
            )
        if self._is_right is not None and not all(map(self._is_right, value)):
            raise StateError(
                f"{name!r} in a state (at {path}) must be a list of {self._what}, and is "
                f"{value!r:.200}."
            )
        return ()


def interleave_fields(datasets: int, cycle_length: int) -> Fields:
    """The fields of a state. States of open streams are checked when they are opened."""
    return Fields(
        _lets_in_others,
        iterators_in_use_indices=_OpenNumbers(datasets, cycle_length),
        iterators_in_use_states=_AsMany(),
        exhausted=_AsMany(is_flag, "0 or 1"),
        next_index_in_cycle=Whole(),
        next_index_in_datasets=Whole(datasets),
    )


def _lets_in_others(state: State) -> str | None:
    numbers, following = state["iterators_in_use_indices"], state["next_index_in_datasets"]
    turn = state["next_index_in_cycle"]
    if numbers and max(numbers) >= following:
        return f"dataset {max(numbers)} is open, and the next to enter is {following}"
    if turn > max(0, len(numbers) - 1):
        return f"it is the turn of place {turn} of {len(numbers)}"
    return None
