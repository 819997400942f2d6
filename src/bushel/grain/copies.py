"""A stream as several, each over a part of its source."""

from bushel.core.node import Node, with_inputs
from bushel.core.places import CustomStreamNode, ToStreamNode
from bushel.errors import PlanError
from bushel.order.slice import SliceNode
from bushel.transforms.map import RandomMapNode


def copies_of(node: Node, count: int, sequential: bool) -> list[Node]:
    """The same steps so many times, over interleaved or neighbouring parts of the source."""
    return [_copy(node, number, count, sequential) for number in range(count)]


def _copy(node: Node, number: int, count: int, sequential: bool) -> Node:
    if isinstance(node, ToStreamNode):
        length = node.input.length()
        part = SliceNode(node.input, number, length, count)
        if sequential:
            each, rest = divmod(length, count)
            start = number * each + min(number, rest)
            part = SliceNode(node.input, start, start + each + (number < rest), 1)
        return with_inputs(node, [part])
    if isinstance(node, CustomStreamNode) or not node.inputs:
        raise PlanError(
            f"`{node.label}` is a stream, of which no part can be read by itself; only what begins "
            "with a random-access dataset can be read by several threads like this."
        )
    inputs = [_copy(parent, number, count, sequential) for parent in node.inputs]
    # Random numbers are those of the whole: element k of part s is number s + count * k.
    random = isinstance(node, RandomMapNode)
    return with_inputs(node, inputs, **({"lane": (number, count)} if random else {}))
