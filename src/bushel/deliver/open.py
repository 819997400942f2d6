"""From a pipeline to the stream that an iterator hands out."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from bushel.node import Node
from bushel.plan.places import CustomStreamNode, ToStreamNode, WorkersNode
from bushel.run.build import build_stream
from bushel.run.stream import Stream


def _steps(node: Node) -> Iterator[Node]:
    """A node and what it is built of; streams of the user's own build theirs themselves."""
    yield node
    if not isinstance(node, (CustomStreamNode, ToStreamNode)):
        for parent in node.inputs:
            yield from _steps(parent)


def open_stream(node: Node) -> Stream:
    """Makes the stream of a node, with worker processes where it asks for them."""
    places = {
        id(step): step
        for step in _steps(node)
        if isinstance(step, WorkersNode) and step.options.num_workers
    }
    if not places:
        return build_stream(node)
    # Only for those who want them. Processes first: while they start, the rest is imported.
    from bushel.workers.start import start_workers

    started: dict[int, list[Any]] = {}
    try:
        for place, step in places.items():
            if not (step.home and step.home[0].has_workers):
                started[place] = start_workers(step.options.num_workers)
        from bushel.workers.spread import spread

        return build_stream(node, partial(spread, started=started))
    finally:
        # Those that nobody took: something failed, or they lie below a stream of the user's
        # own, which starts others.
        for workers in started.values():
            for worker in workers:
                worker.end()
