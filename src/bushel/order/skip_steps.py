"""`skip_steps`: leaves ranges of steps out of a stream, such as bad batches."""

import sys
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bushel.core.arguments import whole
from bushel.core.frozen import frozen, plain
from bushel.core.node import Found, Guard, Node, walk
from bushel.core.places import is_by_position
from bushel.core.positions import Positions
from bushel.core.state import State
from bushel.core.state_fields import Declares, Fields, Inner, Path, Whole
from bushel.core.step import How, OverOne
from bushel.core.stream import (
    BorrowedMarks,
    Chunk,
    FixedMarks,
    Framed,
    Marks,
    OnDemand,
    OneInput,
    ShiftedMarks,
    Stream,
    beginning_of,
    counted,
)
from bushel.errors import PlanError, StateError, StateRangeError

_AT_A_TIME = 1024
# The name of the count in a state; states that were saved without this step do not have it.
_COUNT = "steps_passed"
# The most ranges that are shown.
_SHOWN = 4

# Half-open ranges, sorted and separate.
Gaps = tuple[tuple[int, int], ...]


@frozen
class SkipStepsNode(OverOne):
    """Leaves ranges of steps out of a stream; they are numbered as in the stream without gaps."""

    input: Node
    gaps: Gaps
    # The number of elements before states that were saved without a count.
    state_step: int | None
    same_elements = True
    one_each = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        # Going to a position would lose the count of bad records before it.
        guarded = any(isinstance(step, Guard) for step in walk(self.input))
        if is_by_position(self.input) and not guarded:
            return JumpedSteps(inputs[0], self.gaps)
        return DroppedSteps(inputs[0], self.gaps, self.state_step)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        (length,) = lengths
        if length is None or length >= sys.maxsize:
            return length
        return length - _left_out_before(self.gaps, length)

    def describe(self) -> str:
        return ""  # Its states are those of the stream without it.

    @property
    def label(self) -> str:
        return self._written(_SHOWN)

    @property
    def in_full(self) -> str:
        """All of its ranges; empty if it has none, and changes nothing."""
        return self._written(len(self.gaps)) if self.gaps else ""

    def _written(self, most: int) -> str:
        shown = [f"({start}, {stop - 1})" for start, stop in self.gaps[:most]]
        more = ["..."] if len(self.gaps) > most else []
        return f"skip_steps([{', '.join(shown + more)}])"


def skip_steps_node(input: Node, ranges: Any, state_step: Any) -> SkipStepsNode:
    """Makes the step from ranges as a user gives them, which include both ends."""
    if state_step is not None:
        state_step = whole(state_step, "state_step")
        if state_step < 0:
            raise PlanError(
                f"`skip_steps`: state_step is {state_step}. It is how many steps were done when "
                "the state was saved, from 0 on."
            )
    return SkipStepsNode(input, _merged(sorted(map(_checked, _listed(ranges)))), state_step)


def _listed(ranges: Any) -> list[Any]:
    try:
        return list(ranges)
    except TypeError:
        raise PlanError(
            f"`skip_steps` takes a list of ranges, and got {ranges!r:.100}. Write "
            "`skip_steps([(first, last)])`, which leaves out both of these and all between them."
        ) from None


def _checked(pair: Any) -> tuple[int, int]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise PlanError(
            f"`skip_steps`: each range is a pair of a first and a last step, and one is "
            f"{pair!r:.100}. Write `skip_steps([(first, last)])`; for a single step name it twice."
        )
    first, last = whole(pair[0], "the first step"), whole(pair[1], "the last step")
    if not 0 <= first <= last < sys.maxsize:
        raise PlanError(
            f"`skip_steps`: the range ({first}, {last}) has no steps. Steps are counted from 0, "
            "the first of a range comes before the last, and both are left out."
        )
    return first, last + 1


def _merged(gaps: Sequence[tuple[int, int]]) -> Gaps:
    """Ranges, sorted and merged if they touch.

    >>> _merged([(0, 3), (1, 2), (3, 5), (9, 10)])
    ((0, 5), (9, 10))
    """
    merged: list[tuple[int, int]] = []
    for start, stop in gaps:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return tuple(merged)


def _left_out_before(gaps: Gaps, index: int) -> int:
    """The number of skipped elements before an element."""
    return sum(min(stop, index) - start for start, stop in gaps if start < index)


def steps_with_gaps(gaps: Gaps, indices: Any) -> Any:
    """The input elements of these numbers; for an array, or for one number.

    >>> [steps_with_gaps(((1, 3), (4, 5)), index) for index in range(4)]
    [0, 3, 5, 6]
    """
    for start, stop in gaps:
        indices = indices + (stop - start) * (indices >= start)
    return indices


def steps_without_gaps(gaps: Gaps, steps: Positions) -> Found:
    """The inverse: the numbers of input elements, for those that have one.

    >>> steps_without_gaps(((1, 3), (4, 5)), np.arange(7))
    (array([0, 1, 2, 3]), array([0, 3, 5, 6]))
    """
    starts, stops = np.array([*gaps, (sys.maxsize, sys.maxsize)], dtype=np.int64).T
    following = stops.searchsorted(steps, side="right")
    which = np.flatnonzero(steps < starts.take(following))
    left_out = np.concatenate([[0], (stops - starts).cumsum()])
    return (steps - left_out.take(following)).take(which), which


@plain
class _AfterGap(BorrowedMarks):
    """The marks of a chunk before which steps were skipped.

    Before its first element is taken, the state is the one after the last that was handed out: so
    states do not depend on where chunks begin.
    """

    marks: Marks
    behind: Marks

    def place(self, used: int, before: bool) -> tuple[Marks, int, bool]:
        return (self.marks, used, before) if used or before else (self.behind, 0, False)


class _SkippedSteps(OneInput):
    """Hands out the elements between the gaps."""

    def __init__(self, input: Stream, gaps: Gaps) -> None:
        super().__init__(input)
        self._gaps = gaps
        self._stops = [stop for _, stop in gaps]
        # The number of the next element of the input.
        self._at = 0
        # The state after the last element that was handed out.
        self._behind: Marks = self._own(beginning_of(input), 0)

    def pull(self, want: int) -> Chunk | None:
        start = self._next_gap()
        if start is not None and self._at >= start:
            if not self._pass_over(self._stops[bisect_right(self._stops, self._at)]):
                return None
            start = self._next_gap()
        chunk = self._up_to(start, want)
        if chunk is None:
            return None
        used = len(chunk.block) + (chunk.block.failure is not None)
        marks = _AfterGap(chunk.marks, self._behind)
        if used:
            self._behind = ShiftedMarks(chunk.marks, used)
        return Chunk(chunk.block, marks)

    def _next_gap(self) -> int | None:
        """The start of the gap that has the next element, or of the gap after it."""
        number = bisect_right(self._stops, self._at)
        return self._gaps[number][0] if number < len(self._gaps) else None

    @abstractmethod
    def _own(self, marks: Marks, size: int) -> Marks:
        """The marks of this step, given those of its input, between the next `size` elements."""

    @abstractmethod
    def _pass_over(self, stop: int) -> bool:
        """Goes to element `stop` of the input, if it exists."""

    @abstractmethod
    def _up_to(self, start: int | None, want: int) -> Chunk | None:
        """The next elements, all of them before `start`, with the marks of this step."""

    def state(self) -> State:
        return self._behind.at(0)


class JumpedSteps(_SkippedSteps):
    """Jumps from the start of a gap to its end, if elements are known by their numbers.

    Its states are those of its input.
    """

    def pull(self, want: int) -> Chunk | None:
        return self._input.pull(want) if self._is_beyond() else super().pull(want)

    def on_demand(self) -> OnDemand | None:
        return self._input.on_demand() if self._is_beyond() else None

    def _is_beyond(self) -> bool:
        """Whether the last gap is over: there is nothing left to do."""
        return self._at > (self._stops[-1] if self._stops else -1)

    def state(self) -> State:
        return self._input.state() if self._is_beyond() else super().state()

    def restore(self, state: State) -> None:
        self._input.restore(state)
        self._at, self._behind = self._input.index_in(state), FixedMarks(state)

    def _own(self, marks: Marks, size: int) -> Marks:
        return marks

    def _pass_over(self, stop: int) -> bool:
        try:
            self._input.restore(self._input.state_for(stop))
        except StateRangeError:
            return False
        self._at = stop
        return True

    def _up_to(self, start: int | None, want: int) -> Chunk | None:
        chunk = self._input.pull(want if start is None else min(want, start - self._at))
        if chunk is None:
            return None
        block, marks = chunk.block, chunk.marks
        used = len(block) + (block.failure is not None)
        after = self._input.index_in(marks.at(used)) if used else self._at
        if start is None or after <= start:
            # Elements that a function dropped by returning None are numbered as well.
            self._at = after if used else self._input.index_in(self._input.state())
            return chunk
        inside = range(1, used + 1)
        count = bisect_right(inside, start, key=lambda n: self._input.index_in(marks.at(n)))
        self._at = start
        return Chunk(block.part(0, count), marks)

    def most_before(self, state: State | None) -> int | None:
        return self._input.most_before(state)

    def state_for(self, index: int) -> State:
        return self._input.state_for(int(steps_with_gaps(self._gaps, index)))

    def index_in(self, state: State) -> int:
        index = self._input.index_in(state)
        return index - _left_out_before(self._gaps, index)


class _CountFields(Fields):
    """The state of the input and a count; or, in earlier states, the state of the input alone."""

    def __init__(self, stream: "DroppedSteps", input: Stream) -> None:
        super().__init__(stream.misfit, parent=Inner(input), **{_COUNT: Whole()})
        self._input = input

    def below(self, state: Any, path: Path) -> Iterator[tuple[Declares, Any, Path]]:
        if isinstance(state, dict) and _COUNT not in state:
            return iter([(self._input, state, path)])
        return super().below(state, path)


class DroppedSteps(_SkippedSteps):
    """Counts elements, and drops those in a gap after they were made.

    A failed element counts as well.
    """

    def __init__(self, input: Stream, gaps: Gaps, state_step: int | None) -> None:
        super().__init__(input, gaps)
        self._state_step = state_step
        self._start = beginning_of(input)
        # The rest of a chunk that reaches into a gap, or beyond it.
        self._rest: Chunk | None = None

    def _own(self, marks: Marks, size: int) -> Marks:
        return counted(marks, _COUNT, self._at, size)

    def _pass_over(self, stop: int) -> bool:
        while self._at < stop:
            if self._next(stop - self._at, _AT_A_TIME) is None:
                return False
        return True

    def _up_to(self, start: int | None, want: int) -> Chunk | None:
        return self._next(None if start is None else start - self._at, want)

    def _next(self, most: int | None, want: int) -> Chunk | None:
        """The next `most` elements or fewer; a failure counts as one of them."""
        chunk, self._rest = self._rest, None
        if chunk is None:
            chunk = self._input.pull(want if most is None else min(want, most))
        if chunk is None:
            return None
        block = chunk.block
        if most is not None and len(block) + (block.failure is not None) > most:
            self._rest = chunk.rest(most)
            block = block.part(0, most)
        size = len(block) + (block.failure is not None)
        made = Chunk(block, self._own(chunk.marks, size))
        self._at += size
        return made

    def restore(self, state: State) -> None:
        at = self._count_of(state)
        parent = state.get("parent") if _COUNT in state else state
        assert parent is not None
        self._input.restore(parent)
        self._at, self._rest = at, None
        self._behind = Framed(FixedMarks(parent), {_COUNT: at})

    def fields(self) -> Fields:
        return _CountFields(self, self._input)

    def _count_of(self, state: State) -> int:
        """The number of elements before a state."""
        if _COUNT in state:
            return int(state[_COUNT])
        if self._state_step is not None:
            return self._state_step
        try:
            return 0 if state == self._start.at(0) else self._input.index_in(state)
        except (StateError, NotImplementedError):
            pass  # (A user's own stream may have no state before it has begun.)
        raise StateError(
            "this state was saved without `skip_steps`, and after a filter, a pack or a mixture "
            "a state does not say how many steps came before it. Write "
            "`skip_steps([...], state_step=n)`, with n the number of steps that were done when "
            "this state was saved. States that are saved from now on will say it."
        )

    def misfit(self, state: State) -> str | None:
        """What is wrong with a state whose fields are right by themselves."""
        count = self._count_of(state)
        most = self._input.most_before(state["parent"] if _COUNT in state else state)
        if most is None or count <= most:
            return None
        what = repr(_COUNT) if _COUNT in state else "the state_step of `skip_steps`"
        return f"{what} is {count}, and there are only {most} elements before this place"

    def most_before(self, state: State | None) -> int | None:
        return self._input.most_before(state["parent"] if state and _COUNT in state else state)
