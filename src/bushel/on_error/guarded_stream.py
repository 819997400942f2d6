"""`on_error` in a stream: skips or replaces elements that fail before it."""

from typing import Any

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.node import Guard, failed
from bushel.core.record import RecordMetadata
from bushel.core.state import State, innermost_index
from bushel.core.state_fields import Fields, Inner, given_by
from bushel.core.stream import Chunk, Framed, OneInput, Stream
from bushel.errors import where_raised
from bushel.on_error.bad_records import BadRecord, bad_record
from bushel.on_error.budget import BadCounts, Ledger


class GuardStream(OneInput):
    """Drops, or replaces, the elements of its input that fail."""

    def __init__(self, input: Stream, node: Guard, notes: list[BadRecord] | None = None) -> None:
        super().__init__(input)
        self._node = node
        self._ledger = Ledger([node])
        # The notes for the ledger, if that is kept elsewhere.
        self._notes = notes

    def pull(self, want: int) -> Chunk | None:
        chunk = self._input.pull(want)
        if chunk is None:
            return None
        block, node = chunk.block, self._node
        size, count = len(block), self._ledger.counts[0]
        failure = block.failure
        caught = failure is not None and failure.error is not None and node.catches(failure.error)
        if failure is None or not caught:
            # Nothing that is counted comes after it.
            return Chunk(block, Framed(chunk.marks, {"bad": [count]}))
        error = failure.release()
        marks = Framed(chunk.marks, lambda used: {"bad": [count + (used > size)]})
        position = _position(chunk, error)
        over = self._enter(bad_record(node, 0, position, error))
        if over is not None:
            return Chunk(Block(block.values, block.positions, over, block.metadata), marks)
        try:
            element = node.stand_in(error)
        except Exception as own:
            failure = failed(own, node, position)
            return Chunk(Block(block.values, block.positions, failure, block.metadata), marks)
        if node.drops:
            return Chunk(Block(block.values, block.positions, None, block.metadata), marks)
        return Chunk(_with(block, element, position), marks)

    def _enter(self, record: BadRecord) -> Failure | None:
        if self._notes is not None:
            self._notes.append(record)
            self._ledger.counts[0] += 1
            return None
        over = self._ledger.enter(record)
        return None if over is None else Failure(over)

    def state(self) -> State:
        return {"parent": self._input.state(), "bad": list(self._ledger.counts)}

    def restore(self, state: State) -> None:
        self._ledger.restore(state["bad"])
        self._input.restore(state["parent"])

    def fields(self) -> Fields:
        return Fields(parent=Inner(self._input), bad=BadCounts(1, given_by(self._input)))

    def most_before(self, state: State | None) -> int | None:
        return self._input.most_before(state and state["parent"])

    def state_for(self, index: int) -> State:
        if self._node.drops:
            return super().state_for(index)
        return {"parent": self._input.state_for(index), "bad": [0]}

    def index_in(self, state: State) -> int:
        if self._node.drops:
            return super().index_in(state)
        return self._input.index_in(state["parent"])


def _position(chunk: Chunk, error: Exception) -> int:
    """The position of the dataset that failed, if that is known."""
    try:
        return innermost_index(chunk.marks.at(len(chunk.block) + 1)) - 1
    except Exception:  # Several datasets, or a user's own stream, have other states, or none.
        # The note in the error does not depend on how the stream was cut.
        return (where_raised(error) or ("", 0))[1]


def _with(block: Block, element: Any, position: int) -> Block:
    """A block with one more element."""
    rows = [*block.rows(), element]
    positions = np.append(block.positions, np.int64(position))
    metadata = block.metadata
    if metadata is not None:
        metadata = [*metadata, RecordMetadata(position)]
    return Block(rows, positions, None, metadata)
