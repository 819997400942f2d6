"""The streams of `Each`, `Drop` and `Expand`: one class for each kind of node."""

import math
import time
from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.frozen import plain
from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node
from bushel.core.positions import Keys
from bushel.core.record import RecordMetadata
from bushel.core.state import State
from bushel.core.state_fields import Fields, Inner, Whole, given_by
from bushel.core.stream import Chunk, Marks, OneInput, Stream, counted
from bushel.errors import PlanError, StateError
from bushel.on_error.bad_records import BadRecord
from bushel.on_error.guarded_stream import GuardStream
from bushel.order.mix_held import with_held
from bushel.run.fold_stream import FoldStream
from bushel.run.quota import DropQuota

# Chunks have one more element for each so many steps of a chain, as a step has a cost per chunk.
# But elements that take longer than `_MOST_SECONDS` come one by one.
STEPS_FOR_ANOTHER = 32
_MOST_SECONDS = 0.05
# The overhead of thousands of steps is larger for one element than for some.
_SECONDS_OF_A_STEP = 100e-6


class _Elementwise(OneInput):
    """A step without memory: it changes the chunks of its input.

    A chain of such steps may be longer than calls may be nested. So the last step calls the others,
    one after the other.
    """

    def __init__(self, input: Stream) -> None:
        super().__init__(input)
        # Rest of the chunk in whose middle the step failed.
        self._rest: Chunk | None = None
        # The number of such steps before this one, and the seconds per element in all of them.
        self._steps: int = input._steps + 1 if isinstance(input, _Elementwise) else 1
        self._most_seconds = max(_MOST_SECONDS, _SECONDS_OF_A_STEP * self._steps)
        self._seconds_each = self._most_seconds

    def _chain(self) -> "tuple[list[_Elementwise], Stream]":
        """This step and such steps before it, the last first, and the stream before them."""
        chain: list[_Elementwise] = [self]
        while isinstance(input := chain[-1]._input, _Elementwise):
            chain.append(input)
        return chain, input

    @property
    def base(self) -> Stream:
        return self._chain()[1].base

    def pull(self, want: int) -> Chunk | None:
        if self._steps < STEPS_FOR_ANOTHER or not self.eager:
            return self._pull(want)
        least = min(self._steps // STEPS_FOR_ANOTHER, int(self._most_seconds / self._seconds_each))
        began = time.perf_counter()
        chunk = self._pull(max(want, least))
        if chunk is not None:
            seconds = time.perf_counter() - began
            self._seconds_each = max(seconds / max(1, want, least), 1e-9)
        return chunk

    def _pull(self, want: int) -> Chunk | None:
        chain: list[_Elementwise] = []
        stream: Stream = self
        while isinstance(stream, _Elementwise):
            chain.append(stream)
            chunk, stream._rest = stream._rest, None
            if chunk is not None:
                break
            want = stream._needed_for(want)
            stream = stream._input
        else:
            chunk = stream.pull(want)
            if chunk is None:
                return None
        for step in reversed(chain):
            chunk = step._changed(chunk)
        return chunk

    def _needed_for(self, want: int) -> int:
        """How many elements to ask for where so many are wanted of this step."""
        return want

    @abstractmethod
    def _changed(self, chunk: Chunk) -> Chunk:
        """The changed chunk; the rest of a chunk that failed is set aside."""

    def _set_rest(self, chunk: Chunk, start: int) -> None:
        if start < len(chunk.block) or chunk.block.failure is not None:
            self._rest = chunk.rest(start)

    def state(self) -> State:
        chain, input = self._chain()
        rests = (index for index, step in enumerate(chain) if step._rest is not None)
        last = next(rests, None)
        if last is None:
            state = input.state()
        else:
            chain = chain[: last + 1]
            rest = chain[last]._rest
            assert rest is not None
            state = rest.marks.at(0)
        for step in reversed(chain):
            state = step._with_own(state)
        return state

    def _with_own(self, state: State) -> State:
        """The state of this step, given that of its input."""
        return state

    def restore(self, state: State) -> None:
        chain, input = self._chain()
        for step in chain:
            state = step._restore_own(state)
            step._rest = None
        input.restore(state)

    def _restore_own(self, state: State) -> State:
        """Takes this step's own fields from a state, and returns the state of its input."""
        return state

    def fields(self) -> Fields:
        # From the first step that has fields, back to this one.
        chain, input = self._chain()
        own = (step._own_fields() for step in chain)
        found = next((fields for fields in own if fields is not None), None)
        return input.fields() if found is None else found

    def _own_fields(self) -> Fields | None:
        """The fields of its state, if the state is not just that of the input."""
        return None

    def most_before(self, state: State | None) -> int | None:
        chain, input = self._chain()
        for step in chain:
            if step._makes_more:
                return None
            if state is not None and step._own_fields() is not None:
                state = state["parent"]
        return input.most_before(state)

    # Whether the step makes several elements of one.
    _makes_more = False

    def start(self) -> None:
        self._chain()[1].start()

    def close(self) -> None:
        self._chain()[1].close()


class EachStream(_Elementwise):
    """Changes elements one by one."""

    def __init__(self, input: Stream, node: Each) -> None:
        super().__init__(input)
        self._node = node

    def _changed(self, chunk: Chunk) -> Chunk:
        block = self._node.apply(chunk.block)
        if len(block) < len(chunk.block):
            self._set_rest(chunk, len(block) + 1)
        return Chunk(block, chunk.marks)

    def state_for(self, index: int) -> State:
        return self._before().state_for(index)

    def index_in(self, state: State) -> int:
        return self._before().index_in(state)

    def _before(self) -> Stream:
        """The stream before the steps of this kind that end with this one."""
        stream = self._input
        while isinstance(stream, EachStream):
            stream = stream._input
        return stream


class CountedStream(_Elementwise):
    """Changes elements one by one, with the running count of elements as their position."""

    def __init__(self, input: Stream, node: Each) -> None:
        super().__init__(input)
        self._node = node
        self._name = node.counter
        self._lane, self._lanes = node.lane
        self._count = 0

    def _changed(self, chunk: Chunk) -> Chunk:
        start = self._count
        positions = np.arange(start, start + len(chunk.block), dtype=np.int64)
        if self._lanes > 1:
            positions = positions * self._lanes + self._lane
        block = self._node.apply(chunk.block.at(positions))
        if len(block) < len(chunk.block):
            self._set_rest(chunk, len(block) + 1)
        self._count = start + len(block)
        return Chunk(block, counted(chunk.marks, self._name, start, len(block)))

    def _with_own(self, state: State) -> State:
        return {"parent": state, self._name: self._count}

    def _restore_own(self, state: State) -> State:
        self._count = state[self._name]
        return state["parent"]  # type: ignore[no-any-return]

    def _own_fields(self) -> Fields | None:
        count = Whole(within=given_by(self._input))
        return Fields(parent=Inner(self._input), **{self._name: count})

    def state_for(self, index: int) -> State:
        return {"parent": self._input.state_for(index), self._name: index}

    def index_in(self, state: State) -> int:
        index: int = state[self._name]
        return index


@plain
class KeptMarks(Marks):
    """Marks of a chunk of which only the elements at `kept` remain.

    The state after a remaining element is right after it; elements dropped before the next one will
    be dropped again.
    """

    marks: Marks
    kept: Keys
    end: int

    def at(self, used: int) -> State:
        # A loop, as there may be more filters than calls may be nested.
        marks: Marks = self
        while isinstance(marks, KeptMarks):
            if used:
                kept = marks.kept
                used = int(kept[used - 1]) + 1 if used <= len(kept) else marks.end
            marks = marks.marks
        return marks.at(used)

    def before(self, index: int) -> State:
        marks: Marks = self
        while isinstance(marks, KeptMarks):
            index, marks = int(marks.kept[index]), marks.marks
        return marks.before(index)


class DropStream(_Elementwise):
    """Drops elements."""

    def __init__(self, input: Stream, node: Drop, quota: DropQuota) -> None:
        super().__init__(input)
        self._node = node
        self._quota = quota

    def _restore_own(self, state: State) -> State:
        self._quota.reset()
        return state

    def _changed(self, chunk: Chunk) -> Chunk:
        block = chunk.block
        answers, failure = self._node.keep(block.rows(), block.positions)
        # (A byte for each answer: a third of the time that numpy takes for objects.)
        keep = np.frombuffer(bytes(answers), dtype=bool)
        # The rest after the failure, be it the function's or the quota's.
        end = len(keep) + 1
        over = self._quota.count(keep)
        if over is not None:
            end, failure = over[0], Failure(over[1])
            keep, answers = keep[:end], answers[:end]
        if failure is not None:
            self._set_rest(chunk, end)
        kept = np.flatnonzero(keep)
        if len(kept) == len(block) and failure is None:
            return chunk
        out = block.select(kept, answers)
        out.failure = failure or block.failure
        return Chunk(out, KeptMarks(chunk.marks, kept, end))


@plain
class _ExpandedMarks(Marks):
    marks: Marks
    # For each input element, the number of new elements up to its end.
    ends: Keys

    def at(self, used: int) -> State:
        # Right after the input element of the last new one; input elements without new ones will
        # have none again.
        element = int(self.ends.searchsorted(used)) if used else 0
        if used and (element == len(self.ends) or self.ends[element] == used):
            return {"parent": self.marks.at(element + 1), "next_index_in_buffer": 0}
        if not used:
            return {"parent": self.marks.at(0), "next_index_in_buffer": 0}
        return self._within(element, used)

    def before(self, index: int) -> State:
        return self._within(int(self.ends.searchsorted(index, side="right")), index)

    def _within(self, element: int, used: int) -> State:
        before = int(self.ends[element - 1]) if element else 0
        parent = with_held(self.marks.before(element), lambda: self.marks.at(element + 1))
        return {"parent": parent, "next_index_in_buffer": used - before}


class ExpandStream(_Elementwise):
    """Replaces each element by the elements of a sequence made of it."""

    def __init__(self, input: Stream, node: Expand) -> None:
        super().__init__(input)
        self._node = node
        self._skip = 0
        # How many elements were made of one, of late; 0 before anything is known.
        self._made_of_one = 0.0

    def _needed_for(self, want: int) -> int:
        # Who takes batches apart, and asked for a batch for each row, would read a hundred times as
        # far ahead as is wanted; and a hundred times a hundred before another such step.
        if not self._made_of_one:
            return 1
        return max(1, min(want, math.ceil(want / self._made_of_one)))

    def _changed(self, chunk: Chunk) -> Chunk:
        block = chunk.block
        sequences, failure = self._node.expand(block.rows(), block.positions)
        if failure is not None:
            self._set_rest(chunk, len(sequences) + 1)
        ends = np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
        rows = [row for sequence in sequences for row in sequence]
        if sequences:
            # (Where nothing comes of some, one of the next may make as many as of one.)
            made = max(1.0, len(rows) / len(sequences))
            self._made_of_one = (self._made_of_one + made) / 2 if self._made_of_one else made
        positions = np.repeat(block.positions[: len(sequences)], np.diff(ends, prepend=0))
        expanded = Block(rows, positions, failure or block.failure)
        if block.metadata is not None:
            expanded.metadata = [
                RecordMetadata(record.index * self._node.fan_out + place)
                for record, sequence in zip(block.metadata, sequences, strict=False)
                for place in range(len(sequence))
            ]
        out = Chunk(expanded, _ExpandedMarks(chunk.marks, ends))
        if not rows and expanded.failure is None:
            return out  # What is to be skipped is still to come.
        skip, self._skip = self._skip, 0
        if not skip:
            return out
        if not rows and expanded.failure is not None:
            # It did not fail when the state was taken. Who asks again begins at that state again.
            raise expanded.failure.release()
        made_first = next((size for size in map(len, sequences) if size), 0)
        if skip > made_first:
            raise StateError(
                f"this state is after {skip} of the elements that `{self._node.label}` made of "
                f"one, and it makes {made_first} of that one: it belongs to other data."
            )
        return out.rest(skip)

    def _with_own(self, state: State) -> State:
        return {"parent": state, "next_index_in_buffer": self._skip}

    def _restore_own(self, state: State) -> State:
        self._skip = state["next_index_in_buffer"]
        return state["parent"]  # type: ignore[no-any-return]

    _makes_more = True

    def _own_fields(self) -> Fields | None:
        return Fields(parent=Inner(self._input), next_index_in_buffer=Whole())


# Makes the watch over a step that drops elements; messages name the label.
MakeQuota = Callable[[str], DropQuota]


def single_step(
    node: Node, input: Stream, quota: MakeQuota, notes: list[BadRecord] | None = None
) -> Stream:
    """The stream of a step with one input stream.

    `notes` receives the bad records that a guard replaces, if they are counted elsewhere.
    """
    if isinstance(node, Guard):
        return GuardStream(input, node, notes)
    if isinstance(node, Each):
        return CountedStream(input, node) if node.uses_positions else EachStream(input, node)
    if isinstance(node, Drop):
        return DropStream(input, node, quota(node.label))
    if isinstance(node, Expand):
        return ExpandStream(input, node)
    if isinstance(node, Fold):
        return FoldStream(input, node)
    raise PlanError(f"`{node.label}` is no step of a stream.")
