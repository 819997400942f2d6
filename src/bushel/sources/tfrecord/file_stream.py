"""The stream behind `TFRecordIterDataset`: a file read sequentially; a byte is the state."""

from collections.abc import Sequence

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.frozen import frozen
from bushel.core.node import Node, failed
from bushel.core.positions import Keys
from bushel.core.state import State
from bushel.core.state_fields import Fields, Whole
from bushel.core.step import How, Step
from bushel.core.stream import Chunk, Marks, Stream
from bushel.errors import RecordError, StateRangeError
from bushel.files.local import ByteFile, OpenFiles
from bushel.sources.indexed_unpacked import unpacked
from bushel.sources.tfrecord.framing import records_from
from bushel.sources.tfrecord.scan import begins_with_record


@frozen
class FileStreamNode(Step):
    """The records of a file, one after the other."""

    path: str
    name: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return RecordStream(self)

    def describe(self) -> str:
        # Without the path, as a file may be elsewhere when a stream is resumed.
        return self.name

    @property
    def label(self) -> str:
        return f"{self.name}({self.path!r})"


class _OffsetMarks(Marks):
    """The bytes at which records begin."""

    __slots__ = ("_bounds",)

    def __init__(self, bounds: Keys) -> None:
        self._bounds = bounds

    def at(self, used: int) -> State:
        return {"reader_offset": int(self._bounds[used])}


class RecordStream(Stream):
    """Reads consecutive records from a place in the file; the place is the state."""

    def __init__(self, node: FileStreamNode) -> None:
        self._node = node
        self._files = OpenFiles()
        self._file: ByteFile | None = None
        self._go_to(0)

    def _go_to(self, offset: int) -> None:
        self._offset = offset
        # The number of records handed out since that place.
        self._count = 0
        # Records that were read and not handed out; the bounds begin with the offset.
        self._records: list[bytes] = []
        self._bounds: Keys = np.array([offset])
        self._wrong: RecordError | None = None

    def pull(self, want: int) -> Chunk | None:
        file = self._opened()
        if not self._records and self._wrong is None:
            if self._offset > file.size:
                raise StateRangeError(
                    f"this state is at byte {self._offset} of {self._node.path}, which has "
                    f"{file.size}: it belongs to other data."
                )
            if self._offset == file.size:
                return None
            self._records, self._bounds, self._wrong = records_from(file, self._offset)
        rows, bounds = self._records[:want], self._bounds
        used = len(rows)
        failure: Failure | None = None
        if self._wrong is not None and used == len(self._records):
            failure = failed(self._wrong, self._node, self._count + used)
            self._wrong = None
            used += 1
        positions = np.arange(self._count, self._count + len(rows), dtype=np.int64)
        self._count += used
        self._records, self._bounds = self._records[used:], bounds[used:]
        self._offset = int(bounds[used])
        return Chunk(Block(rows, positions, failure), _OffsetMarks(bounds[: used + 1]))

    def _opened(self) -> ByteFile:
        if self._file is None:
            file = self._files.get(self._node.path)
            path = unpacked(file, begins_with_record)
            self._file = file if path == self._node.path else self._files.get(path)
        return self._file

    def state(self) -> State:
        return {"reader_offset": self._offset}

    def restore(self, state: State) -> None:
        self._go_to(state["reader_offset"])

    def fields(self) -> Fields:
        return Fields(reader_offset=Whole())
