"""From a pipeline to the stream that an iterator hands out."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from bushel.checkpoint.state import describe_pipeline
from bushel.core.node import Node
from bushel.core.places import CustomStreamNode, ToStreamNode, WorkersNode
from bushel.core.stream import Cursor, Stream
from bushel.deliver.agree import AgreedStream, Agreement
from bushel.deliver.device import agreement, process_index_and_count
from bushel.deliver.iterator import StreamIterator
from bushel.plan.lanes import DealNode, OwnLanesNode, own_lanes

if TYPE_CHECKING:
    from bushel.run.build import Spread


def _steps(node: Node) -> Iterator[Node]:
    """A node and what it is built of; streams of the user's own build theirs themselves."""
    waiting = [node]
    while waiting:
        step = waiting.pop()
        yield step
        if not isinstance(step, (CustomStreamNode, ToStreamNode)):
            waiting.extend(reversed(step.inputs))


def _first_of(node: Node) -> list[Any]:
    """The first element of a node, if it has one."""
    stream = _build(node)
    try:
        taken = Cursor(stream).take(1)
        if taken.failure is not None:
            raise taken.failure.release()
        return taken.block.rows()
    finally:
        stream.close()


def iterate(node: Node) -> StreamIterator[Any]:
    """Makes an iterator over the elements of a node."""
    return StreamIterator(open_stream(node), describe_pipeline(node))


def open_stream(node: Node) -> Stream:
    """Makes the stream of a node, with worker processes where it asks for them."""
    if not any(isinstance(step, DealNode) for step in _steps(node)):
        return _open(node)
    node = own_lanes(node, process_index_and_count, agreement, _first_of)
    agreements = [
        step.agree
        for step in _steps(node)
        if isinstance(step, OwnLanesNode) and isinstance(step.agree, Agreement)
    ]
    return AgreedStream(_open(node), agreements) if agreements else _open(node)


def _open(node: Node) -> Stream:
    places = {
        id(step): step
        for step in _steps(node)
        if isinstance(step, WorkersNode) and step.options.num_workers
    }
    if not places:
        return _build(node)
    # Only for those who want them. Processes first: while they start, the rest is imported.
    from bushel.workers.start import Starter

    starters: dict[int, Starter] = {}
    try:
        for place, step in places.items():
            if not (step.home and step.home[0].has_workers):
                starters[place] = Starter(step.options.num_workers)
                starters[place].start_all()
        from bushel.workers.spread import spread

        return _build(node, partial(spread, starters=starters))
    finally:
        # Those that nobody took: something failed, or they lie below a stream of the user's
        # own, which starts others.
        for starter in starters.values():
            starter.end()


def _build(node: Node, spread: "Spread | None" = None) -> Stream:
    # Imported here: to build a dataset takes none of what runs it.
    from bushel.run.build import build_stream

    return build_stream(node, spread)
