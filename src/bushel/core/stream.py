"""Streams: chunks of elements, each knowing the state at every one of its elements.

A stream is pulled for a chunk at a time. Whoever holds a half-consumed chunk asks the chunk,
not the stream, where it is: `chunk.marks.at(used)` is the state as after `used` elements.
So buffers, prefetching threads and windows never show in a state, and states are the same
however the stream was cut into chunks.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Failure, join
from bushel.core.fields import Fields
from bushel.core.frozen import plain
from bushel.core.ragged import RaggedRows
from bushel.core.state import State
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
    # The step's own fields, or what they are after so many elements of the chunk.
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
class Trickle:
    """Elements that are made one by one, when they are taken.

    `rows` raises where an element fails. Whoever takes them then takes no more of them, and
    says that it has `failed`: the stream goes on after that element. Where an interrupt came
    in between, the stream goes on with the element that it came upon.
    """

    rows: Iterator[Any]
    # Of the place where we are, always: 0 is after the last element taken, 1 after the one
    # that failed after it.
    marks: Marks
    failed: bool = False


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

    def trickle(self) -> Trickle | None:
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
        # Those of its input, unless it has some of its own.
        return self._input.fields()

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


@plain
class TakenMarks(Marks):
    """The states between elements that were taken from a cursor."""

    # Where they came from: marks, elements used of them before, and how many taken.
    segments: tuple[tuple[Marks, int, int], ...]

    def at(self, used: int) -> State:
        for marks, before, count in self.segments:
            # The state after an element is asked of the chunk that had it, unless there is
            # no element yet.
            if used <= count:
                return marks.at(before + used)
            used -= count
        marks, before, count = self.segments[-1]
        return marks.at(before + count + used)


@plain
class Taken:
    """Elements taken from a cursor, with the states between them."""

    block: Block
    failure: Failure | None
    marks: TakenMarks
    # The chunks that they came from, how many elements of the first were used before, and
    # whether its failure was taken before.
    chunks: tuple[Chunk, ...]
    used: int
    failed: bool

    def at(self, used: int) -> State:
        """The state after the first `used` of these elements."""
        return self.marks.at(used)


class Cursor:
    """Takes any number of elements from a stream, and keeps what is left of a chunk."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._chunk: Chunk | None = None
        self._used = 0
        self._size = 0
        self._failed = False
        # Chunks that were put back, in order.
        self._waiting: deque[Chunk] = deque()

    def take(self, count: int, ahead: int = 0) -> Taken:
        """Takes `count` elements; fewer where the stream ends or an element fails.

        `ahead` is how many more will be needed soon, as far as the caller knows.
        """
        parts: list[Block] = []
        segments: list[tuple[Marks, int, int]] = [self.mark()]
        if self._chunk is None:
            self._chunk = Chunk(_join_or_empty([]), segments[0][0])
        chunks, used, failed = [self._chunk], self._used, self._failed
        failure: Failure | None = None
        missing = count
        while missing > 0:
            if self._used >= self._size:
                failure = self._take_failure()
                if failure is not None:
                    segments.append((chunks[-1].marks, self._used, 0))
                    break
                wanted = missing + ahead if self.stream.eager else missing
                if not self._pull(wanted):
                    break
                chunks.append(self._chunk)
                continue
            chunk = chunks[-1]
            taken = min(missing, self._size - self._used)
            segments.append((chunk.marks, self._used, taken))
            if taken == len(chunk.block):
                whole = chunk.block
                parts.append(Block(whole.values, whole.positions, None, whole.metadata))
            else:
                parts.append(chunk.block.part(self._used, self._used + taken))
            self._used += taken
            missing -= taken
        marks = TakenMarks(tuple(segments))
        return Taken(_join_or_empty(parts), failure, marks, tuple(chunks), used, failed)

    def cut(self, count: int) -> Block | None:
        """Takes `count` elements out of the middle of a chunk; None where `take` has more to do.

        The same as `take`, without the notes by which elements are put back.
        """
        start, stop = self._used, self._used + count
        if not start or stop > self._size or self._chunk is None:
            return None
        self._used = stop
        return self._chunk.block.part(start, stop)

    def put_back(self, taken: Taken, used: int) -> None:
        """Puts back what was taken last, all but the first `used` elements of it."""
        chunks = deque(taken.chunks)
        place, failed = taken.used + used, taken.failed
        # In the chunk of the last element that stays taken, whose state it is.
        while place > len(chunks[0].block):
            place -= len(chunks.popleft().block)
            failed = False
        self._chunk, self._used, self._failed = chunks.popleft(), place, failed
        self._size = len(self._chunk.block)
        self._waiting.extendleft(reversed(chunks))

    def look_ahead(
        self, want: int, ragged: bool = False
    ) -> tuple[Sequence[Any], int, Failure | None]:
        """Elements of which some, from the index that comes with them on, are still to come.

        None are taken. At the end there are none, and where one failed there is that failure,
        which is taken. `ragged` rows that were taken apart stay so.
        """
        if not self.available(want):
            return (), 0, self._take_failure()
        assert self._chunk is not None
        block = self._chunk.block
        if ragged and isinstance(block.values, RaggedRows):
            return block.values, self._used, None  # type: ignore[return-value]
        return block.rows(), self._used, None

    def available(self, want: int) -> int:
        """How many elements can be shown at once; none at the end, or where one failed."""
        while self._used >= self._size:
            chunk = self._chunk
            if chunk is not None and not self._failed and chunk.block.failure is not None:
                return 0
            if not self._pull(want if self.stream.eager else 1):
                return 0
        return self._size - self._used

    def pass_over(self, count: int) -> None:
        """Takes so many of the elements that `look_ahead` showed."""
        self._used += count

    @property
    def ready(self) -> int:
        """How many elements can be shown without looking further."""
        return self._size - self._used

    @property
    def prepared(self) -> int:
        """How many elements can be shown, up to one that failed."""
        ready = self._size - self._used
        if self._waiting and self._chunk is not None:
            last = None if self._failed else self._chunk.block.failure
            for chunk in self._waiting:
                if last is not None:
                    break
                ready, last = ready + len(chunk.block), chunk.block.failure
        return ready

    def prepare(self, count: int, ahead: int = 0) -> int:
        """Sees to it that so many elements can be shown, and says how many can be.

        Fewer where the stream ends or an element fails. None are taken. `ahead` is how many
        more had better be read, if any must be.
        """
        ready = self._size - self._used
        while ready < count and (ready := self.prepared) < count:
            wanted = count - ready + ahead if self.stream.eager else count - ready
            if not self.read_on(wanted, as_rows=True):
                break
        return ready

    def read_on(self, want: int, as_rows: bool = False) -> bool:
        """Reads once, for elements that wait; not at the end, nor after one that failed."""
        if self._chunk is None:
            self._chunk = Chunk(_join_or_empty([]), beginning_of(self.stream))
        pending = [*(() if self._failed else (self._chunk,)), *self._waiting]
        if any(chunk.block.failure is not None for chunk in pending):
            return False
        chunk = self.stream.pull(want)
        if chunk is None:
            return False
        # One of which a filter left nothing, tells nothing.
        if len(chunk.block) or chunk.block.failure is not None:
            self._waiting.append(_as_rows(chunk) if as_rows else chunk)
        return True

    def show(self, count: int) -> tuple[list[Any], Marks]:
        """So many elements that were prepared, and the states between them. None are taken."""
        assert self._chunk is not None
        start, stop = self._used, self._used + count
        if start > 0 and stop <= self._size:
            rows = self._chunk.block.rows()[start:stop]
            return rows, ShiftedMarks(self._chunk.marks, start + self._failed)
        segments = [self.mark()]
        stop = min(stop, self._size)
        rows = self._chunk.block.rows()[start:stop]
        segments.append((self._chunk.marks, start, stop - start))
        if len(rows) < count:
            for chunk in self._waiting:
                taken = min(count - len(rows), len(chunk.block))
                rows = rows + chunk.block.rows()[:taken]
                segments.append((chunk.marks, 0, taken))
                if len(rows) == count:
                    break
        return rows, TakenMarks(tuple(segments))

    def advance(self, count: int) -> None:
        """Takes so many of the elements that were prepared."""
        while count > self._size - self._used:
            count -= self._size - self._used
            self._chunk, self._used, self._failed = self._waiting.popleft(), 0, False
            self._size = len(self._chunk.block)
        self._used += count

    @property
    def fails(self) -> bool:
        """Whether, of what was prepared, an element that failed comes next."""
        if self._used < self._size or self._chunk is None:
            return False
        if not self._failed and self._chunk.block.failure is not None:
            return True
        return bool(self._waiting) and not len(self._waiting[0].block)

    def mark(self) -> tuple[Marks, int, int]:
        """Remembers the place, to be asked for its state later (see `Taken`)."""
        if self._chunk is None:
            return beginning_of(self.stream), 0, 0
        return self._chunk.marks, self._used + self._failed, 0

    def state(self) -> State:
        marks, used, _ = self.mark()
        return marks.at(used)

    def restore(self, state: State) -> None:
        self.stream.restore(state)
        self._chunk, self._used, self._size, self._failed = None, 0, 0, False
        self._waiting.clear()

    def _take_failure(self) -> Failure | None:
        if self._chunk is None or self._failed or self._chunk.block.failure is None:
            return None
        self._failed = True
        return self._chunk.block.failure

    def _pull(self, want: int) -> bool:
        while True:
            chunk = self._waiting.popleft() if self._waiting else self.stream.pull(want)
            if chunk is None:
                return False
            # A chunk of which a filter left nothing tells nothing: the state stays that of
            # the last element, wherever the stream was cut.
            if len(chunk.block) or chunk.block.failure is not None:
                self._chunk, self._used, self._failed = chunk, 0, False
                self._size = len(chunk.block)
                return True


def _as_rows(chunk: Chunk) -> Chunk:
    """The same with its elements as a list, which is made once however often it is looked at."""
    block = chunk.block
    if type(block.values) is list:
        return chunk
    rows = Block(block.rows(), block.positions, block.failure, block.metadata)
    return Chunk(rows, chunk.marks)


def _join_or_empty(parts: list[Block]) -> Block:
    if parts:
        return join(parts)
    return Block([], np.empty(0, dtype=np.int64))
