"""Reads many streams in turn as arrays of positions where filters drop some of these.

A filter drops elements, so the position of a stream's next element is unknown before it is
evaluated. So elements that were evaluated and not yet taken wait, stream by stream. A stream whose
turn comes finds its element there; elements that are missing are evaluated for all streams at once:

    which     0   2   0   3           whose turn it is
    ready     0: 4 7 9   1: 6         positions of the elements that are left
              2: 5       3:           stream 3 has none ready: more of it is evaluated
    position  4   5   7   8
    next      8   7   6   9           the positions after those: what states say

If an element fails, or takes so long that threads may pay, each stream is read by itself.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from bushel.core.block import Block, join, merge_columns
from bushel.core.block_size import MOST_ELEMENTS, SOON_SECONDS, BlockSize
from bushel.core.frozen import plain
from bushel.core.node import Node, walk
from bushel.core.positions import Keys, Positions, occurrences
from bushel.core.state import State
from bushel.core.step import SideBySide, SideMarks
from bushel.run.allocator import keep_freed_memory
from bushel.run.choose import Inputs
from bushel.run.inline import compile_node
from bushel.run.light_elements import LightElements
from bushel.run.many import Many, compile_many
from bushel.run.position_part import PositionPart, places_in
from bushel.run.steps_together import StepsTogether
from bushel.run.thread_time import Stopwatch
from bushel.transforms.function import any_none

_SECONDS_OF_A_PART = 10e-6
_MOST_OF_A_PART = 8
_BYTES_AT_ONCE = 1 << 22
# Up to this number, datasets are evaluated one by one with many elements each, unless they are
# lanes of the same dataset.
_FEW = 16
# The most positions evaluated together, as filters may drop nearly all.
_MOST_AT_ONCE = 1 << 15
# The weight of earlier counts, a read later, and the least share of elements that is assumed to
# remain.
_LATELY = 0.9
_LEAST_SHARE = 0.01
# Positions of a stream after which the share of dropped elements is checked, as in `DropQuota`.
_WINDOW = 1000


@plain
class _PlacesOfEach(SideMarks):
    side: "KeptSideBySide"
    # The next position of each stream before some elements; the stream of each of these elements,
    # and its position.
    places: Positions
    which: Keys
    positions: Positions

    def at(self, counts: Positions) -> list[State]:
        taken = occurrences(self.which) < counts.take(self.which)
        return self.side.states_at(_after(self.places, self.which[taken], self.positions[taken]))


def _after(places: Positions, which: Keys, positions: Positions) -> Positions:
    """The next position of each stream after these elements."""
    # A copy, as other code keeps the array with the previous positions.
    places = places.copy()
    places[which] = positions + 1  # For several elements of one stream, the last one counts.
    return places


class KeptSideBySide(SideBySide):
    """The next elements of many streams, and the position after the last one taken of each.

    `most_dropped` is the share of dropped elements above which the user is to be told.
    """

    def __init__(self, parts: Sequence[PositionPart], most_dropped: float) -> None:
        keep_freed_memory()
        self.parts: Sequence[PositionPart] = parts
        self._most_dropped = most_dropped
        self._lengths = np.array([part.length for part in parts], dtype=np.int64)
        self._inputs = _inputs_of([part.node for part in parts])
        self._steps = StepsTogether([part.steps for part in parts], parts[0].allow_nones)
        # In a mixture, another element of the same part takes the place of a dropped one.
        self._are_mixtures = np.array([part.mixture is not None for part in parts])
        seconds = max(SOON_SECONDS, _SECONDS_OF_A_PART * len(parts))
        most = max(MOST_ELEMENTS, _MOST_OF_A_PART * len(parts))
        self._block_size = BlockSize(most, most_bytes=_BYTES_AT_ONCE, target_seconds=seconds)
        self._light = LightElements(len(parts))
        self._fails = False
        # Recent positions evaluated, and elements that remained of them.
        self._asked = self._came = 1.0
        # The same for each stream, of its last thousand or so.
        self._seen, self._kept = np.zeros((2, len(parts)), dtype=np.int64)
        self._drops_nearly_all = False
        self._go_to(np.zeros(len(parts), dtype=np.int64))

    def _go_to(self, places: Positions) -> None:
        self._places = places
        # The position up to which each stream was evaluated.
        self._read_to = places
        self._ready = _ReadyElements(len(places))

    @property
    def at_once(self) -> int:
        return self._block_size.size

    @property
    def is_suited(self) -> bool:
        return self._light.are_light and not self._fails and not self._drops_nearly_all

    def is_at_end(self, number: int, after: int = 0) -> bool:
        is_read = bool(self._read_to[number] >= self._lengths[number])
        return is_read and self.parts[number].ends and bool(self._ready.counts[number] <= after)

    def read(self, which: Keys, least: int = 1) -> Block:
        which = which[: max(least, self._block_size.size)]
        stopwatch = Stopwatch()
        self._make_ready(np.bincount(which, minlength=len(self.parts)))
        nth = occurrences(which)
        missing = nth >= self._ready.counts.take(which)
        if missing.any():
            end = int(missing.argmax())
            which, nth = which[:end], nth[:end]
        block = self._ready.at(which, nth)
        self._block_size.learn(len(which), stopwatch.read().seconds)
        if len(block) and self._block_size.wants_sample():
            self._block_size.limit_bytes(block.part(0, 1).rows()[0])
        return block

    def _make_ready(self, wanted: Positions) -> None:
        """Evaluates until `wanted` elements of each stream are ready, as far as it has them."""
        more = 1
        while not self._fails:
            missing = wanted - self._ready.counts
            lacking = np.flatnonzero((missing > 0) & (self._read_to < self._lengths))
            if not len(lacking):
                return
            share = min(1.0, max(_LEAST_SHARE, self._came / self._asked))
            wants = missing.take(lacking)
            if share < 1.0:
                # A few more than will probably do: another round costs more than these.
                wants = (wants + np.sqrt(wants)) / share * more
            room = self._lengths.take(lacking) - self._read_to.take(lacking)
            counts = np.minimum(np.ceil(wants).astype(np.int64), room)
            fits = counts.cumsum() <= _MOST_AT_ONCE
            fits[0] = True
            counts[0] = min(int(counts[0]), _MOST_AT_ONCE)
            self._evaluate(lacking[fits], counts[fits])
            # The streams that still lack elements have filters that drop more than the average.
            more = min(2 * more, 64)

    def _evaluate(self, numbers: Keys, counts: Positions) -> None:
        """Evaluates the next positions of these streams: `counts` of each."""
        which = numbers.repeat(counts)
        starts: Positions = np.subtract(self._read_to.take(numbers), counts.cumsum() - counts)
        positions = starts.repeat(counts) + np.arange(len(which), dtype=np.int64)
        many = self._inputs()
        stopwatch = Stopwatch()
        block = many.at(which, positions)
        kept = None
        if block.failure is None and not self._lacks_some(which, block):
            kept = self._steps.apply(which, block)
        self._light.learn(which, len(which), stopwatch.read().seconds)
        if kept is None:
            # The failure comes again when its stream is read by itself.
            self._fails = True
            return
        whose, left = kept
        self._read_to = self._read_to.copy()
        self._read_to[numbers] += counts
        self._ready.add(whose, left)
        self._asked = self._asked * _LATELY + len(which)
        self._came = self._came * _LATELY + len(left)
        self._look_at_dropped(numbers, counts, np.bincount(whose, minlength=len(self.parts)))

    def _lacks_some(self, which: Keys, block: Block) -> bool:
        """Whether an element is missing in a mixture, where another one takes its place."""
        rows = block.values
        if not isinstance(rows, list) or not any_none(rows) or not self._are_mixtures.any():
            return False
        left_out = np.array([row is None for row in rows], dtype=bool)
        return bool(self._are_mixtures.take(which[left_out]).any())

    def _look_at_dropped(self, numbers: Keys, counts: Positions, kept: Positions) -> None:
        self._seen[numbers] += counts
        self._kept += kept
        full = np.flatnonzero(self._seen >= _WINDOW)
        if len(full):
            dropped = 1 - self._kept[full] / self._seen[full]
            if (dropped >= self._most_dropped).any():
                self._drops_nearly_all = True  # The streams, read by themselves, name the filter.
            self._seen[full] = self._kept[full] = 0

    def take(self, which: Keys, positions: Positions) -> SideMarks:
        marks = _PlacesOfEach(self, self._places, which, positions)
        self._places = _after(self._places, which, positions)
        self._ready.take(np.bincount(which, minlength=len(self.parts)))
        return marks

    def marks(self) -> SideMarks:
        nothing = np.empty(0, dtype=np.int64)
        return _PlacesOfEach(self, self._places, nothing, nothing)

    def states(self) -> list[State]:
        return self.states_at(self._places)

    def states_at(self, places: Positions) -> list[State]:
        """The states of the streams, given the next position of each."""
        return [part.state(place) for part, place in zip(self.parts, places.tolist(), strict=True)]

    def restore(self, states: Sequence[State]) -> bool:
        if not self.is_suited:
            return False
        places = places_in(self.parts, states)
        if places is None or (places > self._lengths).any():
            return False
        self._go_to(places)
        self._seen[:] = self._kept[:] = 0
        return True


def _inputs_of(nodes: Sequence[Node]) -> Callable[[], Many | Inputs]:
    """Returns the evaluator of these datasets, made on first use."""
    if len(nodes) <= _FEW and not _have_some_in_common(nodes):
        inputs = Inputs(nodes, compile_node)
        return lambda: inputs
    return cache(lambda: compile_many(nodes, compile_node))


def _have_some_in_common(nodes: Sequence[Node]) -> bool:
    """Whether several of these datasets read from the same one, as lanes do."""
    met: set[int] = set()
    for node in nodes:
        own = {id(step) for step in walk(node)}
        if met & own:
            return True
        met |= own
    return False


class _ReadyElements:
    """Elements of many streams that were not taken yet, in order, stream by stream."""

    def __init__(self, streams: int) -> None:
        self._block = Block([], np.empty(0, dtype=np.int64))
        # Indices of the elements in the block, ordered by stream; and for each stream its first
        # index in that array, and the number of its elements.
        self._order = np.empty(0, dtype=np.int64)
        self._starts, self.counts = np.zeros((2, streams), dtype=np.int64)

    def at(self, which: Keys, nth: Keys) -> Block:
        """The `nth` ready elements of these streams."""
        return self._block.select(self._order.take(self._starts.take(which) + nth))

    def take(self, counts: Positions) -> None:
        """Takes the first `counts` elements of each stream."""
        self._starts += counts
        self.counts -= counts

    def add(self, which: Keys, block: Block) -> None:
        """Appends elements to those that the streams have."""
        ends = self.counts.cumsum()
        skipped: Keys = np.subtract(self._starts, ends - self.counts)
        remaining = skipped.repeat(self.counts) + np.arange(int(ends[-1]), dtype=np.int64)
        if len(remaining):
            left = self._block.select(self._order.take(remaining))
            block = _joined(left, block)
            which = np.concatenate([np.arange(len(self.counts)).repeat(self.counts), which])
        self._block, self._order = block, which.argsort(kind="stable")
        self.counts = np.bincount(which, minlength=len(self.counts))
        self._starts = self.counts.cumsum() - self.counts


def _joined(left: Block, more: Block) -> Block:
    """Joins two blocks; copies remaining arrays, so that they keep no larger ones in memory."""
    if not len(more):
        return left
    joined = join([left, more])
    if isinstance(joined.values, list):
        places = np.arange(len(joined))
        pieces = [(places[: len(left)], left), (places[len(left) :], more)]
        columns = merge_columns(len(joined), pieces)
        if columns is not None:
            return Block(columns, joined.positions)
    return joined
