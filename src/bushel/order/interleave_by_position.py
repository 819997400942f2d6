"""Interleaves random-access datasets, evaluated together until the first ends."""

from collections.abc import Sequence

import numpy as np

from bushel.core.frozen import plain
from bushel.core.positions import Keys
from bushel.core.state import State
from bushel.core.step import SideBySide, SideMarks
from bushel.core.stream import Chunk, Marks
from bushel.order.interleave_state import interleave_state


@plain
class _SideTurnsMarks(Marks):
    turns: "SideTurns"
    turn: int
    following: int
    taken: SideMarks
    # The stream of each element.
    order: Keys

    def at(self, used: int) -> State:
        streams = self.turns.count
        states = self.taken.at(np.bincount(self.order[:used], minlength=streams))
        return self.turns.state_at((self.turn + used) % streams, self.following, states)


class SideTurns:
    """Takes one element of each of the open streams in turn."""

    def __init__(self, numbers: Sequence[int], parts: SideBySide, following: int) -> None:
        self._numbers, self.parts = numbers, parts
        self.turn, self.following, self.count = 0, following, len(numbers)

    def pull(self, want: int) -> Chunk | None:
        """The next elements; None if each stream must be read by itself from here on."""
        if not self.parts.is_suited:
            return None
        streams = self.count
        order = (self.turn + np.arange(max(want, self.parts.at_once))) % streams
        block = self.parts.read(order)
        size = len(block)
        if not size:
            return None
        order = order[:size]
        taken = self.parts.take(order, block.positions)
        marks = _SideTurnsMarks(self, self.turn, self.following, taken, order)
        self.turn = (self.turn + size) % streams
        return Chunk(block, marks)

    def state(self) -> State:
        return self.state_at(self.turn, self.following, self.parts.states())

    def state_at(self, turn: int, following: int, states: Sequence[State]) -> State:
        """The state, given the state of each stream."""
        return interleave_state(turn, following, self._numbers, states, [False] * self.count)
