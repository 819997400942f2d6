"""A fragment: a part of a pipeline that a worker evaluates; its tasks, their `Runner`, outcomes.

It begins with a random-access dataset, of which a task has a range of positions, or with a block
that comes with the task. Its other steps need no element but their own (and batches, if it is known
in advance which elements make one). The worker runs the same streams as the trainer would, over
that range, and returns the elements together with the states between them.
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
from bushel.core.block import Block, Columns, Failure, failure_of, join
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

# A task costs a few tenths of a millisecond besides its work, and wakes up the waiting trainer,
# which takes longer on a busy machine. And the tasks of a worker last until the trainer gives it
# more: it may not get a core at once, or do something else for a while.
TASK_SECONDS = 0.05
_ALL = 1 << 40
# If elements use a core for a smaller share of their time, they wait for something.
_WAITING = 0.5
# Roughly the time slice of a thread when others want its core: shorter tasks are seldom
# interrupted, so their wall time is reliable.
_SLICE_SECONDS = 0.004
# A longer task may have been interrupted, and so may the next ones.
_CLOSELY = 8


@plain
class Fragment:
    """A part of a pipeline for workers; they get it before any task."""

    # A random-access dataset; None if blocks come with the tasks.
    root: Node | None
    steps: tuple[Node, ...]
    read_options: ReadOptions
    allow_nones: bool
    # Whether the sampler's metadata of elements is needed after the fragment.
    keeps_metadata: bool
    # The number of workers that share the cores.
    sharing: int = 1

    def nodes(self) -> list[Node]:
        """All nodes, each once: a node's place in this list is its number."""
        met: dict[int, Node] = {}
        for node in (*self.steps, *(walk(self.root) if self.root is not None else ())):
            met.setdefault(id(node), node)
        return list(met.values())


def detached(step: Node) -> Node:
    """A step of a fragment, without its input."""
    return replace(step, input=NOWHERE)  # type: ignore[type-var]


class Fatal(NamedTuple):
    """An element that is known to kill workers: its place, and the error message."""

    operation: int
    position: int
    text: str


@plain
class TaskMessage:
    """One task, as it is sent to a worker."""

    task: int
    fragment: int
    state: State
    # The end of the positions; ignored if a block is given.
    stop: int
    carefully: bool
    given: Any = None
    # An element that killed workers, and must not be touched again.
    fatal: "Fatal | None" = None
    # Whether its outcome has statistics of each step.
    timed: bool = False
    # Whether these include spans, for a trace.
    traced: bool = False


@plain
class Outcome:
    """The result of a task."""

    task: int
    values: list[Any] | Columns
    positions: npt.NDArray[Any]
    metadata: list[Any] | None
    failure: PackedFailure | None
    marks: Marks
    # For each step that drops elements: which ones it kept, in order.
    kept: list[list[Any]]
    # Bad records that were skipped or replaced.
    bad: list[BadRecord]
    # Its seconds, and the number of elements that could have been waited for side by side.
    seconds: float
    side_by_side: int
    # Seconds that the worker was idle before.
    idle_seconds: float
    # Records and time of each step, if they are counted.
    steps: StepsSpent | None = None
    # The spans of steps, for a trace.
    spans: TaskSpans | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        positions: Any = self.positions
        if len(positions) and positions.dtype == np.int64:
            first, last = int(positions[0]), int(positions[-1])
            if last - first == len(positions) - 1 and (len(positions) == 1 or _follow(positions)):
                # Pickling an array takes as long as all the rest.
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
        """The elements, as the stream would have given them; or raises the error that it raised."""
        failure = None if self.failure is None else unpack_failure(self.failure)
        if failure is not None and isinstance(self.marks, _RaisedMarks):
            raise failure.release()
        block = Block(self.values, self.positions, failure, self.metadata)
        return Chunk(block, self.marks)


def _follow(positions: npt.NDArray[Any]) -> bool:
    """Whether each number is the previous one plus one."""
    return bool((positions[1:] - positions[:-1] == 1).all())


def _outcome(task: int, values: Any, positions: Any, *rest: Any) -> Outcome:
    """Restores an outcome, in the trainer."""
    if type(positions) is tuple:
        positions = np.arange(*positions, dtype=np.int64)
    return Outcome(task, values, positions, *rest)


class Tally:
    """Records which elements filters kept, for the watch over them, which the whole stream has."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def reset(self) -> None:
        self.notes = []

    def count(self, keep: npt.NDArray[np.bool_]) -> None:
        self.notes.append(keep)

    def count_kept(self, count: int) -> None:
        self.notes.append(count)


class BadNotes(list[BadRecord]):
    """The bad records of one step, or of the dataset with which a fragment begins."""

    # The number of guards in it.
    guards = 0


def numbered(notes: Sequence[BadNotes]) -> list[BadRecord]:
    """All of them, with the numbers of their guards in the fragment."""
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
        """Nothing: the task has the place."""

    def fields(self) -> Fields:
        return Fields(next_index=Whole())


class _CountMarks(Marks):
    __slots__ = ()

    def at(self, used: int) -> State:
        return {"next_index": used}

    def before(self, index: int) -> State:
        return {"next_index": index, "before": True}


class TaskClock:
    """Measures task after task, with no more system calls than the result is worth.

    A call is cheap by itself. But after a batch of some megabytes the processor's caches are full,
    and the next code finds nothing of its own there.
    """

    def __init__(self, side_by_side: bool) -> None:
        """`side_by_side` says whether it matters that elements wait for something."""
        self._side_by_side = side_by_side
        # The number of tasks still to be measured closely.
        self._closely = _CLOSELY
        self._began = self._cpu_began = 0.0
        self._stopwatch: Stopwatch | None = None

    def start(self) -> float:
        """Begins with a task; returns the time."""
        self._stopwatch = Stopwatch() if self._closely else None
        self._cpu_began = time.process_time() if self._side_by_side else 0.0
        self._began = time.perf_counter()
        return self._began

    def read(self) -> tuple[float, bool]:
        """The seconds of the task, and whether most of them were spent waiting."""
        seconds = elapsed = time.perf_counter() - self._began
        if self._stopwatch is not None:
            seconds = self._stopwatch.read().seconds
        waited = False
        if self._side_by_side:
            # Other threads may have done it, so the CPU time of the whole process counts.
            waited = time.process_time() - self._cpu_began < _WAITING * seconds
        if waited or elapsed > _SLICE_SECONDS:
            self._closely = _CLOSELY
        else:
            self._closely = max(0, self._closely - 1)
        # What seems to be waiting may have been the queue for a core.
        return seconds, waited and self._stopwatch is not None


class Runner:
    """Evaluates the tasks of one fragment, in the worker."""

    # The end of the last task of any fragment, as a worker does one at a time.
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
        # Streams by whether they are careful, and timed.
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

    def _note_or_stop(
        self, operation: int, position: int = -1, key: str = "", made: Any = None
    ) -> None:
        """Notes the next element, unless it is known to end this process."""
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
                # The whole task, as no part of it is sent before it is done.
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
    """The batch whose result is sent unchanged."""
    node: Node | None = fragment.steps[-1] if fragment.steps else fragment.root
    while isinstance(node, Place):
        node = node.input
    return node if isinstance(node, BatchNode) and node.batch_fn is None else None


def _pull_all(stream: Stream, state: State) -> tuple[Block, Marks]:
    """All elements of a stream after a state, up to its end or a failure."""
    stream.restore(state)
    chunks: list[Chunk] = []
    nothing: Marks = FixedMarks(state)
    none = np.empty(0, dtype=np.int64)
    try:
        while (chunk := stream.pull(_ALL)) is not None:
            nothing = chunk.marks
            if len(chunk.block) or chunk.block.failure is not None:
                chunks.append(chunk)
                if chunk.block.failure is not None:
                    break
    except Exception as error:
        if chunks or not is_within_one(state):
            raise
        # The element did not fail when the state was taken (see `ExpandStream`).
        return Block([], none, failure_of(error)), _RaisedMarks(state)
    if not chunks:
        return Block([], none), nothing
    if len(chunks) == 1:
        return chunks[0].block, chunks[0].marks
    marks = SeriesMarks([(chunk.marks, len(chunk.block)) for chunk in chunks])
    return join([chunk.block for chunk in chunks]), marks


def is_within_one(state: State) -> bool:
    """Whether some of the elements that were made of one are still to be delivered."""
    while "parent" in state:
        if state.get("next_index_in_buffer"):
            return True
        state = state["parent"]
    return False


@plain
class _RaisedMarks(FixedMarks):
    """In place of marks, where the stream raised an error: who asks again begins at that state."""


def pack_block(block: Block) -> Any:
    """Prepares a block to be sent to a worker; its failure stays behind."""
    return pack_values(block.values), block.positions, block.metadata


def unpack_block(packed: Sequence[Any]) -> Block:
    values, positions, metadata = packed
    return Block(values, positions, None, metadata)


def up_to_unpicklable(outcome: Outcome, error: Exception) -> Outcome:
    """The outcome of a task, with a failure in place of the element that cannot be pickled."""
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
