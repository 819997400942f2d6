"""`repeat`: several epochs, by arithmetic or of a stream; mixture parts that begin again."""

import sys
from collections.abc import Sequence

import numpy as np

from bushel.core.arguments import whole
from bushel.core.block import Block, Failure
from bushel.core.frozen import frozen
from bushel.core.node import ONE_LANE, Found, LocateMany, Node, Order
from bushel.core.positions import Positions, before, split_epochs
from bushel.core.state import State
from bushel.core.state_fields import Declares, Fields, Inner, Whole, given_by
from bushel.core.step import How, OverOne
from bushel.core.stream import Chunk, ComputedMarks, Framed, Marks, OneInput, Stream, beginning_of
from bushel.errors import PlanError

INFINITE = sys.maxsize


@frozen
class RepeatNode(Order):
    """Makes the dataset `num_epochs` times as long, or endless.

    Positions beyond the length belong to later epochs anyway, so there is nothing to compute,
    unless every epoch is to be the same.

    >>> from bushel.sources.memory import RangeNode
    >>> import numpy as np
    >>> RepeatNode(RangeNode(range(3)), 2, reseed_each_epoch=False).locate(np.arange(6))
    array([0, 1, 2, 0, 1, 2])
    """

    input: Node
    num_epochs: int | None
    reseed_each_epoch: bool = True

    def length(self) -> int:
        once = self.input.length()
        if self.num_epochs is None:
            return INFINITE if once else 0
        return once * self.num_epochs

    def locate(self, positions: Positions) -> Positions:
        if self.reseed_each_epoch:
            return positions
        return split_epochs(positions, self.input.length())[1]

    def locate_run(self, start: int, stop: int) -> tuple[int, int] | None:
        if self.reseed_each_epoch:
            return start, stop
        length = self.input.length()
        epoch = start // length
        within = stop - epoch * length <= length
        return (start - epoch * length, stop - epoch * length) if within else None

    def find(self, positions: Positions, stop: int) -> Found:
        if self.reseed_each_epoch:
            return before(positions, stop)
        length = self.input.length()
        first, which = before(positions, min(stop, length))
        # Each element comes again in every epoch.
        times = -(-(stop - first) // length)
        epochs = np.arange(times.sum()) - (times.cumsum() - times).repeat(times)
        return first.repeat(times) + epochs * length, which.repeat(times)

    def reach(self, stop: int) -> int:
        return stop if self.reseed_each_epoch else min(stop, self.input.length())

    @classmethod
    def side_by_side(cls, nodes: Sequence["RepeatNode"]) -> LocateMany | None:  # type: ignore[override]
        if all(node.reseed_each_epoch for node in nodes):
            return lambda which, positions: positions
        lengths = np.array([node.input.length() for node in nodes], dtype=np.int64)
        if not lengths.all():
            return None
        lengths[[node.reseed_each_epoch for node in nodes]] = INFINITE
        return lambda which, positions: positions % lengths.take(which)

    def describe(self) -> str:
        epochs = "" if self.num_epochs is None else str(self.num_epochs)
        same = "" if self.reseed_each_epoch else "reseed_each_epoch=False"
        return f"repeat({', '.join(filter(None, (epochs, same)))})"


@frozen
class StreamRepeatNode(OverOne):
    """Goes over a stream again and again."""

    input: Node
    epochs: int | None
    same_elements = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return RepeatStream(inputs[0], self.epochs)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        (length,) = lengths
        return None if length is None or self.epochs is None else length * self.epochs

    def describe(self) -> str:
        return f"repeat({self.epochs or ''})"


class RepeatStream(OneInput):
    """Goes over its input again and again, `epochs` times or for ever."""

    def __init__(self, input: Stream, epochs: int | None) -> None:
        super().__init__(input)
        self._epochs = epochs
        self._epoch = 0
        self._start = beginning_of(input)
        # Whether this pass had any element: a pass without any would be repeated for ever.
        self._had_any = True

    def pull(self, want: int) -> Chunk | None:
        while not self._is_over():
            chunk = self._input.pull(want)
            if chunk is not None:
                self._had_any = self._had_any or bool(len(chunk.block) or chunk.block.failure)
                return Chunk(chunk.block, Framed(chunk.marks, {"epoch": self._epoch}))
            if self._epochs is not None and self._epoch + 1 >= self._epochs:
                return None
            if not self._had_any:
                if self._epochs is not None:
                    return None
                raise PlanError("`repeat` cannot go on for ever: the stream has no elements.")
            self._input.restore(self._start.at(0))
            self._epoch += 1
            self._had_any = False
        return None

    def _is_over(self) -> bool:
        # A state of Grain counts the last epoch as well, at the end.
        return bool(self._epochs) and self._epoch == self._epochs

    def state(self) -> State:
        return {"parent": self._input.state(), "epoch": self._epoch}

    def restore(self, state: State) -> None:
        self._input.restore(state["parent"])
        self._epoch, self._had_any = state["epoch"], True

    def fields(self) -> Fields:
        return Fields(parent=Inner(self._input), epoch=Whole(self._epochs))

    def most_before(self, state: State | None) -> int | None:
        once = self._input.most_before(None)
        if state is None:
            return None if once is None or self._epochs is None else once * self._epochs
        within = self._input.most_before(state["parent"])
        return None if once is None or within is None else once * state["epoch"] + within


@frozen
class EpochsNode(OverOne):
    """Begins a part of a mixture again when it ends."""

    input: Node
    # The name of the part in messages.
    part: str
    # A part may have elements, but none in this lane.
    lane: tuple[int, int] = ONE_LANE
    same_elements = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return EpochsStream(inputs[0], self)

    def describe(self) -> str:
        return ""  # The mixture says so, for all of its parts.

    @property
    def label(self) -> str:
        return f"restart of {self.part}"


def _epoch_state(parent: State, epoch: int, taken: int) -> State:
    return {"parent": parent, "epoch": epoch, "in_epoch": taken}


def epoch_fields(input: Declares) -> Fields:
    """The state of a part that begins again: its own, its restarts, and the elements since."""
    return Fields(parent=Inner(input), epoch=Whole(), in_epoch=Whole(within=given_by(input)))


class EpochsStream(OneInput):
    """Begins its input again when it ends, and counts."""

    def __init__(self, input: Stream, node: EpochsNode) -> None:
        super().__init__(input)
        self._node = node
        self._start = beginning_of(input)
        # The number of restarts, and the number of elements since the last one.
        self._epoch = self._taken = 0

    def pull(self, want: int) -> Chunk | None:
        while (chunk := self._input.pull(want)) is None:
            if not self._taken:
                return self._refuse()  # It would restart for ever.
            self._input.restore(self._start.at(0))
            self._epoch, self._taken = self._epoch + 1, 0
        marks = self._marks(chunk.marks, len(chunk.block))
        self._taken += len(chunk.block)
        return Chunk(chunk.block, marks)

    def _marks(self, marks: Marks, size: int) -> Marks:
        epoch, taken = self._epoch, self._taken

        def at(used: int) -> State:
            # A failed element is not counted.
            return _epoch_state(marks.at(used), epoch, taken + min(used, size))

        return ComputedMarks(at)

    def _refuse(self) -> Chunk:
        lane, lanes = self._node.lane
        where = f" in lane {lane} of {lanes}" if lanes > 1 else ""
        error = PlanError(
            f"`mix(..., on_end='restart')`: {self._node.part} has no elements{where}, so it cannot "
            "begin again. Leave it out, or write on_end='drop'."
        )
        marks = self._marks(beginning_of(self._input), 0)
        return Chunk(Block([], np.empty(0, dtype=np.int64), Failure(error)), marks)

    def state(self) -> State:
        return _epoch_state(self._input.state(), self._epoch, self._taken)

    def restore(self, state: State) -> None:
        self._input.restore(state["parent"])
        self._epoch, self._taken = state["epoch"], state["in_epoch"]

    def fields(self) -> Fields:
        return epoch_fields(self._input)


def repeat_by_position(parent: Node, num_epochs: int | None, reseed_each_epoch: bool) -> Node:
    """The step of `repeat` on a random-access dataset."""
    _check_epochs(num_epochs)
    if parent.length() == INFINITE:
        raise PlanError("`repeat` does nothing for a dataset that is infinite already.")
    return RepeatNode(parent, num_epochs, reseed_each_epoch)


def repeat_step(parent: Node, num_epochs: int | None) -> Node:
    """The step of `repeat` on a stream."""
    _check_epochs(num_epochs)
    return StreamRepeatNode(parent, num_epochs)


def _check_epochs(num_epochs: int | None) -> None:
    if num_epochs is not None and whole(num_epochs, "num_epochs") <= 0:
        raise PlanError(f"num_epochs must be positive, but got {num_epochs}.")
