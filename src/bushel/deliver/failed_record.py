"""Adds the file and record that a function failed on to its error."""

from collections.abc import Iterator

from bushel.core.node import Each, Guard, Node, Place, walk
from bushel.core.places import ToStreamNode
from bushel.errors import note_place, place_noted, where_raised
from bushel.order.keys import record_of
from bushel.sources.stored_at import known_place

_Place = tuple[str, int, int | None]


def note_record(error: BaseException | None, node: Node | None) -> None:
    """Adds a note with the file and the record from which a failed element was made.

    Only if there is one such record: not for batches, nor after steps by which the number of an
    element in a stream no longer tells its position.
    """
    raised = None if error is None else where_raised(error)
    if error is None or node is None or raised is None or place_noted(error) is not None:
        return
    operation, position = raised
    steps = (step for step in walk(node) if step.label == operation)
    # Several steps may have that name. They are about the same record, or it is unknown which is
    # meant.
    found = {_place(step, position) for step in steps}
    place = found.pop() if len(found) == 1 else None
    if place is not None:
        note_place(error, *place)


def _place(step: Node, position: int) -> _Place | None:
    """The file, the record and its first byte, for a position of a step."""
    if not isinstance(step, Each) or not all(
        isinstance(other, (Each, Place)) or (isinstance(other, Guard) and not other.drops)
        for other in _in_stream(step)
    ):
        return None
    record = record_of(step, position)
    return None if record is None else known_place(getattr(record[0], "source", None), record[1])


def _in_stream(step: Node) -> Iterator[Node]:
    """The steps of a stream up to this one; empty if it is a step of a random-access dataset."""
    if any(isinstance(below, ToStreamNode) for below in walk(step)):
        while not isinstance(step, ToStreamNode):
            yield step
            if len(step.inputs) != 1:
                return
            (step,) = step.inputs
