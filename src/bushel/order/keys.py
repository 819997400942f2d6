"""The key of the record that an element is made from, for error messages."""

from typing import Any

import numpy as np

from bushel.core.node import Choice, Drop, Each, Guard, Node, Order, Place, Source
from bushel.core.places import CustomMapNode
from bushel.order.sampled import GlobalIndexNode, SampledNode


def key_of(node: Node, position: int) -> Any:
    """The key of the only record that a position is made from; None for several records, or none.

    >>> from bushel.order.shuffle import ShuffleNode
    >>> from bushel.sources.memory import RangeNode
    >>> key_of(ShuffleNode(RangeNode(range(10)), seed=1), 3)
    0
    """
    found = record_of(node, position)
    return None if found is None else found[1]


def record_of(node: Node, position: int) -> tuple[Source, Any] | None:
    """The source of the only record that a position is made from, and its key there."""
    try:
        return _record_of(node, np.array([position]))
    except Exception:  # A sampler or a selection map of the user's may fail on it.
        return None


def _record_of(node: Node, position: Any) -> tuple[Source, Any] | None:
    while not isinstance(node, Source):
        if isinstance(node, GlobalIndexNode):
            position, node = (position - node.shard_index) // node.shard_count, node.input
        elif isinstance(node, Order):
            position, node = node.locate(position), node.input
        elif isinstance(node, Choice):
            which, position = node.locate(position)
            node = node.inputs[int(which[0])]
        elif isinstance(node, (Each, Drop, Guard, Place)):
            node = node.input
        else:
            return None
    if isinstance(node, SampledNode):
        return node, node.sampler[int(position[0])].record_key
    if isinstance(node, CustomMapNode):
        return node, position[0].item()
    return node, node.keys(position)[0].item()
