"""The state of a `mix` of streams: its fields and their checks."""

import json
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bushel.core.state import State
from bushel.core.state_fields import Declares, Fields, Flag, Inners, Whole, Wholes, all_before
from bushel.order.exact_shares import ONE_ELEMENT, Ahead
from bushel.order.mix_weights import SavedWeights, WeightSpan

if TYPE_CHECKING:
    from bushel.order.stream_mix import StreamMixNode

# Far beyond the length of any mixture, and some more still fits into a position.
_FURTHEST = 1 << 61
# Fields that depend on all earlier elements: how far the parts are ahead of their shares, and which
# parts have left. No other field can confirm them, so they have a checksum.
_DECIDED = ("ahead", "left")


class SavedMixture:
    """The states of a mixture whose parts are `declared`; those with names start at `starts`."""

    def __init__(
        self,
        node: "StreamMixNode",
        own: WeightSpan,
        declared: Sequence[Declares],
        starts: Sequence[State] = (),
    ) -> None:
        self._node, self._own, self._names = node, own, node.names
        self._declared, self.starts, self._count = declared, starts, len(node.parts)

    def state_of(
        self,
        states: Sequence[State],
        index: int,
        taken: Sequence[int],
        told: dict[str, Any],
        ahead: Ahead = (),
        stopped: bool = False,
        left: Sequence[int] | None = None,
    ) -> State:
        """The state at an element; `taken` has the number of each part, and `told` the weights.

        `left` says for each part whether it has left the mixture.
        """
        state: State = {
            "parents": self.by_name(states),
            "index": index,
            "stop": stopped,
            "taken": self.by_name(taken),
            "not_taken": index - sum(taken),
        }
        if ahead:
            state["ahead"] = self.by_name(ahead)
        if left is not None:
            state["left"] = self.by_name(left)
        if any(field in state for field in _DECIDED):
            state["check"] = _checksum(state)
        return {**state, **told}

    def by_name(self, values: Sequence[Any]) -> Any:
        """One value for each part: in a list, or by name."""
        if self._names is None:
            return list(values)
        return dict(zip(self._names, values, strict=True))

    def parts_of(self, state: State, field: str, otherwise: Sequence[Any]) -> list[Any]:
        """The values of a state for each part.

        By name where they have names, so that parts may come and go: a new one starts at its
        beginning.
        """
        values = state[field]
        if self._names is None:
            return list(values)
        return [values.get(name, new) for name, new in zip(self._names, otherwise, strict=True)]

    def whole_parts_of(
        self, state: State, field: str, new: Sequence[int], otherwise: Sequence[int] | None = None
    ) -> list[int]:
        """The same for numbers, which states of Grain, and of other weights, lack."""
        if field not in state:
            return list(otherwise or new)
        return self.parts_of(state, field, new)

    def fields(self) -> Fields:
        count, names = self._count, self._names
        return Fields(
            self._misfit,
            parents=Inners(self._declared, names),
            index=Whole(_FURTHEST),
            stop=Flag(),
            taken=Wholes(count, names, optional=True),
            # Turns of elements that failed, and of named parts that no longer exist.
            not_taken=Whole(optional=True),
            ahead=Wholes(count, names, most=ONE_ELEMENT, optional=True),
            left=Wholes(count, names, most=1, optional=True),
            check=Whole(optional=True),
            front=Whole(optional=True, or_none=True),
            shown=Whole(optional=True, or_none=True),
            ends=Whole(optional=True),
            weights=SavedWeights(self._own, self._node),
        )

    def _misfit(self, state: State) -> str | None:
        index = state["index"]
        for field in ("front", "shown", "ends"):
            if state.get(field) is not None and state[field] < index:
                return f"{field!r} is {state[field]}, before 'index', which is {index}"
        if "taken" not in state:
            return None  # A state of Grain.
        for field in ("taken", "ahead", "left"):
            # Parts come and go, but all fields of one state are about the same parts.
            if self._names is not None and field in state:
                apart = state[field].keys() ^ state["parents"].keys()
                if apart:
                    return f"of 'parents' and {field!r} only one has part {min(map(str, apart))!r}"
        parts, none = self._declared, [0] * self._count
        taken = self.parts_of(state, "taken", none)
        if sum(taken) > index:
            return f"'index' is {index}, and 'taken' says that {sum(taken)} elements came"
        wrong = self._miscounted(state) or _unlike_its_checksum(state)
        if wrong is not None:
            return wrong
        inners = self.parts_of(state, "parents", self.starts)
        # Each element belongs to a part, unless a user's function has failed. Of named parts some
        # may no longer exist, with the elements that they had given.
        given = None if "function" in self._own.told else all_before(parts, inners)
        if given is not None and self._names is None and index > given:
            return f"'index' is {index}, and its parts have given {given} elements"
        for number, (part, inner) in enumerate(zip(parts, inners, strict=True)):
            most = part.most_before(inner)
            if most is not None and taken[number] > most:
                who = number if self._names is None else self._names[number]
                return f"'taken' says {taken[number]} of part {who!r}, which has given {most}"
        return None

    def _miscounted(self, state: State) -> str | None:
        """What is wrong with the counts of a state, which are redundant."""
        if "not_taken" not in state:
            return None  # A state of an earlier version.
        index, not_taken = state["index"], state["not_taken"]
        told = state["taken"] if self._names is None else state["taken"].values()
        if not all(isinstance(count, int) for count in told):
            return f"'taken' is {state['taken']!r:.200}"
        if index == sum(told) + not_taken:
            return None
        return f"'index' is {index}, 'taken' says {sum(told)} in all and 'not_taken' {not_taken}"

    def most_before(self, state: State | None) -> int | None:
        return None if state is None else state["index"]


def _checksum(state: State) -> int:
    """The checksum of the fields that depend on all earlier turns.

    >>> _checksum({"index": 3, "taken": {"b": 1, "a": 2}, "left": {"b": 1, "a": 0}})
    4079588664
    """
    fields = [state.get(name) for name in ("index", "taken", *_DECIDED)]
    # Parts by name may be in any order, as some formats of checkpoints sort them.
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


def _unlike_its_checksum(state: State) -> str | None:
    if "check" not in state:
        return None  # A state of an earlier version.
    try:
        if state["check"] == _checksum(state):
            return None
    except (TypeError, ValueError):
        pass  # Not plain JSON, so it was never in a state.
    told = ", ".join(repr(field) for field in ("index", "taken", *_DECIDED) if field in state)
    return f"'check' is not the checksum of {told}"
