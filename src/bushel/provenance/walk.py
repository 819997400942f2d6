"""`where` by arithmetic: from steps to records; reads nothing, calls no function.

step ─ batch ─ shuffle ─ source        steps 7 and 8
  7      14      3         key 3       each step is known by its positions in the input of the
         15      9         key 9       last step of the pipeline, these by theirs, and so on,
  8      16      0         key 0       all of them at once
         17      4         key 4
"""

from dataclasses import replace
from typing import Any

import numpy as np

from bushel.batch.unbatch import UnbatchNode
from bushel.core.frozen import plain
from bushel.core.node import (
    Choice,
    Drop,
    Each,
    Expand,
    Fold,
    Guard,
    Node,
    Order,
    Place,
    Source,
    Zip,
)
from bushel.core.places import ToStreamNode, droppers
from bushel.core.positions import Keys, Positions, grouped
from bushel.core.step import Step
from bushel.lanes.training_steps import StepOrder
from bushel.order.concatenate import ConcatenateNode
from bushel.order.repeat import INFINITE, RepeatNode, StreamRepeatNode
from bushel.order.sampled import SampledNode, SamplerOrder
from bushel.order.skip_steps import SkipStepsNode, steps_with_gaps
from bushel.order.take import LimitNode, SkipNode
from bushel.order.windows import StreamWindowsNode, count_windows
from bushel.order.zip import ZipNode
from bushel.provenance.records import NotKnown, Records, SourceRecords, joined, sources_of
from bushel.samplers import IndexSampler


@plain
class Trail:
    """Positions of a node; for each the element that it belongs to, and its row there."""

    positions: Positions
    owners: Keys
    rows: Keys
    # The row of the next batch that is meant, if the batch was taken apart again.
    picks: Keys | None = None
    # The number of rows that this batch had; if unknown, as many as it has members.
    widths: Keys | None = None
    lanes: Keys | None = None
    # The epoch of each, and its place in that epoch's order.
    epochs: Keys | None = None
    places: Keys | None = None

    def take(self, numbers: Keys) -> "Trail":
        """The same for some of them."""

        def some(values: Keys | None) -> Any:
            return None if values is None else values.take(numbers)

        return Trail(
            some(self.positions),
            some(self.owners),
            some(self.rows),
            some(self.picks),
            some(self.widths),
            some(self.lanes),
            some(self.epochs),
            some(self.places),
        )

    def at(self, positions: Positions, **fields: Any) -> "Trail":
        """The same at other positions: those of an input."""
        return replace(self, positions=positions, **fields)


def trail_of(positions: Positions) -> Trail:
    """Elements at these positions."""
    count = len(positions)
    return Trail(positions, np.arange(count), np.zeros(count, dtype=np.int64))


def records_of_steps(node: Node, steps: Positions) -> Records:
    """The records of elements of a stream; raises `NotKnown` if that takes more than arithmetic."""
    walk = Walk()
    walk.stream(node, trail_of(steps))
    return joined(walk.pieces, sources_of(node))


def records_of_positions(node: Node, positions: Positions) -> Records:
    """The records of elements of a random-access dataset, whether or not they are dropped."""
    walk = Walk()
    walk.down(node, trail_of(positions))
    return joined(walk.pieces, sources_of(node))


class Walk:
    """Walks from elements down to records, and collects them."""

    def __init__(self) -> None:
        self.pieces: list[SourceRecords] = []

    def stream(self, node: Node, trail: Trail) -> None:
        """Walks down from elements of a stream, by number."""
        while not isinstance(node, ToStreamNode):
            if isinstance(node, (ZipNode, ConcatenateNode)):
                return self._several(node, trail)
            if isinstance(node, SkipNode):
                trail = trail.at(trail.positions + node.count)
            elif isinstance(node, SkipStepsNode):
                trail = trail.at(steps_with_gaps(node.gaps, trail.positions))
            elif isinstance(node, StreamRepeatNode):
                epochs, offsets = np.divmod(trail.positions, known_length(node.input))
                trail = trail.at(offsets, epochs=epochs)
            elif isinstance(node, StreamWindowsNode):
                trail = _windows(node, trail)
            elif isinstance(node, Fold) and node.one_per_group:
                trail = _groups(node, trail, known_length(node.input))
            elif isinstance(node, Guard) and node.drops:
                raise NotKnown(f"`{node.label}` leaves out elements that fail")
            elif not isinstance(node, (Each, Place, Guard, LimitNode)):
                raise NotKnown(f"it depends on what `{node.label}` makes of the elements before it")
            (node,) = node.inputs
        dropping = None if node.allow_nones else next(iter(droppers(node.input)), None)
        if dropping is not None:
            raise NotKnown(f"`{dropping.label}` may leave elements out")
        self.down(node.input, trail)

    def _several(self, node: Node, trail: Trail) -> None:
        if isinstance(node, ZipNode):
            for each in node.inputs:
                self.stream(each, trail)
            return
        lengths = np.array([known_length(part) for part in node.inputs], dtype=np.int64)
        ends = lengths.cumsum()
        for number, mine in grouped(ends.searchsorted(trail.positions, side="right")):
            part = trail.take(mine)
            before = int(ends[number] - lengths[number])
            self.stream(node.inputs[number], part.at(part.positions - before))

    def down(self, node: Node, trail: Trail) -> None:
        """Walks down from positions of a random-access dataset."""
        while True:
            if not isinstance(node, (Each, Drop, Guard, Place, Fold, RepeatNode)):
                trail = _in_order(node, trail)
            if isinstance(node, Source):
                return self._collect(node, trail)
            if isinstance(node, Choice):
                which, where = node.locate(trail.positions)
                for number, mine in grouped(which):
                    self.down(node.inputs[number], trail.take(mine).at(where.take(mine)))
                return
            if isinstance(node, Zip):
                for part in node.inputs:
                    self.down(part, trail)
                return
            if isinstance(node, Order):
                if isinstance(node, RepeatNode) and trail.epochs is None:
                    trail = trail.at(trail.positions, epochs=trail.positions // node.input.length())
                trail = trail.at(node.locate(trail.positions))
                if isinstance(node, StepOrder):
                    trail.lanes = (trail.positions % node.lanes).astype(np.int64)
            elif isinstance(node, Expand):
                whole, places = np.divmod(trail.positions, node.fan_out)
                trail = trail.at(whole)
                if isinstance(node, UnbatchNode):
                    trail.picks, trail.widths = places.astype(np.int64), None
            elif isinstance(node, Fold):
                trail = _groups(node, trail, node.input.length())
            elif not isinstance(node, (Each, Drop, Guard, Place)):
                raise NotKnown(f"`{node.label}` does not tell where its elements come from")
            (node,) = node.inputs

    def _collect(self, node: Source, trail: Trail) -> None:
        keys: Any
        if isinstance(node, SampledNode):
            steps = node.keys(trail.positions)
            keys = [node.sampler[step].record_key for step in steps.tolist()]
            keys = np.array(keys, dtype=np.int64 if all(map(_is_whole, keys)) else object)
        else:
            keys = node.keys(trail.positions)
        self.pieces.append(
            SourceRecords(
                node, trail.owners, trail.rows, keys, trail.lanes, trail.epochs, trail.places
            )
        )


def _in_order(node: Node, trail: Trail) -> Trail:
    """Notes the epoch, and the place in its order, at the first node that orders positions.

    Epochs are those of the last `repeat`; without one, those of the source.
    """
    length, has_epochs = node.length(), isinstance(node, Source)
    if isinstance(node, SamplerOrder) and isinstance(node.sampler, IndexSampler):
        length, has_epochs = node.sampler.records_in_shard, True
    if trail.places is not None and not has_epochs:
        return trail
    epochs, places = np.divmod(trail.positions, max(1, length))
    if trail.epochs is None and has_epochs:
        trail = trail.at(trail.positions, epochs=epochs)
    return trail if trail.places is not None else trail.at(trail.positions, places=places)


def _is_whole(key: Any) -> bool:
    return isinstance(key, (int, np.integer))


def _groups(node: Fold, trail: Trail, length: int) -> Trail:
    """Converts groups to the neighbours from which they are made."""
    size = node.group_size
    groups = node.groups_in(length)
    if not groups:
        raise NotKnown(f"`{node.label}` has no element")
    epochs, numbers = np.divmod(trail.positions, groups)
    starts = numbers * size
    first, counts = epochs * length + starts, np.minimum(length - starts, size)
    if trail.picks is None:
        return _spread(trail, first, counts, size)
    # Where a function made more or fewer rows, a row may be of any member.
    is_member = counts == (counts if trail.widths is None else trail.widths)
    picked = replace(trail, picks=None, widths=None)
    if is_member.all():
        return picked.at(first + trail.picks)
    first = first + np.where(is_member, trail.picks, 0)
    return _spread(picked, first, np.where(is_member, 1, counts), 1, within_rows=True)


def _windows(node: StreamWindowsNode, trail: Trail) -> Trail:
    """Converts windows of a stream to the neighbours from which they are made."""
    length = known_length(node.input)
    whole, rest = count_windows(length, node.size, node.stride, node.drop_remainder)
    counts = np.where(trail.positions < whole, node.size, rest)
    return _spread(trail, trail.positions * node.stride, counts, node.size)


def _spread(
    trail: Trail, starts: Positions, counts: Keys, size: int, within_rows: bool = False
) -> Trail:
    """Replaces each element by `counts` neighbours from `starts` on.

    They are rows of it; with `within_rows`, parts of its row.
    """
    counts = counts.astype(np.int64)
    within = np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)
    spread = trail.take(np.arange(len(counts)).repeat(counts))
    if not within_rows:
        spread.rows = spread.rows * size + within
    return spread.at(starts.repeat(counts) + within)


def length_of(node: Node, passes_drops: bool = False) -> int | None:
    """The number of elements of a stream; None if only reading tells.

    With `passes_drops`, the number without dropping.

    >>> from bushel import MapDataset
    >>> length_of(MapDataset.range(10).to_iter_dataset().batch(4)._stream_node())
    3
    """
    # A loop, as chains may be longer than calls may be nested.
    *steps, first = chain_to_dataset(node)
    if isinstance(first, ToStreamNode):
        sure = passes_drops or first.allow_nones or not any(droppers(first.input))
        length = first.input.length() if sure else None
    elif isinstance(first, Step):
        length = first.length_after([length_of(part, passes_drops) for part in first.inputs])
    else:
        length = None
    for step in reversed(steps):
        length = _length_after(step, length, passes_drops)
    return length


def chain_to_dataset(node: Node) -> list[Node]:
    """A step of a stream and those before it, up to a dataset or to several streams."""
    chain = [node]
    while not isinstance(node, ToStreamNode) and len(node.inputs) == 1:
        (node,) = node.inputs
        chain.append(node)
    return chain


def _length_after(step: Node, length: int | None, passes_drops: bool) -> int | None:
    if isinstance(step, StreamRepeatNode) and step.epochs is None and length:
        return INFINITE
    if isinstance(step, Step):
        return step.length_after([length])
    if passes_drops and isinstance(step, (Drop, Guard)):
        return length
    if length is None or isinstance(step, (Drop, Expand)):
        return None
    if isinstance(step, Fold):
        return step.groups_in(length) if step.one_per_group else length
    return None if isinstance(step, Guard) and step.drops else length


def known_length(node: Node, passes_drops: bool = False) -> int:
    """The same; raises if it is unknown."""
    length = length_of(node, passes_drops)
    if length is None:
        raise NotKnown("how many elements there are is only known by reading them")
    return length
