"""Splits a stream for `multithread_prefetch` into several, each over a part of its source."""

import copy
from typing import Any

from bushel.core.naming import source_name
from bushel.core.node import Node, with_inputs
from bushel.core.places import CustomStreamNode, ToStreamNode
from bushel.dataset import MapDataset, MapNodeDataset, StreamNodeDataset, map_node, stream_node
from bushel.errors import PlanError
from bushel.order.slice import slice_of
from bushel.transforms.map import RandomMapNode

_NO_PART = (
    "`{}` is a stream, of which no part can be read by itself; only what begins with a "
    "random-access dataset can be read by several threads like this. A stream of your own can, "
    "if it has a method `set_slice(slice, sequential_slice)`."
)


def copies_of(node: Node, count: int, sequential: bool) -> list[Node]:
    """The same steps `count` times, over interleaved or neighbouring parts of the source."""
    if count == 1:
        return [node]
    return [_copy(node, number, count, sequential) for number in range(count)]


def _copy(node: Node, number: int, count: int, sequential: bool) -> Node:
    if isinstance(node, ToStreamNode):
        return with_inputs(node, [slice_of(node.input, slice(number, None, count), sequential)])
    if isinstance(node, CustomStreamNode):
        return stream_node(_own_copy(node.dataset, number, count, sequential))
    if not node.inputs:
        raise PlanError(_NO_PART.format(node.label))
    inputs = [_copy(parent, number, count, sequential) for parent in node.inputs]
    # Random numbers are those of the whole: element k of part s is number s + count * k.
    random = isinstance(node, RandomMapNode)
    return with_inputs(node, inputs, **({"lane": (number, count)} if random else {}))


def _own_copy(dataset: Any, number: int, count: int, sequential: bool) -> Any:
    """A part of a user's own stream: by its `set_slice`, or over parts of its parents."""
    other = copy.copy(dataset)
    part = slice(number, None, count)
    if hasattr(other, "set_slice"):
        other.set_slice(part, sequential)
        return other
    if not other.parents:
        raise PlanError(_NO_PART.format(source_name(dataset)))
    other._parents = tuple(
        MapNodeDataset(slice_of(map_node(parent), part, sequential))
        if isinstance(parent, MapDataset)
        else StreamNodeDataset(_copy(stream_node(parent), number, count, sequential))
        for parent in dataset.parents
    )
    return other
