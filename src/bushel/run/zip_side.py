"""Zipped streams of positions, read side by side."""

from collections.abc import Callable

import numpy as np

from bushel.core.block import Block
from bushel.core.fields import Fields, all_before
from bushel.core.frozen import plain
from bushel.core.positions import Positions
from bushel.core.state import State
from bushel.core.stream import Chunk, Marks, Stream
from bushel.run.merge import ZipStream, zip_fields
from bushel.run.side_by_side import SideBySide


@plain
class _SideMarks(Marks):
    parts: SideBySide
    taken: Positions

    def at(self, used: int) -> State:
        return {"parents": self.parts.states(self.taken + used)}


class SideZipStream(Stream):
    """Makes tuples of one element from each of many datasets, as long as all have one."""

    def __init__(self, parts: SideBySide, make_each: Callable[[], ZipStream]) -> None:
        self._parts, self._make_each = parts, make_each
        self._made: ZipStream | None = None
        # The same with each stream read by itself, once they have to be.
        self._each: ZipStream | None = None

    def pull(self, want: int) -> Chunk | None:
        if self._each is None:
            chunk = self._together(want) if self._parts.is_suited else None
            if chunk is not None:
                return chunk
            self._read_each(self.state())
        assert self._each is not None
        return self._each.pull(want)

    def _together(self, want: int) -> Chunk | None:
        """Some tuples; None where there is none that can be had like this."""
        parts, count = self._parts, len(self._parts.taken)
        size = min(want, max(1, parts.at_once // count))
        block = parts.read(np.tile(np.arange(count), size), least=count)
        size = len(block) // count
        if not size:
            return None
        rows = block.rows()
        made = [tuple(rows[first : first + count]) for first in range(0, size * count, count)]
        marks = _SideMarks(parts, parts.taken)
        parts.take(np.full(count, size, dtype=np.int64))
        return Chunk(Block(made, block.positions[: size * count : count]), marks)

    def _read_each(self, state: State) -> None:
        if self._made is None:
            self._made = self._make_each()
        self._made.restore(state)
        self._each = self._made

    def state(self) -> State:
        if self._each is not None:
            return self._each.state()
        return {"parents": self._parts.states(self._parts.taken)}

    def restore(self, state: State) -> None:
        if not state.get("stop") and self._parts.restore(state["parents"]):
            self._each = None
            return
        self._read_each(state)

    def fields(self) -> Fields:
        return zip_fields(self._parts.parts)

    def most_before(self, state: State | None) -> int | None:
        inners = [None] * len(self._parts.parts) if state is None else state["parents"]
        return all_before(self._parts.parts, inners)

    def start(self) -> None:
        if self._each is not None:
            self._each.start()

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
