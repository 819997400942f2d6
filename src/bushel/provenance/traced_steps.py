"""Steps over tagged elements: the user's functions get the values, tags are kept."""

from collections.abc import Sequence
from typing import Any

from bushel.batch.unbatch import UnbatchNode
from bushel.core.block import Block, Columns, Failure
from bushel.core.frozen import frozen
from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node
from bushel.core.positions import Positions
from bushel.core.step import How, OverOne
from bushel.core.stream import Stream
from bushel.order.windows import StreamWindowsNode, WindowsStream
from bushel.provenance.tags import FailedElements, Tagged, TagsOfParts, TagsOfRows, tags_of_rows


class _OverValues(Node):
    """A step over tagged elements that does what another step does with their values."""

    __slots__ = ()
    input: Node
    step: Any

    def describe(self) -> str:
        return str(self.step.describe())

    @property
    def label(self) -> str:
        return str(self.step.label)


@frozen
class TracedEach(_OverValues, Each):
    """Changes values, or only counts elements if their values are not needed."""

    input: Node
    step: Each
    failed: FailedElements
    runs: bool

    @property
    def uses_positions(self) -> bool:  # type: ignore[override]
        return self.step.uses_positions

    @property
    def counter(self) -> str:  # type: ignore[override]
        return self.step.counter

    @property
    def lane(self) -> tuple[int, int]:  # type: ignore[override]
        return self.step.lane

    def apply(self, block: Block) -> Block:
        if not self.runs:
            return block
        rows = block.rows()
        made = self.step.apply(
            Block([row.value for row in rows], block.positions, block.failure, block.metadata)
        )
        if len(made) < len(rows):
            self.failed.note(made.failure, rows[len(made)].tag)
        values = zip(made.rows(), rows, strict=False)
        tagged = [Tagged(value, row.tag) for value, row in values]
        return Block(tagged, made.positions, made.failure, made.metadata)


@frozen
class TracedDrop(_OverValues, Drop):
    """Keeps the elements whose values are kept."""

    input: Node
    step: Drop

    def keep(self, rows: Sequence[Any], positions: Positions) -> tuple[list[bool], Failure | None]:
        return self.step.keep([row.value for row in rows], positions)


@frozen
class TracedExpand(_OverValues, Expand):
    """Gives new elements the tag of the old one; those made of a batch, the tags of its rows."""

    input: Node
    step: Expand

    @property
    def fan_out(self) -> int:
        return self.step.fan_out

    def expand(
        self, rows: Sequence[Any], positions: Positions
    ) -> tuple[list[Sequence[Any]], Failure | None]:
        made, failure = self.step.expand([row.value for row in rows], positions)
        tagged: list[Sequence[Any]] = []
        for row, several in zip(rows, made, strict=False):
            apart = isinstance(self.step, UnbatchNode)
            count = len(several)
            tags = tags_of_rows(row.tag, count) if apart else [row.tag] * count
            tagged.append(list(map(Tagged, several, tags)))
        return tagged, failure


@frozen
class TracedFold(_OverValues, Fold):
    """Makes batches that have the tags of their rows."""

    input: Node
    step: Fold
    failed: FailedElements
    runs: bool

    @property
    def group_size(self) -> int:
        return self.step.group_size

    @property
    def drops_short_group(self) -> bool:
        return self.step.drops_short_group

    def fold(self, group: list[Any] | Columns, number: int) -> Sequence[Any]:
        rows = group if isinstance(group, list) else group.rows()
        tag = TagsOfRows([row.tag for row in rows])
        if not self.runs:
            return (Tagged(None, tag),)
        try:
            (made,) = self.step.fold([row.value for row in rows], number)
        except Exception as error:
            self.failed.note(Failure(error), tag)
            raise
        return (Tagged(made, tag),)


@frozen
class TracedGuard(_OverValues, Guard):
    """Gives the replacement of a failed element that element's tag."""

    input: Node
    step: Guard
    failed: FailedElements
    # Records are not listed a second time.
    quarantine: str | None = None

    @property
    def budget(self) -> int | None:  # type: ignore[override]
        return self.step.budget

    @property
    def drops(self) -> bool:
        return self.step.drops

    def catches(self, error: Exception) -> bool:
        return self.step.catches(error)

    def stand_in(self, error: Exception) -> Any:
        tag = self.failed.tag_of(error)
        made = self.step.stand_in(error)
        return made if tag is None else Tagged(made, tag)


@frozen
class TaggedStandIns(Each):
    """Tags the replacement of an element that failed while it was read, before it had a tag."""

    input: Node
    # The dataset to which the positions of the elements belong, if there is one.
    origin: int | None

    def apply(self, block: Block) -> Block:
        rows = [
            row if isinstance(row, Tagged) else Tagged(row, self._tag(position))
            for row, position in zip(block.rows(), block.positions.tolist(), strict=True)
        ]
        return Block(rows, block.positions, block.failure, block.metadata)

    def _tag(self, position: int) -> Any:
        return None if self.origin is None else (self.origin, position)

    def describe(self) -> str:
        return ""


@frozen
class TaggedTuples(Each):
    """Makes one tagged element of a tuple of them."""

    input: Node

    def apply(self, block: Block) -> Block:
        rows = []
        for row in block.rows():
            parts = [part for part in row if isinstance(part, Tagged)]
            values = tuple(part.value if isinstance(part, Tagged) else part for part in row)
            rows.append(Tagged(values, TagsOfParts([part.tag for part in parts])))
        return Block(rows, block.positions, block.failure, block.metadata)

    def describe(self) -> str:
        return ""


@frozen
class TracedWindows(OverOne):
    """Makes windows that have the tags of their elements."""

    input: Node
    step: StreamWindowsNode
    runs: bool
    one_each = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return _TracedWindowsStream(inputs[0], self.step, self.runs)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        return self.step.length_after(lengths)

    def describe(self) -> str:
        return self.step.describe()


class _TracedWindowsStream(WindowsStream):
    def __init__(self, input: Stream, node: StreamWindowsNode, runs: bool) -> None:
        super().__init__(input, node)
        self._runs = runs

    def joined(self, window: Block) -> Any:
        rows = window.rows()
        values = Block([row.value for row in rows], window.positions)
        return Tagged(
            super().joined(values) if self._runs else None, TagsOfRows([r.tag for r in rows])
        )
