"""A place in a stream: takes elements by number, independent of chunks."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Failure, join
from bushel.core.frozen import plain
from bushel.core.ragged import RaggedRows
from bushel.core.state import State
from bushel.core.stream import BorrowedMarks, Chunk, Marks, ShiftedMarks, Stream, beginning_of


@plain
class TakenMarks(BorrowedMarks):
    """The states between elements that were taken from a cursor."""

    # Where they came from: marks, elements of their chunk used before, and elements taken.
    segments: tuple[tuple[Marks, int, int], ...]

    def place(self, used: int, before: bool) -> tuple[Marks, int, bool]:
        for marks, start, count in self.segments:
            # The state after an element comes from the chunk that had it, unless no element was
            # taken yet.
            if used <= count:
                return marks, start + used, False
            used -= count
        marks, start, count = self.segments[-1]
        return marks, start + count + used, False


@plain
class Taken:
    """Elements taken from a cursor, with the states between them."""

    block: Block
    failure: Failure | None
    marks: TakenMarks
    # The chunks that they came from, the number of elements of the first chunk used before, and
    # whether its failure was taken before.
    chunks: tuple[Chunk, ...]
    used: int
    failed: bool

    def at(self, used: int) -> State:
        """The state after the first `used` of these elements."""
        return self.marks.at(used)


class Cursor:
    """Takes any number of elements from a stream, and keeps the rest of a chunk."""

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

        `ahead` is the number of further elements that will be needed soon, as far as the caller
        knows.
        """
        parts: list[Block] = []
        segments: list[tuple[Marks, int, int]] = [self.mark()]
        chunks, used, failed = [self._begun()], self._used, self._failed
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
                chunks.append(self._begun())
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
        """Takes `count` elements out of the middle of a chunk; None where only `take` can do it.

        The same as `take`, but the elements cannot be put back.
        """
        start, stop = self._used, self._used + count
        if not start or stop > self._size or self._chunk is None:
            return None
        self._used = stop
        return self._chunk.block.part(start, stop)

    def put_back(self, taken: Taken, used: int) -> None:
        """Puts back the elements taken last, except the first `used` of them."""
        chunks = deque(taken.chunks)
        place, failed = taken.used + used, taken.failed
        # Go back to the chunk of the last element that stays taken: the state comes from it.
        while place > len(chunks[0].block):
            place -= len(chunks.popleft().block)
            failed = False
        self._chunk, self._used, self._failed = chunks.popleft(), place, failed
        self._size = len(self._chunk.block)
        self._waiting.extendleft(reversed(chunks))

    def look_ahead(
        self, want: int, ragged: bool = False
    ) -> tuple[Sequence[Any], int, Failure | None]:
        """Returns a list of elements, and the index of the first that is not taken yet.

        No elements are taken. The list is empty at the end and where an element failed; then the
        failure is returned, and it is taken. With `ragged`, rows that were taken apart stay so.
        """
        if not self.available(want):
            return (), 0, self._take_failure()
        assert self._chunk is not None
        block = self._chunk.block
        if ragged and isinstance(block.values, RaggedRows):
            return block.values, self._used, None  # type: ignore[return-value]
        return block.rows(), self._used, None

    def rest_of(self, place: tuple[Marks, int, int]) -> tuple[list[Any], int] | None:
        """The elements of the chunk, and the index of the next, if it is later than `place` there.

        None are taken.
        """
        chunk, used = self._chunk, self._used
        if chunk is None or place[0] is not chunk.marks or place[1] != used or not used:
            return None
        return (chunk.block.rows(), used) if used < self._size else None

    def available(self, want: int) -> int:
        """The number of elements ready in one chunk; 0 at the end, or where an element failed."""
        while self._used >= self._size:
            chunk = self._chunk
            if chunk is not None and not self._failed and chunk.block.failure is not None:
                return 0
            if not self._pull(want if self.stream.eager else 1):
                return 0
        return self._size - self._used

    def pass_over(self, count: int) -> None:
        """Takes `count` of the elements that `look_ahead` returned."""
        self._used += count

    @property
    def ready(self) -> int:
        """The number of elements left in the chunk."""
        return self._size - self._used

    @property
    def prepared(self) -> int:
        """The number of elements ready before the first that failed."""
        ready = self._size - self._used
        if self._waiting and self._chunk is not None:
            last = None if self._failed else self._chunk.block.failure
            for chunk in self._waiting:
                if last is not None:
                    break
                ready, last = ready + len(chunk.block), chunk.block.failure
        return ready

    def prepare(self, count: int, ahead: int = 0) -> int:
        """Reads on until `count` elements are ready, and returns the number that is ready.

        It is less where the stream ends or an element fails. No elements are taken. `ahead` is the
        number of further elements to read, if any must be read.
        """
        ready = self._size - self._used
        while ready < count and (ready := self.prepared) < count:
            wanted = count - ready + ahead if self.stream.eager else count - ready
            if not self.read_on(wanted, as_rows=True):
                break
        return ready

    def read_on(self, want: int, as_rows: bool = False) -> bool:
        """Reads one more chunk to keep; does nothing at the end or after a failed element."""
        begun = self._begun()
        pending = [*(() if self._failed else (begun,)), *self._waiting]
        if any(chunk.block.failure is not None for chunk in pending):
            return False
        chunk = self.stream.pull(want)
        if chunk is None:
            return False
        # A chunk without elements (a filter dropped all) has no useful marks.
        if len(chunk.block) or chunk.block.failure is not None:
            self._waiting.append(_as_rows(chunk) if as_rows else chunk)
        return True

    def show(self, count: int) -> tuple[list[Any], Marks]:
        """The next `count` prepared elements, and the states between them. None are taken."""
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
        """Takes `count` of the elements that were prepared."""
        while count > self._size - self._used:
            count -= self._size - self._used
            self._chunk, self._used, self._failed = self._waiting.popleft(), 0, False
            self._size = len(self._chunk.block)
        self._used += count

    @property
    def fails(self) -> bool:
        """Whether the next of the prepared elements is one that failed."""
        if self._used < self._size or self._chunk is None:
            return False
        if not self._failed and self._chunk.block.failure is not None:
            return True
        return bool(self._waiting) and not len(self._waiting[0].block)

    def mark(self) -> tuple[Marks, int, int]:
        """Remembers the place, to be asked for its state later (see `Taken`)."""
        return self._begun().marks, self._used + self._failed, 0

    def _begun(self) -> Chunk:
        """The current chunk; to begin with, one without elements."""
        if self._chunk is None:
            self._chunk = Chunk(_join_or_empty([]), beginning_of(self.stream))
        return self._chunk

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
            # A chunk without elements (a filter dropped all) is skipped: the state stays that of
            # the last element, wherever the stream was cut.
            if len(chunk.block) or chunk.block.failure is not None:
                self._chunk, self._used, self._failed = chunk, 0, False
                self._size = len(chunk.block)
                return True


def _as_rows(chunk: Chunk) -> Chunk:
    """The same chunk with its elements as a list, which is made once however often it is read."""
    block = chunk.block
    if type(block.values) is list:
        return chunk
    rows = Block(block.rows(), block.positions, block.failure, block.metadata)
    return Chunk(rows, chunk.marks)


def _join_or_empty(parts: list[Block]) -> Block:
    if parts:
        return join(parts)
    return Block([], np.empty(0, dtype=np.int64))
