"""`cache`: its node, and the stream that keeps elements in memory."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.arguments import positive
from bushel.core.block import Block
from bushel.core.frozen import frozen
from bushel.core.node import ONE_LANE, Node
from bushel.core.sizes import bytes_of
from bushel.core.state import State, indices_in
from bushel.core.state_fields import Declares, Fields, Flag, Inner, Whole
from bushel.core.step import How, OverOne
from bushel.core.stream import (
    Chunk,
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


@frozen
class CacheNode(OverOne):
    """Caches the elements of a stream, in memory or in a file."""

    input: Node
    path: str | None = None
    max_bytes: int | None = None
    lane: tuple[int, int] = ONE_LANE
    same_elements = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        if self.file is None:
            return CacheStream(inputs[0], self.max_bytes)
        from bushel.cache.disk import DiskCacheStream  # Imported only for a cache in a file.

        return DiskCacheStream(inputs[0], self)

    @property
    def file(self) -> str | None:
        """The path; each lane has its own."""
        lane, lanes = self.lane
        return f"{self.path}.{lane}-of-{lanes}" if self.path and lanes > 1 else self.path

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        return lengths[0]

    def describe(self) -> str:
        return "cache()"

    @property
    def label(self) -> str:
        return "cache()" if self.file is None else f"cache({self.file!r})"


def cache_state(parent: State, position: int) -> State:
    """The state of a cache: the state of its input, and the number of elements before it."""
    return {"parent": parent, "position": position}


def cache_fields(input: Declares) -> Fields:
    """The fields of such a state; Grain's also say whether all elements are cached."""

    def is_ahead(state: State) -> str | None:
        # Grain's state of the input may be anywhere once all elements are cached.
        most = None if state.get("cache_filled") else input.most_before(state["parent"])
        if most is None or state["position"] <= most:
            return None
        return f"'position' is {state['position']}, and only {most} elements came before"

    return Fields(is_ahead, parent=Inner(input), position=Whole(), cache_filled=Flag(optional=True))


class CacheStream(OneInput):
    """Caches its elements, so that after going back they are not computed again.

    It caches elements up to the first that fails, or that would exceed the limit. Later elements
    are computed, and fail, each time.
    """

    def __init__(self, input: Stream, max_bytes: int | None = None) -> None:
        super().__init__(input)
        # The remaining bytes.
        self._room = max_bytes
        self._rows: list[Any] = []
        # The states between the elements.
        self._parts: list[tuple[Marks, int]] = [(beginning_of(input), 0)]
        # Whether all elements are cached.
        self._filled = False
        self._position = 0
        # `_reads`: the input is at our position. `_remembers`: all elements before it are cached.
        self._reads = self._remembers = True

    def pull(self, want: int) -> Chunk | None:
        start = self._position
        if not self._reads and start < len(self._rows):
            rows = self._rows[start : start + want]
            self._position += len(rows)
            positions = np.arange(start, self._position, dtype=np.int64)
            marks = ShiftedMarks(SeriesMarks(self._parts), start)
            return Chunk(Block(rows, positions), counted(marks, "position", start, len(rows)))
        if self._filled and not self._reads:
            return None
        if not self._reads:
            self._input.restore(self._end().at(0))
            self._reads = self._remembers = True
        chunk = self._input.pull(want)
        if chunk is None:
            self._filled = self._remembers
            return None
        block = chunk.block
        if self._remembers:
            rows = block.rows()
            kept = self._fitting(rows)
            self._rows += rows[:kept]
            self._parts.append((chunk.marks, kept))
            self._remembers = kept == len(rows) and block.failure is None
        self._position += len(block)
        return Chunk(block, counted(chunk.marks, "position", start, len(block)))

    def _fitting(self, rows: Sequence[Any]) -> int:
        """The number of these elements that fit; reserves their bytes.

        One by one: the cached elements must not depend on how many come at a time.
        """
        if self._room is None:
            return len(rows)
        for count, row in enumerate(rows):
            self._room -= bytes_of(row, objects=True)
            if self._room < 0:
                return count
        return len(rows)

    def _leads_to(self, position: int, parent: State) -> bool:
        """Whether a state of the input is the state before a cached element."""
        marks = SeriesMarks(self._parts)
        if isinstance(self._parts[0][0], NoMarks):
            return True
        return indices_in(marks.at(position)) == indices_in(parent)

    def _end(self) -> Marks:
        """The position after the last cached element."""
        return ShiftedMarks(SeriesMarks(self._parts), len(self._rows))

    def _counted(self, position: int) -> State:
        """The state of the input after `position` elements, or at its end."""
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
        parent, position = state["parent"], state["position"]
        if state.get("cache_filled"):
            # A state of Grain, whose parent may be anywhere: its elements are counted from the
            # start.
            parent = self._counted(position)
        # If elements of this position are cached, but not as the successors of this state of the
        # input, the input decides, as it would for a stream without a cache.
        self._reads = position >= len(self._rows) or not self._leads_to(position, parent)
        if self._reads:
            self._input.restore(parent)
            known = position == len(self._rows) and not isinstance(self._parts[0][0], NoMarks)
            self._remembers = known and parent == self._end().at(0)
        self._position = position

    def fields(self) -> Fields:
        return cache_fields(self._input)

    def most_before(self, state: State | None) -> int | None:
        if state is None or not state.get("cache_filled"):
            return self._input.most_before(state and state["parent"])
        return self._input.most_before(None)


def cache_step(parent: Node, path: str | os.PathLike[str] | None, max_bytes: int | None) -> Node:
    """The step of `cache`."""
    if max_bytes is not None:
        positive("cache", "max_bytes", max_bytes)
    place = None if path is None else os.path.abspath(os.fspath(path))
    if place is not None and not os.path.isdir(os.path.dirname(place)):
        raise PlanError(
            f"`cache`: there is no folder {os.path.dirname(place)!r} to keep a file in. Make "
            "it before, so that a misspelt path is noticed."
        )
    if place is not None and os.path.isdir(place):
        raise PlanError(
            f"`cache`: {place!r} is a folder. Write the name of a file in it, one for each "
            "pipeline."
        )
    return CacheNode(parent, place, max_bytes)
