"""Decides which stream can be read by position, together with others, as a mixture's part."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np

from bushel.core.frozen import plain
from bushel.core.node import Drop, Each, Expand, Guard, Node, Order, leaves_out, walk, with_inputs
from bushel.core.places import OptionsNode, SeedNode, ToStreamNode
from bushel.core.positions import Positions
from bushel.core.state import State
from bushel.core.state_fields import Declares, Fields
from bushel.order.mix_state import SavedMixture
from bushel.order.mix_weights import Course, going_on, own_piece
from bushel.order.pattern import places_before
from bushel.order.repeat import EpochsNode, epoch_fields
from bushel.order.stream_mix import StreamMixNode
from bushel.run.long_chains import least_block
from bushel.run.positional import position_fields

# Far beyond any length that is read, and sums of it still fit into a position.
_FURTHEST = 1 << 61

# For each dataset, by `id`: whether it drops elements, if it is known that this can happen.
Known: TypeAlias = dict[int, bool | None]


@plain
class _Positions:
    """A dataset that is read from its first position on, as far as its states are concerned."""

    length: int

    def fields(self) -> Fields:
        return position_fields(self.length)

    def most_before(self, state: State | None) -> int | None:
        return self.length if state is None else state["next_index"]


@plain
class PositionPart:
    """A dataset that is read from its first position on, again and again if it `restarts`."""

    node: Node
    length: int
    restarts: bool
    allow_nones: bool
    # Whether positions may be without an element; and the later steps of the stream, which get the
    # elements of the others.
    drops: bool = False
    steps: tuple[Node, ...] = ()
    # Whether it ends at its length; a mixture may continue.
    ends: bool = True
    # The mixture, if it is one.
    mixture: "MixedPositions | None" = None

    def in_one(self) -> "PositionPart":
        """The same part, with its steps, none of which drops elements, as a part of the dataset."""
        for step in self.steps:
            self.node = with_inputs(step, [self.node])
        self.steps = ()
        return self

    def state(self, taken: int) -> State:
        """The state of its stream after `taken` positions."""
        if self.mixture is not None:
            return self.mixture.state(taken)
        if not self.restarts:
            return {"next_index": taken}
        # The next epoch begins with its first element, not before.
        epoch = max(0, taken - 1) // self.length
        index = taken - epoch * self.length
        return {"parent": {"next_index": index}, "epoch": epoch, "in_epoch": index}

    def fields(self) -> Fields:
        """The fields of its stream's states."""
        if self.mixture is not None:
            return self.mixture.saved.fields()
        positions = _Positions(self.length)
        return epoch_fields(positions) if self.restarts else positions.fields()

    def most_before(self, state: State | None) -> int | None:
        """The maximal number of elements before a state (see `Stream`)."""
        if self.mixture is not None:
            return self.mixture.saved.most_before(state)
        if not self.restarts:
            return _Positions(self.length).most_before(state)
        # An epoch without elements, as when all of them failed, ends with any number of errors.
        if state is None or not state["in_epoch"]:
            return None
        count: int = state["epoch"] * self.length + state["parent"]["next_index"]
        return count

    def taken(self, state: State) -> int | None:
        """The number of positions taken, if the state says nothing else."""
        if self.mixture is not None:
            index: int = state["index"]
            return index if index <= _FURTHEST and self.state(index) == state else None
        count: int = state["in_epoch"] if self.restarts else state["next_index"]
        if self.restarts:
            count += state["epoch"] * self.length
        return count if count <= _FURTHEST and self.state(count) == state else None


class StatedPart(Declares, Protocol):
    """A part of a mixture, as far as its states are concerned."""

    def state(self, taken: int) -> State:
        """The state of its stream after `taken` positions."""


class SteadyMixture:
    """The states of a mixture while all of its parts have elements and its weights stay the same.

    Then the number of elements of each part follows from the number of all elements.
    """

    def __init__(self, node: StreamMixNode, parts: Sequence[StatedPart]) -> None:
        assert isinstance(node.weights, tuple)
        self.weights, self.lane = node.weights, node.lane[0]
        self._before = places_before(self.lane, self.weights)
        own = own_piece(node)
        starts = [part.state(0) for part in parts] if node.names is not None else []
        self.saved = SavedMixture(node, own, parts, starts)
        self._node, self._own = node, own
        self._told = {"weights": own.told}
        self._left = [0] * len(parts) if node.on_end == "drop" else None

    def taken(self, index: int) -> list[int]:
        """The number of elements of each part among the first `index` elements."""
        places = places_before(self.lane + index, self.weights)
        return [after - before for after, before in zip(places, self._before, strict=True)]

    def state_of(
        self,
        states: Sequence[State],
        index: int,
        taken: Sequence[int],
        course: Course | None = None,
    ) -> State:
        """The state at an element, given the states of the parts; `course` if it was restored."""
        told = self._told if course is None else course.told(index)
        return self.saved.state_of(states, index, taken, told, left=self._left)

    def course_in(self, state: State) -> Course | None:
        """The course that goes on at a state, if it has the same weights to its end."""
        course = going_on(self._own, self._node, state)
        return course if len(course.pieces) == 1 and course.ends is None else None


class MixedPositions(SteadyMixture):
    """A mixture of parts with an element for each position; it is a function of the position, too.

    This holds as long as all of its parts have elements, and its weights stay as they are.
    """

    def __init__(self, node: StreamMixNode, parts: Sequence[PositionPart]) -> None:
        super().__init__(node, parts)
        self._parts = parts
        self.node = with_inputs(node, [part.node for part in parts])

    @property
    def length(self) -> int:
        """A number of elements within which no part ends; it may be far too low."""
        # Of n positions, a part has at most its share plus one.
        total = sum(self.weights)
        pairs = zip(self._parts, self.weights, strict=True)
        most = min((part.length - 1) * total // weight for part, weight in pairs)
        return min(max(0, most - self.lane), _FURTHEST)

    def state(self, index: int) -> State:
        """The state of its stream at an element."""
        taken = self.taken(index)
        states = [part.state(count) for part, count in zip(self._parts, taken, strict=True)]
        return self.state_of(states, index, taken)


def places_in(parts: Sequence[PositionPart], states: Sequence[State]) -> Positions | None:
    """The number of positions taken of each part, if the states say nothing else."""
    taken = [part.taken(state) for part, state in zip(parts, states, strict=True)]
    counts = [count for count in taken if count is not None]
    return np.array(counts, dtype=np.int64) if len(counts) == len(taken) else None


def _mixture_of(node: StreamMixNode, known: Known) -> PositionPart | None:
    if not isinstance(node.weights, tuple) or node.on_end != "stop":
        return None
    parts: list[PositionPart] = []
    for input in node.parts:
        part = part_of(input, False, known)
        if part is None or part.restarts or part.allow_nones:
            return None
        parts.append(part.in_one())
    mixture = MixedPositions(node, parts)
    return PositionPart(mixture.node, mixture.length, False, False, ends=False, mixture=mixture)


def part_of(node: Node, may_drop: bool, known: Known) -> PositionPart | None:
    """Returns the part of a stream that has one element for each position; None for others.

    With `may_drop`, some positions may be without an element. `known` has results for datasets that
    exist.
    """
    restarts = isinstance(node, EpochsNode)
    steps: list[Node] = []
    if restarts:
        node = node.inputs[0]
    while not isinstance(node, (ToStreamNode, StreamMixNode)):
        if is_change(node) or (may_drop and isinstance(node, Drop)):
            steps.append(node)
        elif not isinstance(node, (SeedNode, OptionsNode)):
            return None
        node = node.inputs[0]
    if isinstance(node, ToStreamNode):
        part = _by_position(node, restarts, known)
    else:
        part = None if restarts else _mixture_of(node, known)
    if part is None:
        return None
    part.drops = part.drops or any(isinstance(step, Drop) for step in steps)
    # The length of an epoch from which elements are dropped is unknown.
    if part.drops and (restarts or not may_drop):
        return None
    part.steps = tuple(reversed(steps))
    return part


def is_change(node: Node) -> bool:
    """Whether a step of a stream changes each element, whatever its position in the stream."""
    return isinstance(node, Each) and not node.uses_positions and not node.stays_here


def _by_position(node: ToStreamNode, restarts: bool, known: Known) -> PositionPart | None:
    base, length = node.input, node.input.length()
    if restarts and not 0 < length <= _FURTHEST:
        return None
    # Lanes are slices of one dataset, which is examined once.
    under = base.input if isinstance(base, Order) else base
    if id(under) not in known:
        known[id(under)] = _drops_of(under)
    drops = known[id(under)]
    return None if drops is None else PositionPart(base, length, restarts, node.allow_nones, drops)


def _drops_of(node: Node) -> bool | None:
    """Whether a dataset drops elements; None if it is not to be read together with others."""
    dropping = [step for step in walk(node) if isinstance(step, Guard) or leaves_out(step)]
    if any(isinstance(step, (Guard, Expand)) for step in dropping) or least_block(node) > 1:
        return None  # Or its source prefers large requests.
    return bool(dropping)
