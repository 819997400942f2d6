"""The weights in the state of a `mix` of streams, and restoring with other weights.

A state says by which weights elements were chosen, as plain values. With other weights the
mixture still gives by the old ones what a later step holds and has to make again (see
`order/mix_held.py`), and follows the new ones from there on:

    index                 held
      |---- old weights ----|---- new weights ---->

In a state that is taken meanwhile the weights are such pieces, each with its end.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bushel.core.fingerprint import fingerprint_of
from bushel.core.frozen import plain
from bushel.core.state import State
from bushel.core.state_fields import FieldKind, Path
from bushel.errors import PlanError, StateError
from bushel.order.exact_shares import Ahead
from bushel.order.mix_turns import Choices, FixedTurns, ScheduledTurns, Turns
from bushel.order.proportions import table_of
from bushel.order.schedule import WeightSchedule, in_order

if TYPE_CHECKING:
    from bushel.order.stream_mix import StreamMixNode

# Weights as plain values.
Told = dict[str, Any]
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@plain
class WeightSpan:
    """Elements up to an end, or all that follow, whose weights are the same ones."""

    until: int | None
    told: Told
    turns: Turns
    # How far each part is ahead before the first element of all.
    first: Ahead

    def ahead(self, before: Ahead) -> Ahead:
        """How far parts are ahead, as far as these weights ask for it."""
        # They follow their weights from here on, whatever these were before.
        return (before or self.first) if self.first else ()


def own_piece(node: "StreamMixNode") -> WeightSpan:
    """All elements, with the weights that a mixture has."""
    turns = node.turns()
    return WeightSpan(None, told_weights(node), turns, turns.beginning())


@plain
class Course:
    """Which weights a mixture follows: its own, and before them those of a state."""

    pieces: Sequence[WeightSpan]
    # Index after the last element that a later step holds, and has to get again; None where
    # that is in the next epoch. ("front" in a state.)
    held: int | None = 0
    # Index after the last element that a later step has seen, but does not hold.
    # ("shown" in a state.)
    seen: int | None = 0
    # Index at which the mixture ended. If it is `held`, the mixture ends there again.
    ends: int | None = None
    # Where the state was.
    start: int = 0

    def most(self, index: int, ask: int) -> int:
        """How many of the next `ask` elements have the same weights; 0 at the end."""
        until = self.at(index).until
        if self.ends is not None and self.ends == self.held:
            ask = min(ask, max(0, self.ends - index))
        return ask if until is None else min(ask, until - index)

    def at(self, index: int) -> WeightSpan:
        """The weights at an element."""
        return self._from(index)[0]

    def told(self, index: int) -> dict[str, Any]:
        """What a state at an element says of it."""
        pieces = self._from(index)
        weights: Any = [[piece.until, piece.told] for piece in pieces]
        if len(pieces) == 1:
            weights = pieces[0].told
        told = {"weights": weights}
        # Where it would end by itself, nothing is said of that.
        is_cut = len(self.pieces) > 1 or index == self.start
        is_over = is_cut and index == self.held == self.ends
        if self.held is None or self.held > index or is_over:
            told["front"] = self.held
        if self.seen is None or self.seen > index:
            told["shown"] = self.seen
        if self.ends is not None and (index == self.start or is_over):
            told["ends"] = self.ends  # On the way there the step after it says so.
        return told

    def _from(self, index: int) -> Sequence[WeightSpan]:
        if len(self.pieces) == 1:
            return self.pieces
        return [piece for piece in self.pieces if piece.until is None or piece.until > index]


def told_weights(node: "StreamMixNode") -> Told:
    """The weights of a mixture as plain values.

    >>> from bushel.sources.memory import RangeNode
    >>> from bushel.order.stream_mix import StreamMixNode
    >>> told_weights(StreamMixNode((RangeNode(range(5)),) * 2, (100, 300), ("a", "b")))
    {'fixed': [100, 300], 'names': ['a', 'b']}
    """
    weights, names = node.weights, node.names
    told: Told
    if isinstance(weights, tuple):
        told = {"fixed": list(weights)}
    elif isinstance(weights, WeightSchedule):
        how, count = "linear" if weights.is_linear else "steps", len(node.parts)
        told = {how: [[step, in_order(row, names, count, "")] for step, row in weights.points]}
    else:
        name, digest = fingerprint_of(weights)
        told = {"function": name, "code": [_PYTHON, digest]}
    return told if names is None else {**told, "names": list(names)}


def going_on(own: WeightSpan, node: "StreamMixNode", state: State) -> Course:
    """What a mixture follows that goes on where a state is; `own` are its weights now."""
    if "weights" not in state:
        return Course([own])  # Grain's.
    index = state["index"]
    held, seen = _reached(state, "front"), _reached(state, "shown")
    saved = _read(state["weights"])
    if _are_same(saved[-1][1], own.told):
        cut = saved[:-1]
    elif held is None:
        raise StateError(
            f"{_CHANGED} {_HELD}, which go on in the next pass over it: they were "
            f"{_show(saved[-1][1])}, and are {_show(own.told)} now. Restore this state with the "
            f"weights that it was saved with, and change them at a later one. {_ANYWAY}"
        )
    else:
        cut = [(held if until is None else min(until, held), told) for until, told in saved]
    pieces: list[WeightSpan] = []
    last = index
    for until, told in cut:
        if until is None or until <= last:
            continue
        last = until
        turns = _turns_of(told, own, node)
        pieces.append(WeightSpan(until, told, turns, turns.beginning()))
    if pieces and _are_same(pieces[-1].told, own.told):
        pieces.pop()
    return Course([*pieces, own], held, seen, state.get("ends"), index)


class SavedWeights(FieldKind):
    """The weights in the state of a mixture; Grain's have none."""

    optional = True

    def __init__(self, own: WeightSpan, node: "StreamMixNode") -> None:
        self._own, self._node = own, node

    def below(self, value: Any, name: str, path: Path, state: State) -> Iterable[Any]:
        going_on(self._own, self._node, state)
        return ()


_CHANGED = "the weights of this mixture changed, and the old ones are needed once more"
_HELD = "for elements that a step after it holds back (`pack`, `shuffle`, ...)"
_ANYWAY = (
    "(To go on all the same, with some elements missing and some coming twice, remove 'weights' "
    "from the mixture in the state.)"
)


def _reached(state: State, field: str) -> int | None:
    reached: int | None = state.get(field, state["index"])
    return reached


def _are_same(saved: Told, now: Told) -> bool:
    if "function" in saved and "function" in now:
        # The code of one function differs between releases of Python.
        (python, _), (this_python, _) = _code(saved), _code(now)
        if python != this_python:
            saved = {**saved, "code": now["code"]}
    return saved == now


def _code(told: Told) -> tuple[Any, Any]:
    code = told.get("code")
    if not isinstance(code, list) or len(code) != 2:
        raise _damaged(told)
    return code[0], code[1]


def _read(weights: Any) -> list[tuple[int | None, Told]]:
    """The pieces that a state has."""
    if isinstance(weights, dict):
        return [(None, weights)]
    if not isinstance(weights, list) or not weights:
        raise _damaged(weights)
    pieces: list[tuple[int | None, Told]] = []
    for number, piece in enumerate(weights, 1):
        if not isinstance(piece, list) or len(piece) != 2 or not isinstance(piece[1], dict):
            raise _damaged(weights)
        until, told = piece
        if (type(until) is not int) if number < len(weights) else (until is not None):
            raise _damaged(weights)
        pieces.append((until, told))
    return pieces


def _damaged(weights: Any) -> StateError:
    return StateError(f"the 'weights' of a mixture in this state are damaged: {weights!r:.200}.")


def _show(told: Told) -> str:
    if "function" in told:
        return f"those of `{told['function']}`"
    return ", ".join(f"{name} {value!r:.100}" for name, value in told.items())


def _turns_of(told: Told, own: WeightSpan, node: "StreamMixNode") -> Turns:
    """Whose turn it is by weights of a state."""
    if _are_same(told, own.told):
        return own.turns
    if "function" in told:
        raise StateError(
            f"{_CHANGED} {_HELD}: they were those of `{told['function']}`, which a state cannot "
            f"keep, and are {_show(own.told)} now. Restore this state with that function, and "
            "change the weights where nothing is held back. Those of a list or a `WeightSchedule` "
            f"may change anywhere. {_ANYWAY}"
        )
    names = told.get("names")
    if (names is None) != (node.names is None):
        raise _damaged(told)
    here = list(range(len(node.parts)) if node.names is None else node.names)
    named: list[Any] = here if names is None else names
    if not isinstance(named, list):
        raise _damaged(told)
    gone = [name for name in named if name not in here]
    if gone:
        raise StateError(
            f"this mixture has no part {gone[0]!r} any more, and it is needed once more {_HELD}. "
            "Keep it for a while, with the weight 0 in a `WeightSchedule`, and leave it out where "
            f"nothing of it is held back. {_ANYWAY}"
        )
    numbers = [here.index(name) for name in named]
    try:
        turns = _saved_turns(told, len(numbers), node.lane)
    except (PlanError, TypeError, ValueError) as error:
        raise _damaged(told) from error
    if numbers == list(range(len(here))):
        return turns
    return _SomeParts(turns, numbers, own.first or (0,) * len(here))


def _saved_turns(told: Told, count: int, lane: tuple[int, int]) -> Turns:
    if "fixed" in told:
        in_order(told["fixed"], None, count, "the weights")
        if not all(type(weight) is int and weight > 0 for weight in told["fixed"]):
            raise _damaged(told)
        return FixedTurns(told["fixed"], lane[0])
    if "linear" in told:
        schedule = WeightSchedule.linear(told["linear"])
    elif "steps" in told:
        schedule = WeightSchedule.steps(told["steps"])
    else:
        raise _damaged(told)
    return ScheduledTurns(table_of(schedule, None, count), count, lane)


class _SomeParts(Turns):
    """Turns of the parts that there were: those that are new have none yet."""

    def __init__(self, turns: Turns, numbers: Sequence[int], first: Ahead) -> None:
        self._turns, self._numbers = turns, numbers
        # How far ahead the parts begin that are new.
        self._first = first

    def beginning(self) -> Ahead:
        theirs = self._turns.beginning()
        if not theirs:
            return ()
        ahead = list(self._first)
        for number, value in zip(self._numbers, theirs, strict=True):
            ahead[number] = value
        return tuple(ahead)

    def choose(self, index: int, count: int, ahead: Ahead, stays: Sequence[bool]) -> Choices:
        theirs = tuple(ahead[number] for number in self._numbers) if ahead else ()
        left = [stays[number] for number in self._numbers]
        made = self._turns.choose(index, count, theirs, left)
        which = np.array(self._numbers, dtype=np.int64).take(made.which)
        if made.behind is None:
            return Choices(which, ahead)
        numbers, theirs_behind = self._numbers, made.behind

        def behind(used: int) -> Ahead:
            parts = list(ahead)
            for number, value in zip(numbers, theirs_behind(used), strict=True):
                parts[number] = value
            return tuple(parts)

        return Choices(which, ahead, behind)
