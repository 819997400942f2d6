"""A fragment: a part of a pipeline that a worker evaluates; its tasks and outcomes.

It begins with a random-access dataset, of which a task names a range of positions, or with a
block that comes with the task. What follows are steps that need no element but their own
(and batches, where it is known beforehand which elements make one). The worker runs the very
streams that would run in the trainer, over that range, and sends back what they made together
with the states between the elements.
"""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bushel.batch.batch import BatchNode
from bushel.core.block import Block, Columns, Failure, join
from bushel.core.frozen import plain
from bushel.core.node import Guard, Node, Place, walk
from bushel.core.options import ReadOptions
from bushel.core.places import NOWHERE
from bushel.core.state import State, innermost_index
from bushel.core.state_fields import Fields, Whole
from bushel.core.stream import Chunk, FixedMarks, Marks, SeriesMarks, Stream
from bushel.errors import FatalElementError, WorkerError
from bushel.on_error.bad_records import BadRecord
from bushel.run.positional import PositionalStream
from bushel.run.shared_threads import ThreadsOfStreams
from bushel.run.spans import TaskSpans
from bushel.run.step_streams import single_step
from bushel.run.thread_time import Stopwatch
from bushel.transport.arena import Arena
from bushel.transport.failures import PackedFailure, pack_failure, unpack_failure
from bushel.transport.own_classes import dump_own
from bushel.transport.rows import pack_values
from bushel.workers.noted_steps import Note, Watch
from bushel.workers.step_clock import StepClock, StepsSpent

# A task takes a few tenths of a millisecond beside its work, here and there, and wakes whoever
# waits for it, which takes longer than that on a machine that is busy. And as long as the tasks
# that a worker has take, nobody need be there to give it more: a trainer may not have a core at
# once, or do something else for a while.
TASK_SECONDS = 0.05
_ALL = 1 << 40
# With a smaller share of their time on a core, elements wait for something.
_WAITING = 0.5
# About how long a thread keeps its core when others want it: shorter tasks are seldom in the
# queue for one, and what the clock says of them is true.
_SLICE_SECONDS = 0.004
# One that took longer may have been, and so may the next ones.
_CLOSELY = 8


@plain
class Fragment:
    """What a worker must know before it is given tasks."""

    # A random-access dataset; None where blocks come with the tasks.
    root: Node | None
    steps: tuple[Node, ...]
    read_options: ReadOptions
    allow_nones: bool
    # Whether what a sampler said of the elements is needed after the fragment.
    keeps_metadata: bool
    # How many workers have the cores together.
    sharing: int = 1

    def nodes(self) -> list[Node]:
        """All nodes, each once: a node's place in this list is its number."""
        met: dict[int, Node] = {}
        for node in (*self.steps, *(walk(self.root) if self.root is not None else ())):
            met.setdefault(id(node), node)
        return list(met.values())


def detached(step: Node) -> Node:
    """A step of a fragment, without what it reads from."""
    return replace(step, input=NOWHERE)  # type: ignore[type-var]


class Fatal(NamedTuple):
    """An element that is known to end workers: where it does, and what to say of it."""

    operation: int
    position: int
    text: str


@plain
class TaskMessage:
    """One task, as it is sent to a worker."""

    task: int
    fragment: int
    state: State
    # Positions up to here; ignored where a block is given.
    stop: int
    carefully: bool
    given: Any = None
    # An element that ended workers, and is not to be touched again.
    fatal: "Fatal | None" = None
    # Whether its outcome is to tell what each step did and took.
    timed: bool = False
    # And when, for a trace.
    traced: bool = False


@plain
class Outcome:
    """What became of a task."""

    task: int
    values: list[Any] | Columns
    positions: npt.NDArray[Any]
    metadata: list[Any] | None
    failure: PackedFailure | None
    marks: Marks
    # For each step that drops elements: which ones it kept, in order.
    kept: list[list[Any]]
    # The bad records that were passed over.
    bad: list[BadRecord]
    # How long it took, and how many elements could as well have been waited for meanwhile.
    seconds: float
    side_by_side: int
    # How long the worker had nothing to do before.
    idle_seconds: float
    # What each step did and took, where that is counted.
    steps: StepsSpent | None = None
    # And when, where a trace is wanted.
    spans: TaskSpans | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        positions: Any = self.positions
        if len(positions) and positions.dtype == np.int64:
            first, last = int(positions[0]), int(positions[-1])
            if last - first == len(positions) - 1 and (len(positions) == 1 or _follow(positions)):
                # An array takes as long to be pickled as all the rest.
                positions = (first, last + 1)
        return _outcome, (
            self.task,
            self.values,
            positions,
            self.metadata,
            self.failure,
            self.marks,
            self.kept,
            self.bad,
            self.seconds,
            self.side_by_side,
            self.idle_seconds,
            self.steps,
            self.spans,
        )

    def chunk(self) -> Chunk:
        """The elements, as the stream would have given them."""
        failure = None if self.failure is None else unpack_failure(self.failure)
        block = Block(self.values, self.positions, failure, self.metadata)
        return Chunk(block, self.marks)


def _follow(positions: npt.NDArray[Any]) -> bool:
    """Whether each one is one more than the one before."""
    return bool((positions[1:] - positions[:-1] == 1).all())


def _outcome(task: int, values: Any, positions: Any, *rest: Any) -> Outcome:
    """Makes an outcome again, on the other side."""
    if type(positions) is tuple:
        positions = np.arange(*positions, dtype=np.int64)
    return Outcome(task, values, positions, *rest)


class Tally:
    """In place of the watch over filters, which belongs to the whole stream: takes notes."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def reset(self) -> None:
        self.notes = []

    def count(self, keep: npt.NDArray[np.bool_]) -> None:
        self.notes.append(keep)

    def count_kept(self, count: int) -> None:
        self.notes.append(count)


class BadNotes(list[BadRecord]):
    """The bad records that one step met, or the dataset that a fragment begins with."""

    # How many guards it has.
    guards = 0


def numbered(notes: Sequence[BadNotes]) -> list[BadRecord]:
    """All of them, with the numbers that their guards have in the fragment."""
    first, bad = 0, []
    for records in notes:
        bad += [replace(record, guard=first + record.guard) for record in records]
        first += records.guards
    return bad


class GivenStream(Stream):
    """A block that came with the task, as a stream; states count its elements."""

    def __init__(self) -> None:
        self._chunk: Chunk | None = None

    def give(self, block: Block) -> None:
        self._chunk = Chunk(block, _CountMarks())

    def pull(self, want: int) -> Chunk | None:
        chunk, self._chunk = self._chunk, None
        return chunk

    def state(self) -> State:
        return {"next_index": 0}

    def restore(self, state: State) -> None:
        """Nothing: the task says where it is."""

    def fields(self) -> Fields:
        return Fields(next_index=Whole())


class _CountMarks(Marks):
    __slots__ = ()

    def at(self, used: int) -> State:
        return {"next_index": used}

    def before(self, index: int) -> State:
        return {"next_index": index, "before": True}


class TaskClock:
    """Measures one task after the other, asking the system no more than the answer is worth.

    A question takes little by itself. But a batch of some megabytes has just been through the
    processor's caches, and whatever comes next finds nothing there.
    """

    def __init__(self, side_by_side: bool) -> None:
        """`side_by_side` says whether it matters that elements wait for something."""
        self._side_by_side = side_by_side
        # Tasks that are still to be looked at closely.
        self._closely = _CLOSELY
        self._began = self._cpu_began = 0.0
        self._stopwatch: Stopwatch | None = None

    def start(self) -> float:
        """Begins with a task; returns when that was."""
        self._stopwatch = Stopwatch() if self._closely else None
        self._cpu_began = time.process_time() if self._side_by_side else 0.0
        self._began = time.perf_counter()
        return self._began

    def read(self) -> tuple[float, bool]:
        """How many seconds the task took, and whether most of them were spent waiting."""
        seconds = elapsed = time.perf_counter() - self._began
        if self._stopwatch is not None:
            seconds = self._stopwatch.read().seconds
        waited = False
        if self._side_by_side:
            # Other threads may have done it, so it is the time of all of them that counts.
            waited = time.process_time() - self._cpu_began < _WAITING * seconds
        if waited or elapsed > _SLICE_SECONDS:
            self._closely = _CLOSELY
        else:
            self._closely = max(0, self._closely - 1)
        # What only seems to wait may have been in the queue.
        return seconds, waited and self._stopwatch is not None


class Runner:
    """Evaluates the tasks of one fragment, in the worker."""

    # When the last task was done, of whatever fragment: a worker does one at a time.
    _done_at: ClassVar[float | None] = None

    def __init__(
        self, fragment: Fragment, note: Note, threads: ThreadsOfStreams | None = None
    ) -> None:
        """`threads` are those of all fragments, some of which share theirs."""
        self._fragment = fragment
        self._shared_threads = threads
        self._note = note
        self._steps: StepClock | None = None
        options = fragment.read_options
        self._threads = max(1, min(options.num_threads, options.prefetch_buffer_size))
        # By whether it is careful, and timed.
        self._made: dict[tuple[bool, bool], tuple[Stream, Stream, list[Tally], list[BadNotes]]] = {}
        self._arena: list[Arena] = []
        self._clock = TaskClock(self._threads > 1)
        self._fatal: Fatal | None = None

    def run(self, message: TaskMessage, arena: Arena | None) -> Outcome:
        """Evaluates one task."""
        kind = message.carefully, message.timed
        if kind not in self._made:
            self._made[kind] = self._make(*kind)
        stream, root, tallies, bad = self._made[kind]
        self._fatal = message.fatal
        for notes in bad:
            notes.clear()
        if message.timed and self._steps is not None:
            self._steps.begin(message.traced)
        began = self._clock.start()
        idle_seconds = 0.0 if Runner._done_at is None else began - Runner._done_at
        if isinstance(root, PositionalStream):
            root.limit(message.stop)
        elif isinstance(root, GivenStream):
            root.give(unpack_block(message.given))
        self._arena[:] = [] if arena is None else [arena]
        try:
            block, marks = _pull_all(stream, message.state)
        finally:
            self._arena.clear()
        failure = None if block.failure is None else pack_failure(block.failure)
        values = pack_values(block.values, None if arena is None else arena.allocate)
        seconds, waited = self._clock.read()
        steps = None
        if message.timed and self._steps is not None:
            steps = self._steps.read(seconds, innermost_index(message.state))
        spans: TaskSpans | None = None
        if steps is not None and self._steps is not None and self._steps.spans is not None:
            ident, start = threading.get_native_id(), int(began * 1e9)
            spans = os.getpid(), ident, start, time.perf_counter_ns() - start, self._steps.spans
        Runner._done_at = time.perf_counter()
        return Outcome(
            message.task,
            values,
            block.positions,
            block.metadata if self._fragment.keeps_metadata else None,
            failure,
            marks,
            [tally.notes for tally in tallies],
            numbered(bad),
            seconds,
            self._threads if waited else 1,
            idle_seconds,
            steps,
            spans,
        )

    def _note_or_stop(self, operation: int, position: int = -1, key: str = "") -> None:
        """Notes what comes next, unless that is known to end this process."""
        fatal = self._fatal
        if fatal is not None and (operation, position) == fatal[:2]:
            raise FatalElementError(fatal.text)
        self._note(operation, position, key)

    def _make(
        self, carefully: bool, timed: bool
    ) -> tuple[Stream, Stream, list[Tally], list[BadNotes]]:
        fragment = self._fragment
        note = self._note_or_stop if carefully else self._note
        if timed:
            if self._steps is None:
                self._steps = StepClock(self._note_or_stop)
            note = self._steps.note
        watch = Watch(note, carefully, _last_batch(fragment), self._arena)
        numbers = {id(node): number for number, node in enumerate(fragment.nodes())}
        tallies: list[Tally] = []
        bad: list[BadNotes] = [BadNotes()]

        def tally(_label: str) -> Any:
            tallies.append(Tally())
            return tallies[-1]

        root: GivenStream | PositionalStream
        if fragment.root is None:
            root = GivenStream()
        else:
            node = watch.tree(fragment.root, numbers)
            root = PositionalStream(
                node,
                fragment.read_options,
                fragment.allow_nones,
                tally("root"),
                bad_records=bad[0],
                sharing=fragment.sharing,
                # All of a task, which nobody gets a part of before it is done.
                block_seconds=TASK_SECONDS,
                threads=self._shared_threads,
            )
            bad[0].guards = len(root.guards)
        stream: Stream = root
        for step in fragment.steps:
            watched = watch.step(step, numbers[id(step)], step)
            if isinstance(step, Guard):
                bad.append(BadNotes())
                bad[-1].guards = 1
            stream = single_step(watched, stream, tally, bad[-1])
        return stream, root, tallies, bad


def _last_batch(fragment: Fragment) -> Node | None:
    """The batch whose result is what is sent, unchanged."""
    node: Node | None = fragment.steps[-1] if fragment.steps else fragment.root
    while isinstance(node, Place):
        node = node.input
    return node if isinstance(node, BatchNode) and node.batch_fn is None else None


def _pull_all(stream: Stream, state: State) -> tuple[Block, Marks]:
    """Everything that a stream has from a state on, up to its end or a failure."""
    stream.restore(state)
    chunks: list[Chunk] = []
    nothing: Marks = FixedMarks(state)
    while (chunk := stream.pull(_ALL)) is not None:
        nothing = chunk.marks
        if len(chunk.block) or chunk.block.failure is not None:
            chunks.append(chunk)
            if chunk.block.failure is not None:
                break
    if not chunks:
        return Block([], np.empty(0, dtype=np.int64)), nothing
    if len(chunks) == 1:
        return chunks[0].block, chunks[0].marks
    marks = SeriesMarks([(chunk.marks, len(chunk.block)) for chunk in chunks])
    return join([chunk.block for chunk in chunks]), marks


def pack_block(block: Block) -> Any:
    """Makes a block ready to travel to a worker; its failure stays behind."""
    return pack_values(block.values), block.positions, block.metadata


def unpack_block(packed: Sequence[Any]) -> Block:
    values, positions, metadata = packed
    return Block(values, positions, None, metadata)


def up_to_unpicklable(outcome: Outcome, error: Exception) -> Outcome:
    """What became of a task, with a failure in the place of the element that cannot travel."""
    rows: list[Any] = []
    values = outcome.values
    for row in values if isinstance(values, list) else values.rows():
        try:
            dump_own(row)
        except Exception as own_error:
            error = own_error
            break
        rows.append(row)
    position = int(outcome.positions[len(rows)]) if len(rows) < len(outcome.positions) else -1
    refusal = WorkerError(
        f"the element at position {position} cannot be sent from a worker process: {error}. "
        "Return what can be pickled (arrays, numbers, strings, plain objects), or use "
        "worker_count=0."
    )
    outcome.failure = pack_failure(Failure(refusal))
    outcome.values, outcome.positions = rows, outcome.positions[: len(rows)]
    if outcome.metadata is not None:
        outcome.metadata = outcome.metadata[: len(rows)]
    return outcome
