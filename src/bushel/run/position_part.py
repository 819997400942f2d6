"""A stream that is read by position: how far it was read is all that there is to know of it."""

from bushel.core.frozen import plain
from bushel.core.node import Drop, Each, Expand, Guard, Node, leaves_out, walk, with_inputs
from bushel.core.places import OptionsNode, SeedNode, ToStreamNode
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.order.repeat import EpochsNode, epoch_fields
from bushel.run.long_chains import least_block
from bushel.run.positional import position_fields

# Far beyond what anybody reads, and sums of it are still no larger than a position may be.
_FURTHEST = 1 << 61


@plain
class _Positions:
    """A dataset that is read from its first position on, as far as its states are concerned."""

    length: int

    def fields(self) -> Fields:
        return position_fields(self.length)

    def most_before(self, state: State | None) -> int | None:
        return self.length if state is None else state["next_index"]


@plain
class PositionPart:
    """A dataset that is read from its first position on, again and again if it `restarts`."""

    node: Node
    length: int
    restarts: bool
    allow_nones: bool
    # Whether positions may be without an element; and then the steps of the stream, which see
    # those that are left.
    drops: bool = False
    steps: tuple[Node, ...] = ()

    def state(self, taken: int) -> State:
        """The state of its stream after `taken` positions."""
        if not self.restarts:
            return {"next_index": taken}
        # The next epoch begins with its first element.
        epoch = max(0, taken - 1) // self.length
        index = taken - epoch * self.length
        return {"parent": {"next_index": index}, "epoch": epoch, "in_epoch": index}

    def fields(self) -> Fields:
        """What a state of its stream has."""
        positions = _Positions(self.length)
        return epoch_fields(positions) if self.restarts else positions.fields()

    def most_before(self, state: State | None) -> int | None:
        """How many elements can have come before a state (see `Stream`)."""
        if not self.restarts:
            return _Positions(self.length).most_before(state)
        # Where an epoch had none, as when all of them failed, it ends with any number of errors.
        if state is None or not state["in_epoch"]:
            return None
        count: int = state["epoch"] * self.length + state["parent"]["next_index"]
        return count

    def taken(self, state: State) -> int | None:
        """How many positions were taken in a state, if that is all it says."""
        count: int = state["in_epoch"] if self.restarts else state["next_index"]
        if self.restarts:
            count += state["epoch"] * self.length
        return count if count <= _FURTHEST and self.state(count) == state else None


def part_of(node: Node, may_drop: bool = False) -> PositionPart | None:
    """What a stream is read from, where it gives one element for each position.

    Or none for some of them, where it `may_drop`.
    """
    restarts = isinstance(node, EpochsNode)
    steps: list[Node] = []
    if restarts:
        node = node.inputs[0]
    while not isinstance(node, ToStreamNode):
        is_change = isinstance(node, Each) and not node.uses_positions and not node.stays_here
        if is_change or (may_drop and isinstance(node, Drop)):
            steps.append(node)
        elif not isinstance(node, (SeedNode, OptionsNode)):
            return None
        node = node.inputs[0]
    base, length = node.input, node.input.length()
    if restarts and not 0 < length <= _FURTHEST:
        return None
    dropping = [step for step in walk(base) if isinstance(step, Guard) or leaves_out(step)]
    if any(isinstance(step, (Guard, Expand)) for step in dropping) or least_block(base) > 1:
        return None  # Or its source wants to be asked for many at once.
    drops = bool(dropping) or any(isinstance(step, Drop) for step in steps)
    if drops:
        # An epoch of which elements are left out has no length that is known.
        if restarts or not may_drop:
            return None
        return PositionPart(base, length, False, node.allow_nones, True, tuple(reversed(steps)))
    for step in reversed(steps):
        base = with_inputs(step, [base])
    return PositionPart(base, length, restarts, node.allow_nones)
