"""Reads many streams in turn as arrays of positions, where each position has an element.

The stream of a random-access dataset is its next position. So a thousand such streams, read in
turn, are an array of a thousand positions, and their next elements are evaluated together:

    next      4   7   5   5           before
    which     0   2   0   3           whose turn it is
    position  4   5   5   5           what is evaluated, in one go
    next      6   7   6   6           after them

This holds as long as each position has an element. If an element was dropped, fails or is beyond
the end, or if elements are so heavy that threads may pay, each stream is read by itself.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from bushel.core.block import Block
from bushel.core.block_size import SOON_SECONDS, BlockSize
from bushel.core.frozen import plain
from bushel.core.node import Node
from bushel.core.positions import Keys, Positions, occurrences
from bushel.core.state import State
from bushel.core.step import SideBySide, SideMarks
from bushel.run.allocator import keep_freed_memory
from bushel.run.choose import Inputs
from bushel.run.inline import compile_node
from bushel.run.kept_side_by_side import KeptSideBySide
from bushel.run.light_elements import LightElements
from bushel.run.mixtures_side_by_side import (
    MixedStreams,
    MixturesSideBySide,
    leaves_of,
    mixed_streams,
)
from bushel.run.position_part import Known, PositionPart, part_of, places_in
from bushel.run.thread_time import Stopwatch
from bushel.transforms.function import any_none

# The least number of streams; fewer are read one by one, in blocks that are worth their overhead.
FEWEST = 2
# The same for streams that drop elements, as the remaining ones have to be put together.
FEWEST_KEPT = 8
_SECONDS_OF_A_PART = 10e-6
_BYTES_AT_ONCE = 1 << 22


@plain
class _TakenOfEach(SideMarks):
    side: "PartsSideBySide"
    taken: Positions

    def at(self, counts: Positions) -> list[State]:
        return self.side.states_after(self.taken + counts)


class PartsSideBySide(SideBySide):
    """The next elements of many datasets, and the number taken of each."""

    def __init__(self, parts: Sequence[PositionPart]) -> None:
        keep_freed_memory()
        self.parts: Sequence[PositionPart] = parts
        self.taken: Positions = np.zeros(len(parts), dtype=np.int64)
        self.lengths = np.array([part.length for part in parts], dtype=np.int64)
        self.restarts = parts[0].restarts
        self._allow_nones = parts[0].allow_nones
        # Whether states are more than a number.
        self._has_more_to_tell = any(part.restarts or part.mixture is not None for part in parts)
        self._inputs = Inputs([part.node for part in parts], compile_node)
        # The sources are read one after the other, be it one element of each or ten.
        seconds = max(SOON_SECONDS, _SECONDS_OF_A_PART * len(parts))
        self._block_size = BlockSize(most_bytes=_BYTES_AT_ONCE, target_seconds=seconds)
        self._light = LightElements(len(parts))
        self._leaves_out = False
        # The next elements, if another part of the engine has evaluated them.
        self._given: Block | None = None

    @property
    def at_once(self) -> int:
        """The best number of elements to read together."""
        return self._block_size.size

    @property
    def is_suited(self) -> bool:
        """Whether reading together is possible and pays; else each stream is read by itself."""
        return self._light.are_light and not self._leaves_out

    def is_at_end(self, number: int, after: int = 0) -> bool:
        if self.restarts or not self.parts[number].ends:
            return False
        return bool(self.taken[number] + after >= self.lengths[number])

    def read(self, which: Keys, least: int = 1) -> Block:
        """The next elements of these datasets, in turn, up to one that cannot be read together.

        They may be fewer than possible, but not fewer than `least`. Reading does not take them.
        Each has the position that it has in its own dataset.
        """
        given, self._given = self._given, None
        if given is not None:
            return self._without_nones(given.part(0, min(len(which), len(given))))
        which = which[: max(least, self._block_size.size)]
        positions = self.taken.take(which) + occurrences(which)
        if self.restarts:
            positions %= self.lengths.take(which)
        else:
            beyond = positions >= self.lengths.take(which)
            if beyond.any():
                end = int(beyond.argmax())
                which, positions = which[:end], positions[:end]
        if not len(which):
            return Block([], positions)
        self._inputs.get_ready(which)
        stopwatch = Stopwatch()
        block = self._inputs.at(which, positions)
        seconds = stopwatch.read().seconds
        self._block_size.learn(len(which), seconds)
        self._light.learn(which, len(which), seconds)
        if len(block) and self._block_size.wants_sample():
            self._block_size.limit_bytes(block.part(0, 1).rows()[0])
        return self._without_nones(Block(block.values, positions[: len(block)]))

    def _without_nones(self, block: Block) -> Block:
        """The block up to the first element that was dropped."""
        values = block.values
        if self._allow_nones or not isinstance(values, list) or not any_none(values):
            return block
        self._leaves_out = True
        return block.part(0, next(at for at, row in enumerate(values) if row is None))

    def give(self, block: Block, seconds: float) -> None:
        """Takes a block for the next `read`, evaluated elsewhere in `seconds`."""
        self._given = block
        self._light.given(len(block), seconds)

    def take(self, which: Keys, positions: Positions) -> SideMarks:
        marks = self.marks()
        # A new array, as other code keeps the array with the previous numbers.
        self.taken = self.taken + np.bincount(which, minlength=len(self.parts))
        return marks

    def marks(self) -> SideMarks:
        return _TakenOfEach(self, self.taken)

    def states(self) -> list[State]:
        return self.states_after(self.taken)

    def states_after(self, taken: Positions) -> list[State]:
        """The states of the streams after `taken` elements of each."""
        if not self._has_more_to_tell:
            return [{"next_index": count} for count in taken.tolist()]
        return [part.state(count) for part, count in zip(self.parts, taken.tolist(), strict=True)]

    def restore(self, states: Sequence[State]) -> bool:
        """Restores the streams, if their states hold no more than a position."""
        if not self.is_suited:
            return False
        places = places_in(self.parts, states)
        if places is None or (not self.restarts and (places > self.lengths).any()):
            return False
        self.taken, self._given = places, None
        return True


def side_by_side(nodes: Iterable[Node | None], most_dropped: float | None) -> SideBySide | None:
    """Reads the streams of these nodes side by side, if that is possible.

    `most_dropped` is the share of elements that may be dropped; None if none may.
    """
    may_drop = most_dropped is not None
    parts: list[PositionPart | MixedStreams] = []
    known: Known = {}
    for node in nodes:
        part: PositionPart | MixedStreams | None = None
        if node is not None:
            part = part_of(node, may_drop, known)
            if part is None and may_drop:
                part = mixed_streams(node, known)
        if part is None:
            return None
        parts.append(part)
    leaves = leaves_of(parts)
    if len({part.allow_nones for part in leaves}) > 1:
        return None
    if len(leaves) == len(parts) and not any(part.drops for part in leaves):
        return PartsSideBySide([part.in_one() for part in leaves]) if len(parts) >= FEWEST else None
    if most_dropped is None or len(leaves) < FEWEST_KEPT or any(part.restarts for part in leaves):
        return None
    kept = KeptSideBySide(leaves, most_dropped)
    return kept if len(leaves) == len(parts) else MixturesSideBySide(parts, kept)
