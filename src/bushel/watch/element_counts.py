"""How many elements each step has, as far as known without reading: for `explain` and epochs."""

from collections.abc import Sequence

from bushel.core.frozen import frozen
from bushel.core.node import Each, Expand, Fold, Node, Place, Source, leaves_out
from bushel.core.places import CustomStreamNode, ToStreamNode
from bushel.core.step import Step
from bushel.lanes.deal import DealNode, GatherNode, lanes_of
from bushel.order.present import Wary
from bushel.order.repeat import INFINITE, EpochsNode, StreamRepeatNode
from bushel.order.stream_mix import StreamMixNode
from bushel.run.cut import length_after

# An endless dataset, or a part of one, has more elements than any job reads.
ENDLESS = 1 << 53


@frozen
class Count:
    """The number of elements of a step; None if it is unknown in advance."""

    number: int | None
    # Whether some of them may be dropped.
    at_most: bool = False
    # Whether the step is one of a stream, and not of a random-access dataset.
    streamed: bool = False
    # Whether it is the count of each lane, of which hosts have their shares; and the number of
    # elements dealt to all lanes, if each lane makes one of each.
    in_lanes: bool = False
    dealt: int | None = None

    @property
    def endless(self) -> bool:
        return self.number is not None and self.number >= ENDLESS


class Counts:
    """The counts of steps, each computed once.

    Only the `len()` of sources is called. If that fails, or would take a pass over the data, the
    count is unknown.
    """

    def __init__(self) -> None:
        # With the steps, as an `id` is valid only while its object lives.
        self._found: dict[int, tuple[Node, Count]] = {}

    def of(self, node: Node) -> Count:
        """The count of a step."""
        # A loop, as chains may be longer than calls may be nested.
        waiting = [node]
        while waiting:
            last = waiting[-1]
            missing = [before for before in _inputs(last) if id(before) not in self._found]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if id(last) not in self._found:
                before = [self._found[id(one)][1] for one in _inputs(last)]
                self._found[id(last)] = last, _count(last, before)
        return self._found[id(node)][1]


def _inputs(node: Node) -> tuple[Node, ...]:
    # A user's own dataset may do anything with its inputs.
    return () if isinstance(node, (CustomStreamNode, Source)) else node.inputs


def _count(node: Node, before: Sequence[Count]) -> Count:
    begins = isinstance(node, (ToStreamNode, DealNode, CustomStreamNode))
    begins = begins or (isinstance(node, Step) and not before)
    streamed = begins or any(count.streamed for count in before)
    try:
        if isinstance(node, DealNode) or any(count.in_lanes for count in before):
            return _in_lanes(node, before)
        if streamed:
            return Count(_of_stream(node, before), streamed=True)
        if not node.knows_length or any(count.number is None for count in before):
            return Count(None)
        has_all = node.has_all or isinstance(node, Wary)
        dropped = not has_all and any(count.at_most for count in before)
        return Count(_by_position(node, before), dropped or leaves_out(node))
    except Exception:  # The `len()` of a user's class.
        return Count(None, streamed=streamed)


def _by_position(node: Node, before: Sequence[Count]) -> int:
    """The `length()` of a node, without recursing to the source for it."""
    if not before:
        return node.length()
    number = before[0].number
    assert number is not None
    if type(node).length is Place.length:
        return number  # As long as its input.
    if isinstance(node, Fold):
        return node.groups_in(number)
    if isinstance(node, Expand):
        return min(number * node.fan_out, INFINITE)
    return node.length()


def _of_stream(node: Node, before: Sequence[Count]) -> int | None:
    lengths = [count.number for count in before]
    if isinstance(node, ToStreamNode):
        return lengths[0] if node.allow_nones or not before[0].at_most else None
    if isinstance(node, (StreamRepeatNode, EpochsNode)):
        epochs = node.epochs if isinstance(node, StreamRepeatNode) else None
        if epochs is None:
            return INFINITE if lengths[0] != 0 else 0
    if isinstance(node, StreamMixNode) and node.on_end == "restart":
        return INFINITE
    return length_after(node, lengths)


def _in_lanes(node: Node, before: Sequence[Count]) -> Count:
    """The number of elements of all lanes, of which the last may be dropped."""
    if isinstance(node, GatherNode):
        return Count(_gathered(node, before[0].dealt), streamed=True)
    if isinstance(node, DealNode):
        dealt = None if before[0].at_most else before[0].number
    else:
        dealt = before[0].dealt if isinstance(node, (Each, Place)) else None
    deal = lanes_of(node)
    known = dealt if deal is not None and deal.remainder == "drop" else None
    return Count(known, at_most=known is not None, streamed=True, in_lanes=True, dealt=dealt)


def _gathered(node: GatherNode, length: int | None) -> int | None:
    """The rows that the lanes of all hosts give, for so many elements in all lanes together."""
    deal = lanes_of(node.input)
    if deal is None or length is None:
        return None
    if deal.remainder == "pad":
        longest = -(-length // deal.lanes)
        steps = -(-longest // node.rows)
    else:
        steps = length // deal.lanes // node.rows
    return steps * node.rows * deal.lanes
