"""`Stream`, `Chunk` and `Marks`, the state at every element; `OneInput` and `Framed`.

A stream is pulled one chunk at a time. The state within a chunk comes from the chunk's marks,
not from the stream: `chunk.marks.at(used)` is the state after `used` elements. So states do not
contain what buffers, prefetching threads and windows hold, and do not depend on how the stream
was cut into chunks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bushel.core.block import Block
from bushel.core.frozen import plain
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.errors import StateError


# No `ABC`: a state asks of many marks what kind they are, and `isinstance` would take ten times as
# long.
class Marks:
    """The states within a chunk. Marks are small, and keep no elements in memory."""

    __slots__ = ()

    @abstractmethod
    def at(self, used: int) -> State:
        """The state after `used` elements; `used` may be one more, for after the failure."""

    def before(self, index: int) -> State:
        """The latest state before an element: restored from it, that element comes next.

        It may be later than `at(index)`, after elements that were dropped in between.
        """
        return self.at(index)

    def reached(self, used: int) -> State:
        """The same as `at`, for who asks only how far the stream has been read.

        In the middle of a group that is made again after a restore, it may be that of its end.
        """
        return self.at(used)


class BorrowedMarks(Marks):
    """Marks whose states are those of other marks."""

    __slots__ = ()

    @abstractmethod
    def place(self, used: int, before: bool) -> tuple[Marks, int, bool]:
        """Whose states they are: the arguments of `at` there, or if the last is True of `before`.

        Those of this method say what was asked of these marks, in the same way.
        """

    def at(self, used: int) -> State:
        return self._asked(used, False)

    def before(self, index: int) -> State:
        return self._asked(index, True)

    def reached(self, used: int) -> State:
        marks, used, _ = lender(self, used, False)
        return marks.reached(used)

    def _asked(self, used: int, before: bool) -> State:
        marks, used, before = lender(self, used, before)
        return marks.before(used) if before else marks.at(used)


def lender(marks: Marks, used: int, before: bool) -> tuple[Marks, int, bool]:
    """The marks that have a state themselves, and what to ask of them."""
    # A loop, as there may be more of them than calls may be nested.
    while isinstance(marks, BorrowedMarks):
        marks, used, before = marks.place(used, before)
    return marks, used, before


@plain
class FixedMarks(Marks):
    """Marks with a single state, that of the start."""

    state: State

    def at(self, used: int) -> State:
        return self.state


@plain
class ShiftedMarks(BorrowedMarks):
    """The marks of the rest of a chunk, after its first elements."""

    marks: Marks
    gone: int

    def place(self, used: int, before: bool) -> tuple[Marks, int, bool]:
        return self.marks, self.gone + used, before


@plain
class SeriesMarks(BorrowedMarks):
    """The marks of chunks that were put end to end."""

    parts: list[tuple[Marks, int]]

    def place(self, used: int, before: bool) -> tuple[Marks, int, bool]:
        # The state after an element comes from the chunk that had the element.
        for marks, count in self.parts[:-1]:
            if used < count or (used == count and not before):
                return marks, used, before
            used -= count
        return self.parts[-1][0], used, before


@plain
class Framed(Marks):
    """The states of a step: those of its input, with fields of its own beside them."""

    marks: Marks
    # The step's own fields, or a function: the fields after n elements of the chunk.
    own: State | Callable[[int], State]

    def at(self, used: int) -> State:
        return {"parent": self.marks.at(used), **self._own(used)}

    def before(self, index: int) -> State:
        return {"parent": self.marks.before(index), **self._own(index)}

    def reached(self, used: int) -> State:
        return {"parent": self.marks.reached(used), **self._own(used)}

    def _own(self, used: int) -> State:
        return self.own if isinstance(self.own, dict) else self.own(used)


def state_at(marks: Marks, used: int) -> State:
    """`marks.at(used)`, as a function."""
    return marks.at(used)


def state_reached(marks: Marks, used: int) -> State:
    """`marks.reached(used)`, as a function."""
    return marks.reached(used)


# One of these two.
StateAt = Callable[[Marks, int], State]


def counted(marks: Marks, name: str, start: int, size: int) -> Framed:
    """The states of a step that counts elements: `size` in the chunk, after `start` before it.

    A failed element is not counted.
    """
    return Framed(marks, lambda used: {name: start + min(used, size)})


@plain
class ComputedMarks(Marks):
    """Marks given by a function."""

    at_used: Callable[[int], State]

    def at(self, used: int) -> State:
        return self.at_used(used)


@plain
class Chunk:
    """Elements pulled from a stream, perhaps none, with the states between them."""

    block: Block
    marks: Marks

    def rest(self, start: int) -> "Chunk":
        """Returns the chunk from element `start` on, with the failure."""
        block = self.block.part(start, len(self.block))
        block.failure = self.block.failure
        return Chunk(block, ShiftedMarks(self.marks, start))


@plain
class OnDemand:
    """Elements that are made one by one, when they are taken.

    `rows` raises where an element fails. The caller then takes no more elements and sets
    `failed`: the stream goes on after that element.
    """

    rows: Iterator[Any]
    # The states between the elements taken since its last call.
    take_marks: Callable[[], Marks]
    failed: bool = False
    # Time that making the taken elements took, set by the caller if it measures that.
    seconds: float = 0.0


_NO_INDEX = (
    "this pipeline cannot tell elements by index without producing them: it filters, mixes, "
    "zips, flattens or shuffles windows, or has an iterator of your own."
)


class Stream(ABC):
    """A sequence that is pulled in chunks and can go back to a state."""

    # Whether it may be read ahead. Not so for a user's own iterator, which may wait for
    # external events for each element: of it, only the needed elements are read.
    eager = True
    # Functions for another thread that is about to close the stream: each ends the wait of a
    # thread in `pull`, for workers or for other hosts, by a `ClosedError`.
    wakers: Sequence[Callable[[], None]] = ()

    @property
    def base(self) -> "Stream":
        """The stream before all steps that change elements one by one, or drop some."""
        return self

    @abstractmethod
    def pull(self, want: int) -> Chunk | None:
        """Returns the next elements, about `want` of them, or None at the end."""

    def on_demand(self) -> OnDemand | None:
        """Returns elements to be made one by one, if that is now better than `pull`."""
        return None

    @abstractmethod
    def state(self) -> State:
        """The state that the next pull starts from."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Goes to a state that was already checked; the next pull starts there."""

    @abstractmethod
    def fields(self) -> Fields:
        """The fields of its states. Constant; may be called from any thread."""

    def most_before(self, state: State | None) -> int | None:
        """The maximal number of elements before a state; without a state, of the stream.

        Failed elements are counted as well. None if it is not known.
        """
        return None

    def state_for(self, index: int) -> State:
        """The state before element `index`, if it can be computed without reading."""
        raise NotImplementedError(_NO_INDEX)

    def index_in(self, state: State) -> int:
        """The index of the element after a state, if it can be computed without reading."""
        raise NotImplementedError(_NO_INDEX)

    def needed_together(self, count: int) -> None:  # noqa: B027
        """Notes that a later step needs `count` elements for each element of its own.

        Room for these elements comes in addition to the prefetch buffer.
        """

    def start(self) -> None:  # noqa: B027
        """Starts prefetching, if the stream prefetches."""

    def close(self) -> None:  # noqa: B027
        """Stops all threads; the stream is not used again."""


class OneInput(Stream):
    """A stream over one input, which it starts, closes and prefetches as the input does."""

    def __init__(self, input: Stream) -> None:
        self._input = input
        self.eager = input.eager

    def fields(self) -> Fields:
        # The fields of its input; a subclass with fields of its own overrides this.
        return self._input.fields()

    def needed_together(self, count: int) -> None:
        self._input.base.needed_together(count)

    def start(self) -> None:
        self._input.start()

    def close(self) -> None:
        self._input.close()


@plain
class NoMarks(Marks):
    """The marks of a stream that has no states: asking for one raises the error."""

    error: StateError

    def at(self, used: int) -> State:
        raise self.error


def beginning_of(stream: Stream) -> Marks:
    """The state that the next pull starts from. A user's iterator may have no states."""
    try:
        return FixedMarks(stream.state())
    except StateError as error:
        return NoMarks(error)
