"""`when` by arithmetic: from a record to its steps, by inverting orders, some epochs at a time."""

from collections.abc import Callable

import numpy as np

from bushel.batch.unbatch import UnbatchNode
from bushel.core.frozen import plain
from bushel.core.node import (
    Choice,
    Drop,
    Each,
    Expand,
    Fold,
    Found,
    Guard,
    Node,
    Order,
    Place,
    Source,
    Zip,
)
from bushel.core.places import ToStreamNode, droppers
from bushel.core.positions import Keys, Positions, before
from bushel.order.concatenate import ConcatenateNode
from bushel.order.repeat import RepeatNode, StreamRepeatNode
from bushel.order.sampled import SampledNode, SamplerOrder
from bushel.order.skip_steps import SkipStepsNode, steps_with_gaps, steps_without_gaps
from bushel.order.take import LimitNode, SkipNode
from bushel.order.windows import OverlapNode, StreamWindowsNode
from bushel.order.zip import ZipNode
from bushel.provenance.records import NotKnown, inputs_of
from bushel.provenance.walk import known_length
from bushel.samplers import IndexSampler
from bushel.sources.memory import RangeNode

# The most epochs that are searched together. A shuffle of an endless dataset has more: a record may
# be anywhere in it.
_MOST_EPOCHS = 1 << 20
# The most steps of a user's own sampler that are asked for one by one.
_MOST_ASKED = 1 << 20


@plain
class Hits:
    """Positions of a node that have the record, with its row and its epoch in each."""

    places: Positions
    rows: Keys
    epochs: Keys
    # The number of rows in an element.
    width: int = 1

    def moved(self, found: Found) -> "Hits":
        """The same as positions of a later step, which may have each several times, or never."""
        places, which = found
        return Hits(places, self.rows.take(which), self.epochs.take(which), self.width)


def _nothing() -> Hits:
    none = np.empty(0, dtype=np.int64)
    return Hits(none, none, none)


def _together(hits: list[Hits]) -> Hits:
    if len(hits) == 1:
        return hits[0]
    if not hits:
        return _nothing()
    return Hits(
        np.concatenate([some.places for some in hits]),
        np.concatenate([some.rows for some in hits]),
        np.concatenate([some.epochs for some in hits]),
        max(some.width for some in hits),
    )


class Search:
    """Looks for one record of a source in the steps of a pipeline."""

    def __init__(self, node: Node, source: Node, key: int, passes_drops: bool = False) -> None:
        """`passes_drops` assumes that nothing is dropped: real steps are then earlier."""
        self._key, self._source, self._passes_drops = key, source, passes_drops
        # The steps between the source and the end: only these are searched.
        self._on_the_way: set[int] = set()
        self._mark(node)

    def _mark(self, node: Node) -> bool:
        # A loop over the steps of a chain, as there may be more than calls may be nested.
        chain = [node]
        while len(node.inputs) == 1:
            (node,) = node.inputs
            chain.append(node)
        found = node is self._source
        if not found and not isinstance(node, Source):
            for part in inputs_of(node):
                found = self._mark(part) or found
        if found:
            self._on_the_way.update(map(id, chain))
        return found

    def stream(self, node: Node, stop: int) -> Hits:
        """The elements among the first `stop` of a stream that have the record."""
        steps: list[tuple[Node, int]] = []
        while not isinstance(node, ToStreamNode):
            if isinstance(node, (ZipNode, ConcatenateNode)):
                break
            steps.append((node, stop))
            stop = self._stop_before(node, stop)
            (node,) = node.inputs
        if isinstance(node, ToStreamNode):
            dropping = None if node.allow_nones else next(iter(droppers(node.input)), None)
            if dropping is not None and not self._passes_drops:
                raise NotKnown(f"`{dropping.label}` may leave elements out")
            hits = self.positions(node.input, min(stop, node.input.length()))
        else:
            hits = self._several(node, stop)
        for step, until in reversed(steps):
            hits = self._after(step, hits, until)
        return hits

    def _length(self, node: Node) -> int:
        return known_length(node, self._passes_drops)

    def _stop_before(self, node: Node, stop: int) -> int:
        """The number of input elements that the first `stop` elements of a step need."""
        if isinstance(node, LimitNode):
            return min(stop, node.count)
        if isinstance(node, SkipNode):
            return stop + node.count
        if isinstance(node, SkipStepsNode) and not self._passes_drops:
            return int(steps_with_gaps(node.gaps, stop))
        if isinstance(node, StreamRepeatNode):
            return min(stop, self._length(node.input))
        if isinstance(node, StreamWindowsNode):
            return stop * node.stride + node.size
        if isinstance(node, Fold) and node.one_per_group:
            return stop * node.group_size
        if isinstance(node, Drop) and self._passes_drops:
            return stop
        if isinstance(node, Guard) and node.drops and not self._passes_drops:
            raise NotKnown(f"`{node.label}` leaves out elements that fail")
        if isinstance(node, (Each, Place, Guard)):
            return stop
        raise NotKnown(f"it depends on what `{node.label}` makes of the elements before it")

    def _after(self, node: Node, hits: Hits, stop: int) -> Hits:
        if isinstance(node, SkipNode):
            return hits.moved(_between(hits.places - node.count, 0, stop))
        if isinstance(node, SkipStepsNode):
            hits = hits.moved(steps_without_gaps(node.gaps, hits.places))
        if isinstance(node, StreamRepeatNode):
            again = RepeatNode(_OnlyCounted(self._length(node.input)), node.epochs, False)
            moved = hits.moved(again.find(hits.places, stop))
            moved.epochs = moved.places // self._length(node.input)
            return moved
        if isinstance(node, StreamWindowsNode):
            laid = _OnlyCounted(self._length(node.input))
            overlap = OverlapNode(laid, node.size, node.stride, node.drop_remainder)
            return _folded(hits.moved(overlap.find(hits.places, overlap.length())), node.size)
        if isinstance(node, Fold):
            groups = node.groups_in(self._length(node.input))
            hits = _folded(hits, node.group_size)
            return hits.moved(before(hits.places, min(stop, groups)))
        return hits.moved(before(hits.places, stop))

    def _several(self, node: Node, stop: int) -> Hits:
        found: list[Hits] = []
        start = 0
        for part in node.inputs:
            if isinstance(node, ZipNode):
                if id(part) in self._on_the_way:
                    found.append(self.stream(part, stop))
                continue
            if id(part) in self._on_the_way and start < stop:
                hits = self.stream(part, min(stop - start, self._length(part)))
                hits.places = hits.places + start
                found.append(hits)
            start += self._length(part) if start < stop else 0
        return _together(found)

    def positions(self, node: Node, stop: int) -> Hits:
        """The positions before `stop` of a random-access dataset that have the record."""
        steps: list[tuple[Node, int]] = []
        while not isinstance(node, (Source, Choice, Zip)):
            steps.append((node, stop))
            stop = _reach(node, stop)
            (node,) = node.inputs
        hits = self._first(node, stop)
        for step, until in reversed(steps):
            hits = _backwards(step, hits, until)
        return hits

    def _first(self, node: Node, stop: int) -> Hits:
        if isinstance(node, Source):
            return self._in_source(node, stop)
        found: list[Hits] = []
        for number, part in enumerate(node.inputs):
            if id(part) not in self._on_the_way:
                continue
            if not isinstance(node, Choice):
                found.append(self.positions(part, stop))
                continue
            reach = node.reach(number, stop)
            hits = _nothing() if reach is None else self.positions(part, reach)
            moved = None if reach is None else node.find(number, hits.places, stop)
            if moved is None:
                raise NotKnown(f"`{node.label}` does not tell where its elements go")
            found.append(hits.moved(moved))
        return _together(found)

    def _in_source(self, node: Source, stop: int) -> Hits:
        if node is not self._source:
            return _nothing()
        if isinstance(node, SampledNode):
            return self._in_sampler(node, stop)
        length = node.length()
        epochs = -(-stop // length)
        if epochs > _MOST_EPOCHS:
            raise NotKnown(
                "a shuffle stands after `repeat()`, which is endless: a record may come anywhere "
                "in it. Put the shuffle first"
            )
        numbers = np.arange(epochs)
        hits = Hits(self._key + numbers * length, np.zeros(epochs, np.int64), numbers)
        return hits.moved(before(hits.places, stop))

    def _in_sampler(self, node: SampledNode, stop: int) -> Hits:
        stop = min(stop, node.count)
        if node.by_block:
            key = np.array([self._key])
            found = node.sampler.find(key, node.shard_index, node.shard_count, stop)
        else:
            if stop > _MOST_ASKED:
                raise NotKnown("the sampler is your own, and has too many steps to ask for each")
            keys = (node.sampler[step].record_key for step in node.keys(np.arange(stop)).tolist())
            found = (
                np.array([at for at, key in enumerate(keys) if key == self._key], np.int64),
                None,
            )
        if found is None:
            raise NotKnown("the loader deals steps to shards otherwise than its sampler")
        places = found[0]
        return Hits(places, np.zeros(len(places), np.int64), np.zeros(len(places), np.int64))


class _OnlyCounted(RangeNode):
    """Stands in for a dataset of which only the length matters."""

    __slots__ = ()

    def __init__(self, length: int) -> None:
        super().__init__(range(length))


def _between(places: Positions, start: int, stop: int) -> Found:
    which = np.flatnonzero((places >= start) & (places < stop))
    return places.take(which), which


def _folded(hits: Hits, size: int) -> Hits:
    """Converts elements to the groups of `size` that have them."""
    groups, within = np.divmod(hits.places, size)
    return Hits(groups, within * hits.width + hits.rows, hits.epochs, size * hits.width)


def _reach(node: Node, stop: int) -> int:
    """The end of the input positions that a step's positions before `stop` need."""
    if isinstance(node, Order):
        return node.reach(stop)
    if isinstance(node, Expand):
        return -(-stop // node.fan_out)
    if isinstance(node, Fold):
        groups, length = node.length(), node.inputs[0].length()
        epochs, rest = divmod(stop, groups) if groups else (0, 0)
        return epochs * length + min(rest * node.group_size, length)
    if isinstance(node, (Each, Drop, Guard, Place)):
        return stop
    raise NotKnown(f"`{node.label}` does not tell where its elements come from")


def _backwards(node: Node, hits: Hits, stop: int) -> Hits:
    """Converts positions of a step's input to its own."""
    if isinstance(node, Order):
        found = node.find(hits.places, stop)
        if found is None:
            raise NotKnown(f"`{node.label}` does not tell where its elements go")
        moved = hits.moved(found)
        if isinstance(node, RepeatNode):
            moved.epochs = moved.places // node.input.length()
        elif isinstance(node, SamplerOrder) and isinstance(node.sampler, IndexSampler):
            moved.epochs = moved.places // max(1, node.sampler.records_in_shard)
        return moved
    if isinstance(node, UnbatchNode):
        # Each row is an element again.
        places = hits.places * node.fan_out + hits.rows
        apart = Hits(places, np.zeros(len(places), np.int64), hits.epochs)
        return apart.moved(before(places, stop))
    if isinstance(node, Expand):
        count = node.fan_out
        places = (hits.places[:, None] * count + np.arange(count)).reshape(-1)
        return hits.moved((places, np.arange(len(hits.places)).repeat(count)))
    if isinstance(node, Fold):
        length, groups = node.inputs[0].length(), node.length()
        if not groups:
            return _nothing()
        epochs, places = np.divmod(hits.places, length)
        grouped = _folded(Hits(places, hits.rows, hits.epochs, hits.width), node.group_size)
        which = np.flatnonzero(grouped.places < groups)
        joined = grouped.places + epochs * groups
        kept = grouped.moved((joined.take(which), which))
        return kept.moved(before(kept.places, stop))
    return hits


def steps_of_epoch(node: Node) -> int:
    """The approximate number of steps in an epoch; one if unknown."""
    group = 1
    length: Callable[[], int] | None = None
    while len(node.inputs) == 1:
        if isinstance(node, Fold):
            group *= node.group_size
        if isinstance(node, RepeatNode):
            length = node.input.length
            break
        if isinstance(node, SamplerOrder) and isinstance(node.sampler, IndexSampler):
            sampler = node.sampler
            return max(1, -(-sampler.records_in_shard // group))
        (node,) = node.inputs
    return max(1, -(-(length() if length is not None else node.length()) // group))
