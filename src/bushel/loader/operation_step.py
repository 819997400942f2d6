"""The stream of a user's own operation over Records."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, failure_of
from bushel.core.cursor import Cursor
from bushel.core.frozen import frozen
from bushel.core.naming import name_of
from bushel.core.node import Node
from bushel.core.record import Record, RecordMetadata
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.core.step import How, OverOne
from bushel.core.stream import Chunk, FixedMarks, Marks, Stream
from bushel.errors import PlanError, note_where


@frozen
class OperationNode(OverOne):
    """A user's own operation over Records."""

    input: Node
    operation: Any

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return OperationStream(inputs[0], self.operation)

    def describe(self) -> str:
        return name_of(self.operation)


class OperationStream(Stream):
    """Feeds Records to a function that returns an iterator of Records.

    What the function keeps between Records is unknown. So the state is the number of Records that
    it has taken, and after a restore it starts afresh with the next one.
    """

    eager = False

    def __init__(self, input: Stream, operation: Any) -> None:
        self._cursor = Cursor(input)
        self._operation = operation
        self._records: Iterator[Any] | None = None
        # The index of the last Record that the function took, for messages.
        self._last_index = 0

    def pull(self, want: int) -> Chunk | None:
        before = self._cursor.state()
        try:
            if self._records is None:
                self._records = iter(self._operation(self._feed()))
            record = next(self._records)
        except StopIteration:
            return None
        except Exception as error:
            # A generator that raised is finished; the next pull begins another.
            self._records = None
            after = self._cursor.state()
            note_where(error, name_of(self._operation), self._last_index)
            block = Block([], np.empty(0, dtype=np.int64), failure_of(error))
            return Chunk(block, _Ends(before, after))
        if not isinstance(record, Record):
            raise PlanError(
                f"an operation must yield Records, and {self._operation!r} yielded a "
                f"{type(record).__name__}. To change elements one by one, use `transforms.Map`."
            )
        positions = np.array([record.metadata.index], dtype=np.int64)
        block = Block([record.data], positions, None, [record.metadata])
        return Chunk(block, _Ends(before, self._cursor.state()))

    def _feed(self) -> Iterator[Record[Any]]:
        while True:
            taken = self._cursor.take(1)
            if taken.failure is not None:
                raise taken.failure.release()
            if not len(taken.block):
                return
            block = taken.block
            metadata = (
                block.metadata[0] if block.metadata else RecordMetadata(int(block.positions[0]))
            )
            self._last_index = metadata.index
            yield Record(metadata, block.rows()[0])

    def state(self) -> State:
        return self._cursor.state()

    def restore(self, state: State) -> None:
        self._cursor.restore(state)
        self._records = None

    def fields(self) -> Fields:
        return self._cursor.stream.fields()

    def start(self) -> None:
        self._cursor.stream.start()

    def close(self) -> None:
        self._cursor.stream.close()


class _Ends(Marks):
    __slots__ = ("_after", "_before")

    def __init__(self, before: State, after: State) -> None:
        self._before, self._after = FixedMarks(before), FixedMarks(after)

    def at(self, used: int) -> State:
        return (self._after if used else self._before).at(used)
