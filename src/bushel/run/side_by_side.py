"""Many streams of positions as arrays: of each only how far it was read.

A stream of a random-access dataset is its next position. So a thousand of them that are read in
turn are an array of a thousand positions, and their next elements are evaluated together:

    next      4   7   5   5           before
    which     0   2   0   3           whose turn it is
    position  4   5   5   5           what is evaluated, in one go
    next      6   7   6   6           after them

That holds as long as each position has an element. Where one was left out, fails or is beyond the
end, and where elements are so heavy that threads may pay, each stream is read by itself.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from bushel.core.block import Block
from bushel.core.frozen import plain
from bushel.core.node import Each, Guard, Node, leaves_out, walk, with_inputs
from bushel.core.places import OptionsNode, SeedNode, ToStreamNode
from bushel.core.positions import Keys, Positions, distinct
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.core.step import SideBySide
from bushel.core.tune import SOON_SECONDS, BlockSize
from bushel.order.repeat import EpochsNode, epoch_fields
from bushel.run.allocator import keep_freed_memory
from bushel.run.choose import Inputs
from bushel.run.inline import compile_node
from bushel.run.long_chains import least_block
from bushel.run.positional import position_fields
from bushel.run.spent import Stopwatch
from bushel.transforms.function import any_none

# With fewer streams, each is read in blocks that are worth what a block costs.
FEWEST = 2
# What reading a stream by itself costs, roughly. Elements that take longer are read like that:
# then it matters less than whether they have threads. Now and then a part takes longer (a file is
# opened, an order computed), to begin with and when it has given many light elements; and it is
# only after a while that it is sure.
_LIGHT_SECONDS = 20e-6
_SECONDS_NOW_AND_THEN = 2e-3
_CALL_SECONDS = 500e-6
_SURE_SECONDS = 0.05
_SECONDS_OF_A_PART = 10e-6
_BYTES_AT_ONCE = 1 << 22


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

    def state(self, taken: int) -> State:
        """The state of its stream after `taken` elements."""
        if not self.restarts:
            return {"next_index": taken}
        # The next epoch begins with its first element.
        epoch = max(0, taken - 1) // self.length
        index = taken - epoch * self.length
        return {"parent": {"next_index": index}, "epoch": epoch, "in_epoch": index}

    def fields(self) -> Fields:
        """What a state of its stream has."""
        positions = _Positions(self.length)
        return epoch_fields(positions) if self.restarts else positions.fields()

    def most_before(self, state: State | None) -> int | None:
        """How many elements can have come before a state (see `Stream`)."""
        if not self.restarts:
            return _Positions(self.length).most_before(state)
        # Where an epoch had none, as when all of them failed, it ends with any number of errors.
        if state is None or not state["in_epoch"]:
            return None
        count: int = state["epoch"] * self.length + state["parent"]["next_index"]
        return count

    def taken(self, state: State) -> int | None:
        """How many elements were taken in a state, if that is all it says."""
        count: int = state["in_epoch"] if self.restarts else state["next_index"]
        if self.restarts:
            count += state["epoch"] * self.length
        return count if count <= _FURTHEST and self.state(count) == state else None


# Far beyond what anybody reads, and sums of it are still no larger than a position may be.
_FURTHEST = 1 << 61


def part_of(node: Node) -> PositionPart | None:
    """What a stream is read from, where it gives one element for each position."""
    restarts = isinstance(node, EpochsNode)
    steps: list[Node] = []
    if restarts:
        node = node.inputs[0]
    while not isinstance(node, ToStreamNode):
        if isinstance(node, Each) and not node.uses_positions and not node.stays_here:
            steps.append(node)
        elif not isinstance(node, (SeedNode, OptionsNode)):
            return None
        node = node.inputs[0]
    base, length = node.input, node.input.length()
    if restarts and not 0 < length <= _FURTHEST:
        return None
    if any(isinstance(step, Guard) or leaves_out(step) for step in walk(base)):
        return None
    if least_block(base) > 1:
        return None  # Its source wants to be asked for many at once.
    for step in reversed(steps):
        base = with_inputs(step, [base])
    return PositionPart(base, length, restarts, node.allow_nones)


def _parts_of(nodes: Iterable[Node | None]) -> list[PositionPart] | None:
    """The same for several, where it holds for all of them and there are enough."""
    parts: list[PositionPart] = []
    for node in nodes:
        part = None if node is None else part_of(node)
        if part is None or part.allow_nones != (parts[0] if parts else part).allow_nones:
            return None
        parts.append(part)
    return parts if len(parts) >= FEWEST else None


class PartsSideBySide(SideBySide):
    """The next elements of many datasets, and how far each was read."""

    def __init__(self, parts: Sequence[PositionPart]) -> None:
        keep_freed_memory()
        self.parts: Sequence[PositionPart] = parts
        self.taken: Positions = np.zeros(len(parts), dtype=np.int64)
        self.lengths = np.array([part.length for part in parts], dtype=np.int64)
        self.restarts = parts[0].restarts
        self._allow_nones = parts[0].allow_nones
        self._inputs = Inputs([part.node for part in parts], compile_node)
        # Each of the sources is asked by itself, be it for one element or for ten.
        seconds = max(SOON_SECONDS, _SECONDS_OF_A_PART * len(parts))
        self._block_size = BlockSize(most_bytes=_BYTES_AT_ONCE, target_seconds=seconds)
        # The seconds that elements took beyond what light ones take; below 0, what they may take.
        self._excess = 0.0
        self._most_credit = _SECONDS_NOW_AND_THEN * len(parts)
        self._touched = np.zeros(len(parts), dtype=bool)
        self._leaves_out = False
        # The next elements, where somebody else has made them.
        self._given: Block | None = None

    @property
    def at_once(self) -> int:
        """How many elements had better be read together."""
        return self._block_size.size

    @property
    def is_suited(self) -> bool:
        """Whether elements are as they should be; else each stream is better read by itself."""
        return self._excess <= _SURE_SECONDS and not self._leaves_out

    def is_at_end(self, number: int) -> bool:
        """Whether one of them has no further element."""
        return not self.restarts and bool(self.taken[number] >= self.lengths[number])

    def read(self, which: Keys, least: int = 1) -> Block:
        """The next elements of these, in turn, up to one that cannot be had like this.

        They may be fewer than could be, too, but not than `least`. They are not taken by that.
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
        self._learn(which, stopwatch.read().seconds)
        if len(block) and self._block_size.wants_sample():
            self._block_size.limit_bytes(block.part(0, 1).rows()[0])
        return self._without_nones(Block(block.values, positions[: len(block)]))

    def _without_nones(self, block: Block) -> Block:
        """The same up to an element that was left out."""
        values = block.values
        if self._allow_nones or not isinstance(values, list) or not any_none(values):
            return block
        self._leaves_out = True
        return block.part(0, next(at for at, row in enumerate(values) if row is None))

    def give(self, block: Block, seconds: float) -> None:
        """Takes what the next `read` is to find, made by somebody else in so many seconds."""
        self._given = block
        self._count_excess(seconds - len(block) * _LIGHT_SECONDS)

    def _learn(self, which: Keys, seconds: float) -> None:
        self._block_size.learn(len(which), seconds)
        beyond = seconds - _CALL_SECONDS - len(which) * _LIGHT_SECONDS
        new = which[~self._touched.take(which)]
        if len(new):
            self._touched[new] = True
            beyond -= len(distinct(new)) * _SECONDS_NOW_AND_THEN
        self._count_excess(beyond)

    def _count_excess(self, seconds: float) -> None:
        self._excess = max(-self._most_credit, self._excess + seconds)

    def take(self, counts: Positions) -> None:
        """Takes `counts` elements of the streams, one number for each."""
        # Another array: who knows where they were keeps the old one.
        self.taken = self.taken + counts

    def states(self, taken: Positions) -> list[State]:
        """The states of the streams after `taken` elements of each."""
        if not self.restarts:
            return [{"next_index": count} for count in taken.tolist()]
        return [part.state(count) for part, count in zip(self.parts, taken.tolist(), strict=True)]

    def restore(self, states: Sequence[State]) -> bool:
        """Goes to states of the streams, where these say no more than how much was taken."""
        if not self.is_suited:
            return False
        pairs = zip(self.parts, states, strict=True)
        taken = [part.taken(state) for part, state in pairs]
        counts = [count for count in taken if count is not None]
        if len(counts) < len(taken):
            return False
        places = np.array(counts, dtype=np.int64)
        if not self.restarts and (places > self.lengths).any():
            return False
        self.taken, self._given = places, None
        return True


def side_by_side(nodes: Iterable[Node | None]) -> SideBySide | None:
    """Reads the streams of these nodes side by side, where they can be."""
    parts = _parts_of(nodes)
    return None if parts is None else PartsSideBySide(parts)


def occurrences(which: Keys) -> Positions:
    """How often each number occurs before the place where it is.

    >>> occurrences(np.array([7, 3, 7, 7]))
    array([0, 0, 1, 2])
    """
    order = which.argsort(kind="stable")
    ordered = which.take(order)
    places = np.arange(len(which))
    is_first = np.ones(len(which), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    firsts = np.maximum.accumulate(np.where(is_first, places, 0))
    counts = np.empty_like(places)
    counts[order] = places - firsts
    return counts
