"""Sources of tagged elements: datasets with positions, files with their bytes."""

from collections.abc import Sequence

from bushel.core.block import Block
from bushel.core.frozen import frozen
from bushel.core.node import Each, Node
from bushel.core.state import State
from bushel.core.step import How, Step
from bushel.core.stream import Chunk, OneInput, Stream
from bushel.provenance.tags import Tagged
from bushel.sources.tfrecord.file_stream import FileStreamNode


@frozen
class PositionTags(Each):
    """Positions in place of elements whose values are not needed."""

    input: Node
    origin: int

    def apply(self, block: Block) -> Block:
        origin = self.origin
        rows = [Tagged(None, (origin, position)) for position in block.positions.tolist()]
        return Block(rows, block.positions, block.failure)

    def describe(self) -> str:
        return ""


@frozen
class ElementTags(Each):
    """Elements of a random-access dataset, each with its position."""

    input: Node
    origin: int
    tags_none: bool
    # By the sampler's key instead.
    by_key: bool
    first: int
    stride: int

    def apply(self, block: Block) -> Block:
        if self.by_key:
            numbers = [record.record_key for record in block.metadata or ()]
        else:
            numbers = ((block.positions - self.first) // self.stride).tolist()
        rows = [
            None if row is None and not self.tags_none else Tagged(row, (self.origin, number))
            for row, number in zip(block.rows(), numbers, strict=True)
        ]
        return Block(rows, block.positions, block.failure, block.metadata)

    def describe(self) -> str:
        return ""


@frozen
class TracedFile(Step):
    """The records of a file, each with the byte at which it starts."""

    step: FileStreamNode
    origin: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return _TracedFileStream(self.step.open(inputs, how), self.origin)

    def describe(self) -> str:
        return self.step.describe()


class _TracedFileStream(OneInput):
    def __init__(self, input: Stream, origin: int) -> None:
        super().__init__(input)
        self._origin = origin

    def pull(self, want: int) -> Chunk | None:
        chunk = self._input.pull(want)
        if chunk is None:
            return None
        block = chunk.block
        rows = [
            Tagged(row, (self._origin, chunk.marks.at(number)["reader_offset"]))
            for number, row in enumerate(block.rows())
        ]
        return Chunk(Block(rows, block.positions, block.failure, block.metadata), chunk.marks)

    def state(self) -> State:
        return self._input.state()

    def restore(self, state: State) -> None:
        self._input.restore(state)
