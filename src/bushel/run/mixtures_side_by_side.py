"""Reads many mixtures in turn, where filters drop elements of their parts.

As long as all parts have elements, whose turn it is in a mixture depends on the number of its next
element alone. So the next elements of many mixtures are the next elements of the parts of all of
them, which are numbered one mixture after the other and read side by side:

    which     0   1   0   1           whose turn it is: that of a mixture
    next      5   2   6   3           the number of its next element
    turns     1   4   0   2           the part: 0 and 1 are those of mixture 0, 2 to 4 those of 1

A part may be a mixture, too: the parts of the mixtures of one level are the streams of the next
one. When a part ends, each stream is read by itself.
"""

from collections.abc import Sequence
from typing import TypeAlias, Union

import numpy as np

from bushel.core.block import Block
from bushel.core.frozen import plain
from bushel.core.node import Node, with_inputs
from bushel.core.places import OptionsNode, SeedNode
from bushel.core.positions import Keys, Positions, occurrences
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.core.step import SideBySide, SideMarks
from bushel.order.mix_weights import Course
from bushel.order.patterns import patterns_together
from bushel.order.stream_mix import StreamMixNode
from bushel.run.position_part import Known, PositionPart, SteadyMixture, is_change, part_of

# The most mixtures within each other that are read together, as each level takes time.
_DEEPEST = 8
# Far beyond any element that is read, and the sum with another position still fits into one.
_FURTHEST = 1 << 61
# Fields of later steps (see `order/mix_held.py`).
_NOTES = ("front", "shown")

MixedPart: TypeAlias = Union[PositionPart, "MixedStreams"]


class MixedStreams(SteadyMixture):
    """A mixture of streams that are read by position; some of them drop elements."""

    def __init__(self, node: StreamMixNode, parts: Sequence[MixedPart]) -> None:
        super().__init__(node, parts)
        self.parts = parts

    def state(self, taken: int) -> State:
        """The state of its stream at the beginning, where alone it is known."""
        assert not taken
        states = [part.state(0) for part in self.parts]
        return self.state_of(states, 0, [0] * len(states))

    def fields(self) -> Fields:
        return self.saved.fields()

    def most_before(self, state: State | None) -> int | None:
        return self.saved.most_before(state)

    def place_in(self, state: State) -> "_MixturePlace | None":
        """The place that a state tells, if all that it tells follows from that."""
        course, index = self.course_in(state), state["index"]
        if course is None or index > _FURTHEST:
            return None
        below = self.saved.parts_of(state, "parents", self.saved.starts)
        made = self.state_of(below, index, self.taken(index), course)
        # What later steps hold back is in the course, and need not be told any more.
        if {**state, **dict.fromkeys(_NOTES)} != {**made, **dict.fromkeys(_NOTES)}:
            return None
        return _MixturePlace(index, course, below)


@plain
class _MixturePlace:
    index: int
    course: Course
    # The states of the parts.
    below: list[State]


def mixed_streams(node: Node, known: Known, deepest: int = _DEEPEST) -> MixedStreams | None:
    """Returns the mixture that a stream is, perhaps with later changes of its elements.

    None for another stream, and for a mixture whose turns depend on more than their number. `known`
    has results for datasets that exist.
    """
    mixture, changes = _mixture_before(node)
    if mixture is None or not isinstance(mixture.weights, tuple):
        return None
    if mixture.on_end == "restart" or not deepest:
        return None
    parts: list[MixedPart] = []
    for input in mixture.parts:
        # A change of all elements is a change of the elements of each part.
        for step in reversed(changes):
            input = with_inputs(step, [input])
        part: MixedPart | None
        if _mixture_before(input)[0] is None:
            part = part_of(input, True, known)
        else:
            part = mixed_streams(input, known, deepest - 1)
        if part is None:
            return None
        parts.append(part)
    return MixedStreams(mixture, parts)


def _mixture_before(node: Node) -> tuple[StreamMixNode | None, list[Node]]:
    """The mixture before changes of its elements, if any; and these changes, the last one first."""
    changes: list[Node] = []
    while not isinstance(node, StreamMixNode):
        if is_change(node):
            changes.append(node)
        elif not isinstance(node, (SeedNode, OptionsNode)):
            return None, changes
        node = node.inputs[0]
    return node, changes


def leaves_of(parts: Sequence[MixedPart]) -> list[PositionPart]:
    """The parts that are no such mixtures, and those of mixtures among them, in order."""
    leaves: list[PositionPart] = []
    for part in parts:
        leaves += leaves_of(part.parts) if isinstance(part, MixedStreams) else [part]
    return leaves


@plain
class _MixturesMarks(SideMarks):
    side: "MixturesSideBySide"
    # The number of elements taken of each stream before some elements; the stream of each of
    # these, and its part.
    taken: Positions
    which: Keys
    turns: Keys
    marks: SideMarks
    courses: Sequence[Course | None]

    def at(self, counts: Positions) -> list[State]:
        turns = self.turns[occurrences(self.which) < counts.take(self.which)]
        states = self.marks.at(np.bincount(turns, minlength=self.side.turns_count))
        return self.side.states_of(states, self.taken + counts, self.courses)


class MixturesSideBySide(SideBySide):
    """The next elements of streams of which some are mixtures, given those of all their parts."""

    def __init__(self, parts: Sequence[MixedPart], leaves: SideBySide) -> None:
        """`leaves` reads the streams that `leaves_of` returns."""
        self.parts: Sequence[MixedPart] = parts
        # A stream that is no mixture is its own only part here.
        within = [part.parts if isinstance(part, MixedStreams) else [part] for part in parts]
        below = [part for some in within for part in some]
        is_last = all(isinstance(part, PositionPart) for part in below)
        self._below = leaves if is_last else MixturesSideBySide(below, leaves)
        # The first part of each stream, and after the last stream the number of all parts.
        self._ends = [0, *np.cumsum([len(some) for some in within]).tolist()]
        self.turns_count: int = self._ends[-1]
        self._firsts = np.array(self._ends[:-1], dtype=np.int64)
        mixtures = [part if isinstance(part, MixedStreams) else None for part in parts]
        self._locate = patterns_together(
            [(1,) if mixture is None else mixture.weights for mixture in mixtures],
            [0 if mixture is None else mixture.lane for mixture in mixtures],
        )
        self._are_mixtures = np.array([mixture is not None for mixture in mixtures])
        # The number of elements taken of each mixture; the places of others are their own business.
        self._taken: Positions = np.zeros(len(parts), dtype=np.int64)
        # The courses of mixtures that were restored.
        self._courses: Sequence[Course | None] = [None] * len(parts)
        # The parts of the elements that were read last, and the positions in these.
        self._turns, self._places = np.empty((2, 0), dtype=np.int64)

    @property
    def at_once(self) -> int:
        return self._below.at_once

    @property
    def is_suited(self) -> bool:
        return self._below.is_suited

    def is_at_end(self, number: int, after: int = 0) -> bool:
        return False  # Where an element is missing, each stream decides by itself whether it ends.

    def read(self, which: Keys, least: int = 1) -> Block:
        which = which[: max(least, self.at_once)]
        numbers = self._taken.take(which) + occurrences(which)
        chosen, _ = self._locate(which, numbers)
        self._turns = self._firsts.take(which) + chosen
        block = self._below.read(self._turns, least)
        size, self._places = len(block), block.positions
        are_mixtures = self._are_mixtures.take(which[:size])
        return Block(block.values, np.where(are_mixtures, numbers[:size], self._places))

    def take(self, which: Keys, positions: Positions) -> SideMarks:
        size = len(which)
        below = self._below.take(self._turns[:size], self._places[:size])
        turns = self._turns[:size]
        marks = _MixturesMarks(self, self._taken, which, turns, below, self._courses)
        # A new array, as the marks keep the one with the previous numbers.
        self._taken = self._taken + np.bincount(which, minlength=len(self.parts))
        return marks

    def marks(self) -> SideMarks:
        nothing = np.empty(0, dtype=np.int64)
        below = self._below.marks()
        return _MixturesMarks(self, self._taken, nothing, nothing, below, self._courses)

    def states(self) -> list[State]:
        return self.states_of(self._below.states(), self._taken, self._courses)

    def states_of(
        self, below: Sequence[State], taken: Positions, courses: Sequence[Course | None]
    ) -> list[State]:
        """The states of the streams, given those of all parts, and the number taken of each."""
        states: list[State] = []
        for number, (part, count) in enumerate(zip(self.parts, taken.tolist(), strict=True)):
            first, end = self._ends[number], self._ends[number + 1]
            state = below[first]
            if isinstance(part, MixedStreams):
                inner = below[first:end]
                state = part.state_of(inner, count, part.taken(count), courses[number])
            states.append(state)
        return states

    def restore(self, states: Sequence[State]) -> bool:
        below: list[State] = []
        taken = np.zeros(len(self.parts), dtype=np.int64)
        courses: list[Course | None] = [None] * len(self.parts)
        for number, (part, state) in enumerate(zip(self.parts, states, strict=True)):
            if not isinstance(part, MixedStreams):
                below.append(state)
                continue
            place = part.place_in(state)
            if place is None:
                return False
            taken[number], courses[number] = place.index, place.course
            below += place.below
        if not self._below.restore(below):
            return False
        self._taken, self._courses = taken, courses
        return True
