"""From a pipeline to the stream that an iterator hands out."""

from bushel.node import Node, walk
from bushel.plan.places import WorkersNode
from bushel.run.build import build_stream
from bushel.run.stream import Stream


def open_stream(node: Node) -> Stream:
    """Makes the stream of a node, with worker processes where it asks for them."""
    if not any(isinstance(step, WorkersNode) for step in walk(node)):
        return build_stream(node)
    # Only for those who want them: what worker processes need takes time to import.
    from bushel.workers.spread import spread

    return build_stream(node, spread)
