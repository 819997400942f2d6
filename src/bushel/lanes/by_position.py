"""Lanes that are read by position: takes the rows of all lanes of a host in one evaluation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.block import Columns
from bushel.core.state import State
from bushel.core.state_fields import Declares
from bushel.core.step import SideBySide, SideMarks


class SideLanes:
    """Takes `rows` elements from each lane for a step, lane after lane."""

    def __init__(self, side: SideBySide, lanes: int, rows: int) -> None:
        self._side = side
        # The lane of each element in one step.
        self._turns = np.arange(lanes).repeat(rows)
        # Whether some lane was found to lack rows for the next step.
        self.ends = False

    @property
    def declared(self) -> Sequence[Declares]:
        """The lanes, as far as their states are concerned."""
        return self._side.parts

    def read(self, steps: int) -> tuple[list[Any] | Columns, int, SideMarks] | None:
        """The elements of the next steps, or of fewer.

        None if a lane ends before, or if lanes have to be read by themselves.
        """
        width = len(self._turns)
        if not self._side.is_suited:
            return None
        which = np.tile(self._turns, steps)
        block = self._side.read(which, least=width)
        size = len(block) // width * width
        if not size:
            missing = int(which[len(block)])
            before = int(np.count_nonzero(which[: len(block)] == missing))
            self.ends = self._side.is_at_end(missing, before)
            return None
        marks = self._side.take(which[:size], block.positions[:size])
        return block.part(0, size).values, size, marks

    def states(self) -> list[State]:
        """The states of all lanes."""
        return self._side.states()

    def restore(self, states: Sequence[State]) -> bool:
        """Goes to states of all lanes, if they can be read together from there on."""
        self.ends = False
        return self._side.restore(states)
