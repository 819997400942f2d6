"""The same pipeline, whose elements know where they come from.

Where functions decide what is in a step (a filter, a pack), or a memory does (a buffer that is
shuffled, a mixture), the pipeline is run again from a state. Its own streams do that, over elements
that are tagged: a function of the user's sees the value and not the tag, a batch has the tags of
its rows. What nobody needs for the answer is not read and not called: behind a mixture of files
that are only shuffled and batched, not a byte.

Descriptions are those of the pipeline, so its states fit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bushel.batch.rebatch import RebatchNode
from bushel.batch.regroup import Machine, Regroup
from bushel.batch.unbatch import UnbatchNode
from bushel.cache.memory import CacheNode
from bushel.core.block import Block, Columns, Failure
from bushel.core.frozen import frozen, plain
from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node, Place, with_inputs
from bushel.core.options import DatasetOptions, ReadOptions
from bushel.core.places import (
    CustomStreamNode,
    OptionsNode,
    PrefetchNode,
    ToStreamNode,
    WorkersNode,
    droppers,
)
from bushel.core.positions import Positions
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.core.step import How, Join, OverOne, Step
from bushel.core.stream import Chunk, OneInput, Stream
from bushel.lanes.stream import OwnLanesNode
from bushel.order.interleave import InterleaveNode, Nodes
from bushel.order.sampled import GlobalIndexNode, SampledNode
from bushel.order.windows import StreamWindowsNode, WindowsStream
from bushel.order.zip import ZipNode
from bushel.provenance.records import NotKnown
from bushel.run.build import build_stream
from bushel.sources.memory import RangeNode
from bushel.sources.tfrecord.stream import FileStreamNode

_INLINE = ReadOptions(0, 0)


@frozen
class Origin:
    """One of the datasets, or files, that a pipeline reads."""

    node: Node
    # Whether its elements are known by the keys of their records, rather than by their positions.
    by_key: bool
    lane: int | None


@plain
class Rows:
    """What is known of a batch: the tags of its rows."""

    rows: list[Any]


@plain
class Several:
    """What is known of an element that is made of several, which are no rows of it."""

    parts: list[Any]


class Tagged:
    """An element, or None in its place where nobody looks at it, and where it comes from.

    That is a pair of an origin's number and a position there, `Rows`, or `Several`.
    """

    __slots__ = ("tag", "value")

    def __init__(self, value: Any = None, tag: Any = None) -> None:
        # (Without a tag: what lanes are padded with.)
        self.value, self.tag = value, tag


class Trace:
    """Makes pipelines whose elements are tagged, and remembers what the tags mean."""

    def __init__(self, believes: bool) -> None:
        """Whether it is believed that no function leaves out an element by returning None."""
        self._believes = believes
        self.origins: list[Origin] = []
        # Of errors that may be passed over: the elements that failed.
        self._failed: dict[int, tuple[Exception, Any]] = {}
        self._lane: int | None = None
        # Whether data is read, and functions are called; and whether positions may have no element.
        self.reads = self.drops = False

    def of(self, node: Node, live: bool = False) -> Node:
        """The tagged stream of a node; `live` where somebody looks at the values of its elements.

        >>> from bushel import MapDataset
        >>> trace = Trace(believes=True)
        >>> ds = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2).batch(2)
        >>> stream = build_stream(trace.of(ds._stream_node()))
        >>> stream.pull(1).block.rows()[0].tag.rows
        [(0, 1), (0, 3)]
        """
        # A loop, as chains may be longer than calls may be nested.
        steps: list[tuple[Node, bool]] = []
        while len(node.inputs) == 1 and not isinstance(
            node, (ToStreamNode, CustomStreamNode, Join)
        ):
            steps.append((node, live))
            live = live or isinstance(node, (Drop, Expand, Guard, Regroup))
            (node,) = node.inputs
        origin = len(self.origins) if isinstance(node, ToStreamNode) else None
        made = self._first(node, live)
        for step, is_live in reversed(steps):
            made = self._after(made, step, is_live)
            if isinstance(step, Guard):
                made = _Retagged(made, origin)
        return made

    def _origin(self, node: Node, by_key: bool = False) -> int:
        self.origins.append(Origin(node, by_key, self._lane))
        return len(self.origins) - 1

    def _first(self, node: Node, live: bool) -> Node:
        if isinstance(node, ToStreamNode):
            return self._dataset(node, live)
        if isinstance(node, FileStreamNode):
            self.reads = True
            return _TracedFile(node, self._origin(node, by_key=True))
        if isinstance(node, InterleaveNode):
            datasets = _TracedNodes(node.datasets, self, live)
            return replace(node, datasets=datasets, open_dataset=_open)
        if isinstance(node, OwnLanesNode):
            return self._lanes(node, live)
        if isinstance(node, CustomStreamNode) or not isinstance(node, Step) or not node.inputs:
            raise NotKnown(
                f"`{node.label}` is an iterator of your own, which does not tell what it reads"
            )
        made = with_inputs(node, [self.of(part, live) for part in node.inputs])
        return _Untupled(made) if isinstance(node, ZipNode) else made

    def _lanes(self, node: OwnLanesNode, live: bool) -> Node:
        if node.pads and live:
            raise NotKnown(f"`{node.label}` pads, and a later step looks at what it pads with")
        parts = []
        for number, part in enumerate(node.parts):
            self._lane = node.first + number
            parts.append(self.of(part, live))
        self._lane = None
        made = replace(node, parts=tuple(parts), lane_of=lambda lane: self.of(node.lane_of(lane)))
        return _Untupled(made) if node.pads else made

    def _dataset(self, node: ToStreamNode, live: bool) -> Node:
        """A random-access dataset, each element with its position."""
        dataset: Node = node.input
        drops = not node.allow_nones and (not self._believes or any(droppers(dataset)))
        self.drops = self.drops or drops
        first = _after_eaches(dataset)
        by_key = isinstance(first, SampledNode) and (live or drops)
        origin = self._origin(first if by_key else dataset, by_key)
        if not live and not drops:
            return ToStreamNode(
                _Positions(RangeNode(range(dataset.length())), origin), _INLINE, node.allow_nones
            )
        self.reads = True
        while self._believes and not live and isinstance(dataset, Each):
            dataset = dataset.input  # Nothing after it leaves elements out, or looks at them.
        tags = _Tags(dataset, origin, node.allow_nones, by_key, *_relabelled(dataset))
        return ToStreamNode(tags, _INLINE, node.allow_nones)

    def _after(self, input: Node, node: Node, live: bool) -> Node:
        if isinstance(node, (WorkersNode, PrefetchNode)):
            return input
        if isinstance(node, Each):
            if not live and not node.uses_positions:
                return input
            self.reads = self.reads or live
            return _TracedEach(input, node, self, live)
        if isinstance(node, Drop):
            return _TracedDrop(input, node)
        if isinstance(node, Expand):
            return _TracedExpand(input, node)
        if isinstance(node, Fold) and node.one_per_group:
            return _TracedFold(input, node, self, live)
        if isinstance(node, Guard):
            return _TracedGuard(input, node, self)
        if isinstance(node, Regroup):
            return _TracedRegroup(input, node)
        if isinstance(node, StreamWindowsNode):
            return _TracedWindows(input, node, live)
        if isinstance(node, CacheNode):
            return replace(node, input=input, path=None, max_bytes=None)
        if isinstance(node, (Fold, OptionsNode, Place)) or (
            isinstance(node, Step) and node.same_elements
        ):
            return with_inputs(node, [input])
        raise NotKnown(f"`{node.label}` does not tell what it makes its elements of")

    def note(self, failure: Failure | None, tag: Any) -> None:
        """Takes note of the element for which a function failed."""
        if failure is not None and failure.error is not None:
            self._failed[id(failure.error)] = failure.error, tag

    def tag_of(self, error: Exception) -> Any:
        """The element that failed, where that is known."""
        return self._failed.pop(id(error), (None, None))[1]


def _open(node: Node, options: DatasetOptions | None) -> Stream:
    return build_stream(node if options is None else OptionsNode(node, options))


def _relabelled(dataset: Node) -> tuple[int, int]:
    """Elements of a loader count over all shards: number = first + position * stride."""
    while isinstance(dataset, Each):
        if isinstance(dataset, GlobalIndexNode):
            return dataset.shard_index, dataset.shard_count
        dataset = dataset.input
    return 0, 1


def _after_eaches(dataset: Node) -> Node:
    while isinstance(dataset, Each):
        dataset = dataset.input
    return dataset


class _TracedNodes:
    """The datasets of an interleaved stream, each traced when it is its turn."""

    def __init__(self, nodes: tuple[Node, ...] | Nodes, trace: Trace, live: bool) -> None:
        self._nodes, self._trace, self._live = nodes, trace, live

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, number: int, /) -> Node | None:
        node = self._nodes[number]
        return None if node is None else self._trace.of(node, self._live)

    def listed(self) -> Sequence[Node]:
        """None: they are not made before it is their turn."""
        return ()


@frozen
class _Positions(Each):
    """Positions in the place of elements that nobody looks at."""

    input: Node
    origin: int

    def apply(self, block: Block) -> Block:
        origin = self.origin
        rows = [Tagged(None, (origin, position)) for position in block.positions.tolist()]
        return Block(rows, block.positions, block.failure)

    def describe(self) -> str:
        return ""


@frozen
class _Tags(Each):
    """Elements of a random-access dataset, each with its position."""

    input: Node
    origin: int
    tags_none: bool
    # By the key that a sampler gave, instead.
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


class _Traced(Node):
    """A step over tagged elements that does what another does over their values."""

    __slots__ = ()
    input: Node
    step: Any

    def describe(self) -> str:
        return str(self.step.describe())

    @property
    def label(self) -> str:
        return str(self.step.label)


@frozen
class _TracedEach(_Traced, Each):
    input: Node
    step: Each
    trace: Trace
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
            self.trace.note(made.failure, rows[len(made)].tag)
        values = zip(made.rows(), rows, strict=False)
        tagged = [Tagged(value, row.tag) for value, row in values]
        return Block(tagged, made.positions, made.failure, made.metadata)


@frozen
class _TracedDrop(_Traced, Drop):
    input: Node
    step: Drop

    def keep(self, rows: Sequence[Any], positions: Positions) -> tuple[list[bool], Failure | None]:
        return self.step.keep([row.value for row in rows], positions)


@frozen
class _TracedExpand(_Traced, Expand):
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
            tags = [row.tag] * len(several)
            apart = isinstance(self.step, UnbatchNode) and isinstance(row.tag, Rows)
            if apart and len(row.tag.rows) == len(several):
                tags = row.tag.rows
            tagged.append(list(map(Tagged, several, tags)))
        return tagged, failure


@frozen
class _TracedFold(_Traced, Fold):
    input: Node
    step: Fold
    trace: Trace
    runs: bool

    @property
    def group_size(self) -> int:
        return self.step.group_size

    @property
    def drops_short_group(self) -> bool:
        return self.step.drops_short_group

    def fold(self, group: list[Any] | Columns, number: int) -> Sequence[Any]:
        rows = group if isinstance(group, list) else group.rows()
        tag = Rows([row.tag for row in rows])
        if not self.runs:
            return (Tagged(None, tag),)
        try:
            (made,) = self.step.fold([row.value for row in rows], number)
        except Exception as error:
            self.trace.note(Failure(error), tag)
            raise
        return (Tagged(made, tag),)


@frozen
class _TracedGuard(_Traced, Guard):
    input: Node
    step: Guard
    trace: Trace
    # What was listed once is not listed again.
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
        tag = self.trace.tag_of(error)
        made = self.step.stand_in(error)
        return made if tag is None else Tagged(made, tag)


@frozen
class _Retagged(Each):
    """Tags what stands in for an element that failed as it was read, which had no tag yet."""

    input: Node
    # The dataset whose positions those of the elements are, where there is one.
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
class _Untupled(Each):
    """Makes one tagged element of a tuple of them."""

    input: Node

    def apply(self, block: Block) -> Block:
        rows = []
        for row in block.rows():
            parts = [part for part in row if isinstance(part, Tagged)]
            values = tuple(part.value if isinstance(part, Tagged) else part for part in row)
            rows.append(Tagged(values, Several([part.tag for part in parts])))
        return Block(rows, block.positions, block.failure, block.metadata)

    def describe(self) -> str:
        return ""


@frozen
class _TracedWindows(OverOne):
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
        return Tagged(super().joined(values) if self._runs else None, Rows([r.tag for r in rows]))


@frozen
class _TracedRegroup(Regroup):
    input: Node
    step: Regroup

    def machine(self) -> Machine:
        if isinstance(self.step, RebatchNode):
            return _TracedRebatcher(self.step)
        return _TracedMachine(self.step)

    def describe(self) -> str:
        return self.step.describe()


class _TracedMachine(Machine):
    """A machine that takes the values of tagged elements, one by one."""

    def __init__(self, node: Regroup) -> None:
        self._machine = node.machine()
        self.cuts_elements = self._machine.cuts_elements
        self._tags: list[Any] = []
        self._resumed: Any = None

    def begin(self, carried: Any) -> None:
        self._machine.begin(carried)
        self._tags, self._resumed = [], carried
        self._note()

    def _note(self) -> None:
        self.carried, self.complete = self._machine.carried, self._machine.complete

    def add(self, element: Any) -> bool:
        taken = self._machine.add(element.value)
        resumed, self._resumed = self._resumed, None
        self._note()
        # Of one that is cut, this group has a part; unless it found no room at all.
        cut = self.cuts_elements and self.carried is not None and self.carried != resumed
        if taken or cut:
            self._tags.append(element.tag)
        return taken

    def end(self, made_before: int) -> list[Any]:
        made = self._machine.end(made_before)
        self._note()
        members = self._machine.members(len(self._tags))
        batches = self._makes_batches
        tagged = []
        for value, numbers in zip(made, members, strict=False):
            tags = [self._tags[number] for number in numbers]
            tagged.append(Tagged(value, Rows(tags) if batches else Several(tags)))
        return tagged

    @property
    def _makes_batches(self) -> bool:
        return self._machine.makes_batches

    def finish(self, made: list[Any]) -> list[Any]:
        values = self._machine.finish([row.value for row in made])
        return [Tagged(value, row.tag) for value, row in zip(values, made, strict=True)]

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        return self._machine.state_of(parent, carried, used, made_before)

    def fields(self, input: Stream) -> Fields:
        return self._machine.fields(input)

    def read(self, state: State) -> tuple[Any, Any, int, int]:
        return self._machine.read(state)


class _TracedRebatcher(_TracedMachine):
    """Batches that are cut: of the tags of their rows, too, some go into the next one."""

    def __init__(self, node: RebatchNode) -> None:
        super().__init__(node)
        self._size = node.batch_size
        self._start = 0

    def begin(self, carried: Any) -> None:
        super().begin(carried)
        self._start = carried or 0

    def end(self, made_before: int) -> list[Any]:
        made = self._machine.end(made_before)
        self._note()
        rows: list[Any] = []
        for tag in self._tags:
            rows += tag.rows if isinstance(tag, Rows) else [tag]
        mine = rows[self._start : self._start + self._size]
        return [Tagged(value, Rows(mine)) for value in made]


@frozen
class _TracedFile(Step):
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


def leaves_of(tag: Any, row: int = 0) -> Iterable[tuple[int, Any]]:
    """For each record of an element its row, and its tag."""
    if tag is None:
        return
    if isinstance(tag, tuple):
        yield row, tag
        return
    parts = tag.rows if isinstance(tag, Rows) else tag.parts
    width = 0
    if isinstance(tag, Rows):
        first = parts[0] if parts else None
        width = len(first.rows) if isinstance(first, Rows) else 1
    for number, part in enumerate(parts):
        yield from leaves_of(part, row + number * width)
