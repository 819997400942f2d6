"""Streams that go over their input once more, or not to its end: repeat, limit, cache."""

from typing import Any

import numpy as np

from bushel.core.block import Block
from bushel.core.state import State, need, need_int
from bushel.core.stream import (
    Chunk,
    Framed,
    Marks,
    NoMarks,
    OneInput,
    SeriesMarks,
    ShiftedMarks,
    Stream,
    beginning_of,
    counted,
)
from bushel.errors import PlanError
from bushel.run.encoded import size_of


class RepeatStream(OneInput):
    """Goes over its input again and again, so many times or for ever."""

    def __init__(self, input: Stream, epochs: int | None) -> None:
        super().__init__(input)
        self._epochs = epochs
        self._epoch = 0
        self._start = beginning_of(input)
        # Whether this pass had any element: one that has none would be repeated for ever.
        self._had_any = True

    def pull(self, want: int) -> Chunk | None:
        while True:
            chunk = self._input.pull(want)
            if chunk is not None:
                self._had_any = self._had_any or bool(len(chunk.block) or chunk.block.failure)
                return Chunk(chunk.block, Framed(chunk.marks, {"epoch": self._epoch}))
            if self._epochs is not None and self._epoch + 1 >= self._epochs:
                return None
            if not self._had_any:
                if self._epochs is not None:
                    return None
                raise PlanError("`repeat` cannot go on for ever: the stream has no elements.")
            self._input.restore(self._start.at(0))
            self._epoch += 1
            self._had_any = False

    def state(self) -> State:
        return {"parent": self._input.state(), "epoch": self._epoch}

    def restore(self, state: State) -> None:
        (parent,) = need(state, "parent")
        epoch = need_int(state, "epoch")
        self._input.restore(parent)
        self._epoch, self._had_any = epoch, True


class LimitStream(OneInput):
    """Ends after so many elements."""

    def __init__(self, input: Stream, count: int) -> None:
        super().__init__(input)
        self._count = count
        self._read = 0

    def pull(self, want: int) -> Chunk | None:
        left = self._count - self._read
        chunk = self._input.pull(min(want, left)) if left > 0 else None
        if chunk is None:
            return None
        # A failure right behind the last element is none of it.
        block = chunk.block if len(chunk.block) < left else chunk.block.part(0, left)
        marks = counted(chunk.marks, "count_elements_read", self._read, len(block))
        self._read += len(block)
        return Chunk(block, marks)

    def state(self) -> State:
        return {"parent": self._input.state(), "count_elements_read": self._read}

    def restore(self, state: State) -> None:
        (parent,) = need(state, "parent")
        read = need_int(state, "count_elements_read")
        self._input.restore(parent)
        self._read = read


def cache_state(parent: State, position: int) -> State:
    """The state of a cache: that of its input, and how many elements there were."""
    return {"parent": parent, "position": position}


class CacheStream(OneInput):
    """Remembers its elements, so that going back does not compute them again.

    It remembers up to the first one that fails, or that would be too much. What comes from
    there on is computed, and fails, each time.
    """

    def __init__(self, input: Stream, max_bytes: int | None = None) -> None:
        super().__init__(input)
        # How much there is room for.
        self._room = max_bytes
        self._rows: list[Any] = []
        # The states between them.
        self._parts: list[tuple[Marks, int]] = [(beginning_of(input), 0)]
        # Whether they are all elements that there are.
        self._filled = False
        self._position = 0
        # Whether the input is where we are, and whether it came there right behind the
        # elements that are remembered.
        self._reads = self._remembers = True

    def pull(self, want: int) -> Chunk | None:
        start = self._position
        if start < len(self._rows):
            rows = self._rows[start : start + want]
            self._position += len(rows)
            positions = np.arange(start, self._position, dtype=np.int64)
            marks = ShiftedMarks(SeriesMarks(self._parts), start)
            return Chunk(Block(rows, positions), counted(marks, "position", start, len(rows)))
        if self._filled:
            return None
        if not self._reads:
            self._input.restore(self._end().at(0))
            self._reads = self._remembers = True
        chunk = self._input.pull(want)
        if chunk is None:
            self._filled = self._remembers
            return None
        block = chunk.block
        if self._remembers and self._room is not None:
            self._room -= sum(map(size_of, block.rows()))
            self._remembers = self._room >= 0
        if self._remembers:
            self._rows += block.rows()
            self._parts.append((chunk.marks, len(block)))
            self._remembers = block.failure is None
        self._position += len(block)
        return Chunk(block, counted(chunk.marks, "position", start, len(block)))

    def _end(self) -> Marks:
        """Where the elements end that are remembered."""
        return ShiftedMarks(SeriesMarks(self._parts), len(self._rows))

    def _counted(self, position: int) -> State:
        """The state of the input behind so many elements, as far as there are any."""
        start = min(position, len(self._rows))
        parent = SeriesMarks(self._parts).at(start)
        self._position, self._reads = start, False
        while (start := self._position) < position:
            chunk = self.pull(position - start)
            if chunk is None:
                break
            parent = chunk.marks.at(min(position - start, len(chunk.block)))["parent"]
        return parent

    def state(self) -> State:
        if self._reads:
            return cache_state(self._input.state(), self._position)
        return cache_state(SeriesMarks(self._parts).at(self._position), self._position)

    def restore(self, state: State) -> None:
        (parent,) = need(state, "parent")
        position = need_int(state, "position")
        if state.get("cache_filled") is True:
            # Grain's, whose parent is anywhere then: its elements are counted from the start.
            parent = self._counted(position)
        self._reads = position >= len(self._rows)
        if self._reads:
            self._input.restore(parent)
            known = position == len(self._rows) and not isinstance(self._parts[0][0], NoMarks)
            self._remembers = known and parent == self._end().at(0)
        self._position = position
