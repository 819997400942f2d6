"""From a description to a running stream: each node by its kind."""

from bushel.errors import PlanError
from bushel.node import Choice, Drop, Each, Expand, Fold, Node, Zip, walk
from bushel.options import DatasetOptions
from bushel.plan.places import (
    CustomStreamNode,
    OptionsNode,
    PrefetchNode,
    SeedNode,
    ToStreamNode,
    ZipNode,
)
from bushel.run.background import BackgroundStream
from bushel.run.custom import CustomStream
from bushel.run.merge import MixStream, ZipStream
from bushel.run.positional import PositionalStream
from bushel.run.quota import DropQuota
from bushel.run.steps import CountedStream, DropStream, EachStream, ExpandStream, FoldStream
from bushel.run.stream import Stream


def build_stream(node: Node) -> Stream:
    """Makes the stream that a node describes."""
    return _build(node, options_of(node))


def options_of(node: Node) -> DatasetOptions:
    """Merges the options of a pipeline; those nearest to its end win."""
    options = DatasetOptions()
    for step in walk(node):
        if isinstance(step, OptionsNode):
            options = options.merge(step.options)
    return options


def _build(node: Node, options: DatasetOptions) -> Stream:
    if isinstance(node, ToStreamNode):
        return PositionalStream(node.input, node.read_options, node.allow_nones, options)
    if isinstance(node, CustomStreamNode):
        return CustomStream(iter(node.dataset))
    if isinstance(node, (SeedNode, OptionsNode)):
        return _build(node.input, options)
    inputs = [_build(parent, options) for parent in node.inputs]
    if isinstance(node, Each):
        if not node.uses_positions:
            return EachStream(inputs[0], node)
        return CountedStream(inputs[0], node)
    if isinstance(node, Drop):
        return DropStream(inputs[0], node, DropQuota(node.label, options))
    if isinstance(node, Expand):
        return ExpandStream(inputs[0], node)
    if isinstance(node, Fold):
        return FoldStream(inputs[0], node)
    if isinstance(node, Choice):
        return MixStream(inputs, node, getattr(node, "names", None))
    if isinstance(node, Zip):
        strict = node.strict if isinstance(node, ZipNode) else True
        return ZipStream(inputs, node, strict)
    if isinstance(node, PrefetchNode):
        return BackgroundStream(inputs[0], node.buffer_size)
    raise PlanError(f"`{node.label}` is no step of a stream.")
