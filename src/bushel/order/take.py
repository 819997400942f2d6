"""`take` and `skip` of a stream: its first elements, or all but the first."""

from collections.abc import Sequence
from typing import Any

from bushel.core.arguments import whole
from bushel.core.frozen import frozen
from bushel.core.node import Node
from bushel.core.places import is_by_position
from bushel.core.state import State
from bushel.core.state_fields import Fields, Inner, Whole, given_by
from bushel.core.step import How, OverOne
from bushel.core.stream import Chunk, Framed, Marks, OneInput, Stream, beginning_of, counted
from bushel.errors import PlanError, StateRangeError

_AT_A_TIME = 1024


@frozen
class LimitNode(OverOne):
    """Ends a stream after `count` elements."""

    input: Node
    count: int
    same_elements = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return LimitStream(inputs[0], self.count)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        (length,) = lengths
        return None if length is None else min(length, self.count)

    def describe(self) -> str:
        return f"limit({self.count})"


class LimitStream(OneInput):
    """Ends a stream after `count` elements."""

    def __init__(self, input: Stream, count: int) -> None:
        super().__init__(input)
        self._count = count
        self._read = 0

    def pull(self, want: int) -> Chunk | None:
        left = self._count - self._read
        chunk = self._input.pull(min(want, left)) if left > 0 else None
        if chunk is None:
            return None
        # A failure right after the last element is not part of the stream.
        block = chunk.block if len(chunk.block) < left else chunk.block.part(0, left)
        marks = counted(chunk.marks, "count_elements_read", self._read, len(block))
        self._read += len(block)
        return Chunk(block, marks)

    def state(self) -> State:
        return {"parent": self._input.state(), "count_elements_read": self._read}

    def restore(self, state: State) -> None:
        self._input.restore(state["parent"])
        self._read = state["count_elements_read"]

    def state_for(self, index: int) -> State:
        return {"parent": self._input.state_for(index), "count_elements_read": index}

    def index_in(self, state: State) -> int:
        return int(state["count_elements_read"])

    def fields(self) -> Fields:
        read = Whole(self._count, within=given_by(self._input))
        return Fields(parent=Inner(self._input), count_elements_read=read)

    def most_before(self, state: State | None) -> int | None:
        return self._input.most_before(state and state["parent"])


@frozen
class SkipNode(OverOne):
    """Skips the first elements of a stream."""

    input: Node
    count: int
    same_elements = True
    one_each = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return SkipStream(inputs[0], self.count, is_by_position(self.input))

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        (length,) = lengths
        return None if length is None else max(0, length - self.count)

    def describe(self) -> str:
        return f"skip({self.count})"


class SkipStream(OneInput):
    """Skips the first elements of its input: by their number, or by reading them.

    Before the first element, the state is the beginning of the input.
    """

    def __init__(self, input: Stream, count: int, by_position: bool) -> None:
        super().__init__(input)
        self._count = count
        self._by_position = by_position
        self._go_to_start(count)

    def _go_to_start(self, left: int) -> None:
        self._left = left
        self._start: Marks | None = beginning_of(self._input)
        # Rest of the chunk that holds the first element to deliver.
        self._rest: Chunk | None = None
        self._over = False

    def pull(self, want: int) -> Chunk | None:
        self._pass_over()
        if self._over:
            return None
        chunk, self._rest = self._rest, None
        if chunk is None:
            chunk = self._input.pull(want)
        if chunk is None:
            return None
        if len(chunk.block) or chunk.block.failure is not None:
            self._start = None
        return Chunk(chunk.block, Framed(chunk.marks, {"skipped": self._count}))

    def _pass_over(self) -> None:
        if not self._left or self._over or self._jump():
            return
        while self._left:
            chunk = self._input.pull(min(self._left, _AT_A_TIME))
            if chunk is None:
                self._over = True
                return
            # A failed element counts as well, as in skipping by number.
            count = len(chunk.block) + (chunk.block.failure is not None)
            if count > self._left:
                self._rest = chunk.rest(self._left)
            self._left = max(0, self._left - count)

    def _jump(self) -> bool:
        """Goes to the first element, if it is known by its number."""
        if not self._by_position:
            return False
        try:
            self._input.restore(self._input.state_for(self._left))
        except NotImplementedError:
            return False
        except StateRangeError:
            self._over = True
        self._left = 0
        return True

    def state(self) -> State:
        if self._start is not None:
            return {"parent": self._start.at(0), "skipped": 0}
        return {"parent": self._input.state(), "skipped": self._count}

    def restore(self, state: State) -> None:
        skipped = state["skipped"]
        self._input.restore(state["parent"])
        self._go_to_start(self._count - skipped)
        if skipped:
            self._start = None

    def fields(self) -> Fields:
        skipped = Whole(self._count, within=given_by(self._input))
        return Fields(self._stops_nowhere, parent=Inner(self._input), skipped=skipped)

    def _stops_nowhere(self, state: State) -> str | None:
        if state["skipped"] in (0, self._count):
            return None
        return (
            f"it has passed over {state['skipped']} elements, and `skip({self._count})` does not "
            "stop there"
        )

    def most_before(self, state: State | None) -> int | None:
        return self._input.most_before(state and state["parent"])

    def state_for(self, index: int) -> State:
        if not self._by_position:
            return super().state_for(index)
        return {"parent": self._input.state_for(self._count + index), "skipped": self._count}

    def index_in(self, state: State) -> int:
        if not self._by_position:
            return super().index_in(state)
        return self._input.index_in(state["parent"]) - self._count if state["skipped"] else 0

    def start(self) -> None:
        if self._left and not self._over:
            self._jump()
        super().start()


def check_count(count: Any, operation: str) -> int:
    """Returns a number of elements that an operation was given."""
    number = whole(count, "count")
    if number < 0:
        raise PlanError(f"`{operation}` takes a number of elements, and got {number}.")
    return number
