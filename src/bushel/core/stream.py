"""`Stream`, `Chunk` and `Marks`, the state at every element; `OneInput` and `Framed`.

A stream is pulled for a chunk at a time. Whoever holds a half-consumed chunk asks the chunk,
not the stream, where it is: `chunk.marks.at(used)` is the state as after `used` elements.
So buffers, prefetching threads and windows never show in a state, and states are the same
however the stream was cut into chunks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bushel.core.block import Block
from bushel.core.frozen import plain
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.errors import StateError


class Marks(ABC):
    """The states within a chunk; small, so that keeping it keeps no elements."""

    __slots__ = ()

    @abstractmethod
    def at(self, used: int) -> State:
        """The state after `used` elements; one more than there are: after the failure."""

    def before(self, index: int) -> State:
        """The latest state before an element: nothing comes before it again."""
        return self.at(index)


@plain
class FixedMarks(Marks):
    """Marks of which only the start is ever asked."""

    state: State

    def at(self, used: int) -> State:
        return self.state


@plain
class ShiftedMarks(Marks):
    """The marks of the rest of a chunk whose first elements are gone."""

    marks: Marks
    gone: int

    def at(self, used: int) -> State:
        return self.marks.at(self.gone + used)

    def before(self, index: int) -> State:
        return self.marks.before(self.gone + index)


@plain
class SeriesMarks(Marks):
    """The marks of chunks that were put end to end."""

    parts: list[tuple[Marks, int]]

    def at(self, used: int) -> State:
        # The state after an element is asked of the chunk that had it.
        for marks, count in self.parts[:-1]:
            if used <= count:
                return marks.at(used)
            used -= count
        return self.parts[-1][0].at(used)

    def before(self, index: int) -> State:
        for marks, count in self.parts[:-1]:
            if index < count:
                return marks.before(index)
            index -= count
        return self.parts[-1][0].before(index)


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

    def _own(self, used: int) -> State:
        return self.own if isinstance(self.own, dict) else self.own(used)


def counted(marks: Marks, name: str, start: int, size: int) -> Framed:
    """The states of a step that counts elements: `size` of them, after `start` others.

    One that failed is not counted.
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
        """Returns what comes from element `start` on, the failure included."""
        block = self.block.part(start, len(self.block))
        block.failure = self.block.failure
        return Chunk(block, ShiftedMarks(self.marks, start))


@plain
class OnDemand:
    """Elements that are made one by one, when they are taken.

    `rows` raises where an element fails. Whoever takes them then takes no more of them, and
    says that it has `failed`: the stream goes on after that element.
    """

    rows: Iterator[Any]
    # The states between the elements taken since it was called last.
    take_marks: Callable[[], Marks]
    failed: bool = False
    # What it took to make those that were taken: whoever takes them may look at the clock.
    seconds: float = 0.0


_NO_INDEX = (
    "this pipeline cannot tell elements by index without producing them: it filters, mixes, "
    "zips, flattens or shuffles windows, or has an iterator of your own."
)


class Stream(ABC):
    """A sequence that is pulled in chunks and can go back to a state."""

    # Whether reading more than was asked for is invisible. Not so for a user's own iterator,
    # which may wait for the world outside: it is only asked for what is needed.
    eager = True
    # What ends the waiting of a thread in `pull`, be it for workers or for other hosts, by a
    # `ClosedError`; to be called by another thread that is about to close the stream.
    wakers: Sequence[Callable[[], None]] = ()

    @property
    def base(self) -> "Stream":
        """The stream whose elements these are, changed one by one or left out."""
        return self

    @abstractmethod
    def pull(self, want: int) -> Chunk | None:
        """Returns the next elements, about `want` of them, or None at the end."""

    def on_demand(self) -> OnDemand | None:
        """Returns elements to be made one by one, where it is better than `pull` now."""
        return None

    @abstractmethod
    def state(self) -> State:
        """The state that the next pull starts from."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Goes to a state that was checked; the next pull starts there."""

    @abstractmethod
    def fields(self) -> Fields:
        """What a state of it has. The same at any time, and asked from any thread."""

    def most_before(self, state: State | None) -> int | None:
        """How many elements can have come before a state at the most; of None, in all.

        Those that failed are counted as well. None where nobody knows.
        """
        return None

    def state_for(self, index: int) -> State:
        """The state before element `index`, where that is plain arithmetic."""
        raise NotImplementedError(_NO_INDEX)

    def index_in(self, state: State) -> int:
        """The index of the element that follows a state, where that is plain arithmetic."""
        raise NotImplementedError(_NO_INDEX)

    def needed_together(self, count: int) -> None:  # noqa: B027
        """Takes note that a later step needs so many elements for one of its own.

        Of these, the last ones are not ahead of what was asked for.
        """

    def start(self) -> None:  # noqa: B027
        """Begins work ahead of time, where there is such."""

    def close(self) -> None:  # noqa: B027
        """Stops all threads; the stream is not used again."""


class OneInput(Stream):
    """A stream over one other: it begins, ends and reads ahead as that one does."""

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
    """In place of the states of a stream that has none."""

    error: StateError

    def at(self, used: int) -> State:
        raise self.error


def beginning_of(stream: Stream) -> Marks:
    """The state that the next pull starts from; a user's iterator may have none."""
    try:
        return FixedMarks(stream.state())
    except StateError as error:
        return NoMarks(error)
