"""Streams of positions in turn, read side by side as long as none ends."""

from collections.abc import Sequence

import numpy as np

from bushel.core.frozen import plain
from bushel.core.positions import Keys, Positions
from bushel.core.state import State
from bushel.core.step import SideBySide
from bushel.core.stream import Chunk, Marks
from bushel.order.interleave_state import interleave_state


@plain
class _SideTurnsMarks(Marks):
    turns: "SideTurns"
    turn: int
    following: int
    taken: Positions
    # Which of the streams each element came from.
    order: Keys

    def at(self, used: int) -> State:
        streams = len(self.taken)
        taken = self.taken + np.bincount(self.order[:used], minlength=streams)
        return self.turns.state_at((self.turn + used) % streams, self.following, taken)


class SideTurns:
    """Takes one element of each of the open streams in turn."""

    def __init__(self, numbers: Sequence[int], parts: SideBySide, following: int) -> None:
        self._numbers, self.parts = numbers, parts
        self.turn, self.following = 0, following

    def pull(self, want: int) -> Chunk | None:
        """The next elements; None where each stream must be read by itself from here on."""
        if not self.parts.is_suited:
            return None
        streams = len(self._numbers)
        order = (self.turn + np.arange(max(want, self.parts.at_once))) % streams
        block = self.parts.read(order)
        size = len(block)
        if not size:
            return None
        taken, order = self.parts.taken, order[:size]
        marks = _SideTurnsMarks(self, self.turn, self.following, taken, order)
        self.parts.take(np.bincount(order, minlength=streams))
        self.turn = (self.turn + size) % streams
        return Chunk(block, marks)

    def state(self) -> State:
        return self.state_at(self.turn, self.following, self.parts.taken)

    def state_at(self, turn: int, following: int, taken: Positions) -> State:
        """The state after `taken` elements of each stream."""
        ended = [False] * len(self._numbers)
        return interleave_state(turn, following, self._numbers, self.parts.states(taken), ended)
