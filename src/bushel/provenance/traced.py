"""Makes the same pipeline over tagged elements, which carry their origin.

If functions decide which elements are in a step (a filter, a pack), or a memory does (a shuffle
with a buffer, a mixture), the pipeline is run again from a state. Its own streams do that, over
tagged elements: the user's functions see the value and not the tag, and a batch has the tags of its
rows. Data that the answer does not need is not read, and functions are not called: after a mixture
of files that are only shuffled and batched, not a byte is read.

Descriptions are those of the pipeline, so its states fit.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bushel.batch.regroup import Regroup
from bushel.cache.cache import CacheNode
from bushel.core.frozen import frozen
from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node, Place, with_inputs
from bushel.core.options import DatasetOptions, ReadOptions
from bushel.core.places import (
    CustomStreamNode,
    OptionsNode,
    PrefetchNode,
    ToStreamNode,
    WorkersNode,
    droppers,
)
from bushel.core.step import Join, Step
from bushel.core.stream import Stream
from bushel.lanes.gather import OwnLanesNode
from bushel.order.interleave import InterleaveNode, Nodes
from bushel.order.sampled import GlobalIndexNode, SampledNode
from bushel.order.windows import StreamWindowsNode
from bushel.order.zip import ZipNode
from bushel.provenance.records import NotKnown
from bushel.provenance.tags import FailedElements
from bushel.provenance.traced_groups import TracedRegroup
from bushel.provenance.traced_sources import ElementTags, PositionTags, TracedFile
from bushel.provenance.traced_steps import (
    TaggedStandIns,
    TaggedTuples,
    TracedDrop,
    TracedEach,
    TracedExpand,
    TracedFold,
    TracedGuard,
    TracedWindows,
)
from bushel.run.build import build_stream
from bushel.sources.memory import RangeNode
from bushel.sources.tfrecord.file_stream import FileStreamNode

_INLINE = ReadOptions(0, 0)


@frozen
class Origin:
    """One of the datasets, or files, that a pipeline reads."""

    node: Node
    # Whether its elements are identified by the keys of their records, rather than by position.
    by_key: bool
    lane: int | None


class Tracing:
    """Makes pipelines over tagged elements, and knows the meaning of the tags."""

    def __init__(self, believes: bool) -> None:
        """`believes`: no function is assumed to drop an element by returning None."""
        self._believes = believes
        self.origins: list[Origin] = []
        # Elements that failed with an error that may be skipped.
        self._failed = FailedElements()
        self._lane: int | None = None
        # Whether data is read and functions are called; and whether positions may lack an element.
        self.reads = self.drops = False

    def of(self, node: Node, live: bool = False) -> Node:
        """The tagged stream of a node; `live` if the values of its elements are needed.

        >>> from bushel import MapDataset
        >>> trace = Tracing(believes=True)
        >>> ds = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2).batch(2)
        >>> stream = build_stream(trace.of(ds._stream_node()))
        >>> stream.pull(1).block.rows()[0].tag.rows
        [(0, 1), (0, 3)]
        """
        # A loop, as chains may be longer than calls may be nested.
        steps: list[tuple[Node, bool]] = []
        while len(node.inputs) == 1 and not isinstance(
            node, (ToStreamNode, CustomStreamNode, Join)
        ):
            steps.append((node, live))
            live = live or isinstance(node, (Drop, Expand, Guard, Regroup))
            (node,) = node.inputs
        origin = len(self.origins) if isinstance(node, ToStreamNode) else None
        made = self._first(node, live)
        for step, is_live in reversed(steps):
            made = self._after(made, step, is_live)
            if isinstance(step, Guard):
                made = TaggedStandIns(made, origin)
        return made

    def _origin(self, node: Node, by_key: bool = False) -> int:
        self.origins.append(Origin(node, by_key, self._lane))
        return len(self.origins) - 1

    def _first(self, node: Node, live: bool) -> Node:
        if isinstance(node, ToStreamNode):
            return self._dataset(node, live)
        if isinstance(node, FileStreamNode):
            self.reads = True
            return TracedFile(node, self._origin(node, by_key=True))
        if isinstance(node, InterleaveNode):
            datasets = _TracedNodes(node.datasets, self, live)
            return replace(node, datasets=datasets, open_dataset=_open)
        if isinstance(node, OwnLanesNode):
            return self._lanes(node, live)
        if isinstance(node, CustomStreamNode) or not isinstance(node, Step) or not node.inputs:
            raise NotKnown(
                f"`{node.label}` is an iterator of your own, which does not tell what it reads"
            )
        made = with_inputs(node, [self.of(part, live) for part in node.inputs])
        return TaggedTuples(made) if isinstance(node, ZipNode) else made

    def _lanes(self, node: OwnLanesNode, live: bool) -> Node:
        if node.pads and live:
            raise NotKnown(f"`{node.label}` pads, and a later step looks at what it pads with")
        parts = []
        for number, part in enumerate(node.parts):
            self._lane = node.first + number
            parts.append(self.of(part, live))
        self._lane = None
        made = replace(node, parts=tuple(parts), lane_of=lambda lane: self.of(node.lane_of(lane)))
        return TaggedTuples(made) if node.pads else made

    def _dataset(self, node: ToStreamNode, live: bool) -> Node:
        """A random-access dataset, each element with its position."""
        dataset: Node = node.input
        drops = not node.allow_nones and (not self._believes or any(droppers(dataset)))
        self.drops = self.drops or drops
        first = _after_eaches(dataset)
        by_key = isinstance(first, SampledNode) and (live or drops)
        origin = self._origin(first if by_key else dataset, by_key)
        if not live and not drops:
            return ToStreamNode(
                PositionTags(RangeNode(range(dataset.length())), origin), _INLINE, node.allow_nones
            )
        self.reads = True
        while self._believes and not live and isinstance(dataset, Each):
            dataset = dataset.input  # Nothing after it drops elements, or reads their values.
        tags = ElementTags(dataset, origin, node.allow_nones, by_key, *_relabelled(dataset))
        return ToStreamNode(tags, _INLINE, node.allow_nones)

    def _after(self, input: Node, node: Node, live: bool) -> Node:
        if isinstance(node, (WorkersNode, PrefetchNode)):
            return input
        if isinstance(node, Each):
            if not live and not node.uses_positions:
                return input
            self.reads = self.reads or live
            return TracedEach(input, node, self._failed, live)
        if isinstance(node, Drop):
            return TracedDrop(input, node)
        if isinstance(node, Expand):
            return TracedExpand(input, node)
        if isinstance(node, Fold) and node.one_per_group:
            return TracedFold(input, node, self._failed, live)
        if isinstance(node, Guard):
            return TracedGuard(input, node, self._failed)
        if isinstance(node, Regroup):
            return TracedRegroup(input, node)
        if isinstance(node, StreamWindowsNode):
            return TracedWindows(input, node, live)
        if isinstance(node, CacheNode):
            return replace(node, input=input, path=None, max_bytes=None)
        if isinstance(node, (Fold, OptionsNode, Place)) or (
            isinstance(node, Step) and node.same_elements
        ):
            return with_inputs(node, [input])
        raise NotKnown(f"`{node.label}` does not tell what it makes its elements of")


def _open(node: Node, options: DatasetOptions | None, _shared: Any) -> Stream:
    return build_stream(node if options is None else OptionsNode(node, options))


def _relabelled(dataset: Node) -> tuple[int, int]:
    """Elements of a loader are counted over all shards: number = first + position * stride."""
    while isinstance(dataset, Each):
        if isinstance(dataset, GlobalIndexNode):
            return dataset.shard_index, dataset.shard_count
        dataset = dataset.input
    return 0, 1


def _after_eaches(dataset: Node) -> Node:
    while isinstance(dataset, Each):
        dataset = dataset.input
    return dataset


class _TracedNodes:
    """The datasets of an interleaved stream, each traced when its turn comes."""

    def __init__(self, nodes: tuple[Node, ...] | Nodes, trace: Tracing, live: bool) -> None:
        self._nodes, self._trace, self._live = nodes, trace, live

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, number: int, /) -> Node | None:
        node = self._nodes[number]
        return None if node is None else self._trace.of(node, self._live)

    def listed(self) -> Sequence[Node]:
        """None: each is made when its turn comes."""
        return ()
