"""From a description to a running stream: each node by its kind."""

from collections.abc import Callable

from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node, Place, Zip, walk
from bushel.core.options import DatasetOptions
from bushel.core.places import (
    CustomStreamNode,
    OptionsNode,
    PrefetchNode,
    SeedNode,
    ToStreamNode,
    WorkersNode,
    ZipNode,
)
from bushel.core.step import How, Step
from bushel.core.stream import Stream
from bushel.errors import PlanError
from bushel.plan.lanes import OwnLanesNode, SharedThreads
from bushel.plan.mixing import StreamMixNode
from bushel.plan.passes import InterleaveNode
from bushel.run.background import BackgroundStream
from bushel.run.custom import CustomStream
from bushel.run.interleave import InterleaveStream
from bushel.run.lanes import LanesStream
from bushel.run.merge import ZipStream
from bushel.run.mix_parts import MixParts, PositionParts, StreamParts
from bushel.run.mixing import MixStream
from bushel.run.positional import PositionalStream, dropping_step
from bushel.run.quota import DropQuota
from bushel.run.side_by_side import SideBySide, parts_of
from bushel.run.steps import MakeQuota, single_step
from bushel.run.zip_side import SideZipStream

# Makes the stream of a node whose input runs in worker processes.
Spread = Callable[[WorkersNode, DatasetOptions], Stream]


def build_stream(node: Node, spread: Spread | None = None) -> Stream:
    """Makes the stream that a node describes."""
    return build_with(node, options_of(node), spread)


def options_of(node: Node) -> DatasetOptions:
    """Merges the options of a pipeline; those nearest to its end win."""
    options = DatasetOptions()
    for step in walk(node):
        if isinstance(step, OptionsNode):
            options = options.merge(step.options)
    return options


def build_with(
    node: Node,
    options: DatasetOptions,
    spread: Spread | None = None,
    threads: SharedThreads | None = None,
) -> Stream:
    """Makes the stream of a node under the options of the pipeline that it is part of.

    `threads` are those that it shares with others.
    """

    def quota(label: str) -> DropQuota:
        return DropQuota(label, options)

    # A loop over the steps of a chain, which may be longer than calls may be nested.
    steps: list[Node] = []
    while isinstance(node, (SeedNode, OptionsNode, WorkersNode, Each, Drop, Expand, Fold)):
        if isinstance(node, WorkersNode) and spread is not None and node.options.num_workers:
            break
        if not isinstance(node, Place):
            steps.append(node)
        node = node.inputs[0]
    stream = _first_of(node, options, quota, spread, threads)
    for step in reversed(steps):
        stream = step_of(step, [stream], How(quota))
    return stream


def _first_of(
    node: Node,
    options: DatasetOptions,
    quota: MakeQuota,
    spread: Spread | None,
    threads: SharedThreads | None,
) -> Stream:
    """The stream that the steps of a chain follow."""
    if isinstance(node, WorkersNode) and spread is not None:
        return spread(node, options)
    if isinstance(node, ToStreamNode):
        return positional(node, quota, threads)
    if isinstance(node, CustomStreamNode):
        return CustomStream(iter(node.dataset))
    if threads is None and isinstance(node, (StreamMixNode, Zip)):
        threads = SharedThreads(len(node.inputs))
    if isinstance(node, StreamMixNode):
        return MixStream(_mix_parts(node, options, spread, threads), node)
    if isinstance(node, Zip) and (parts := parts_of(node.inputs)) is not None:

        def each() -> ZipStream:
            inputs = [build_with(parent, options, spread, threads) for parent in node.inputs]
            return _zipped(node, inputs)

        return SideZipStream(SideBySide(parts), each)
    inputs = [build_with(parent, options, spread, threads) for parent in node.inputs]
    return step_of(node, inputs, How(quota))


def _mix_parts(
    node: StreamMixNode,
    options: DatasetOptions,
    spread: Spread | None,
    threads: SharedThreads | None,
) -> MixParts:
    def streams() -> list[Stream]:
        return [build_with(parent, options, spread, threads) for parent in node.inputs]

    parts = parts_of(node.inputs)
    return StreamParts(streams()) if parts is None else PositionParts(SideBySide(parts), streams)


def positional(
    node: ToStreamNode, quota: MakeQuota, threads: SharedThreads | None = None
) -> PositionalStream:
    """The stream of a random-access dataset."""
    watch = quota(dropping_step(node.input).label)
    read_options = node.read_options if threads is None else threads.of(node.read_options)
    return PositionalStream(node.input, read_options, node.allow_nones, watch)


def _zipped(node: Zip, inputs: list[Stream]) -> ZipStream:
    return ZipStream(inputs, node, node.strict if isinstance(node, ZipNode) else True)


def step_of(node: Node, inputs: list[Stream], how: How) -> Stream:
    """The stream of one step over the streams that it reads from."""
    if isinstance(node, Step):
        return node.open(inputs, how)
    if isinstance(node, (Each, Drop, Expand, Fold, Guard)):
        return single_step(node, inputs[0], how.quota)
    if isinstance(node, InterleaveNode):
        return InterleaveStream(node)
    if isinstance(node, StreamMixNode):
        return MixStream(StreamParts(inputs), node)
    if isinstance(node, Zip):
        return _zipped(node, inputs)
    if isinstance(node, OwnLanesNode):
        return LanesStream(inputs, node)
    if isinstance(node, PrefetchNode):
        return BackgroundStream(inputs[0], node.buffer_size)
    raise PlanError(f"`{node.label}` is no step of a stream.")
