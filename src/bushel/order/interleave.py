"""`interleave`: takes elements of several streams in turn, a few of which are open at a time."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from bushel.core.arguments import whole
from bushel.core.block import Block, Failure
from bushel.core.block_size import SOON_SECONDS, BlockSize
from bushel.core.cursor import Cursor
from bushel.core.frozen import frozen
from bushel.core.node import Node, failed
from bushel.core.options import DatasetOptions
from bushel.core.positions import Keys
from bushel.core.sizes import bytes_of
from bushel.core.state import State
from bushel.core.state_fields import Fields, Path, check_state
from bushel.core.step import How, SideBySide, Step
from bushel.core.stream import Chunk, ComputedMarks, Stream
from bushel.errors import PlanError, StateError
from bushel.order.interleave_by_position import SideTurns
from bushel.order.interleave_state import (
    InterleaveMarks,
    StreamPlace,
    interleave_fields,
    interleave_state,
)

# Reads the streams of nodes side by side, if that is possible.
ReadSideBySide = Callable[[Iterable[Node | None]], SideBySide | None]

# The most elements of a stream read at once, and the seconds that they may take: with more, the
# overhead of a read no longer matters. The seconds are more than the overhead of a read of one
# element: otherwise slow reads would get few elements, and stay slow because of it.
_MOST_ROUNDS = 64
_SECONDS_OF_A_STREAM = 0.0005
_BYTES_AT_ONCE = 1 << 22


@frozen
class InterleaveNode(Step):
    """Takes elements of several streams in turn; opens the next when one ends."""

    datasets: "tuple[Node, ...] | Nodes"
    cycle_length: int
    # Opens one dataset, with the options of the pipeline and what all datasets share.
    open_dataset: Callable[[Node, DatasetOptions | None, Any], Stream]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def listed(self) -> Sequence[Node]:
        """The datasets, if no function of the user's has to run to make them; else none."""
        if isinstance(self.datasets, tuple):
            return self.datasets
        return self.datasets.listed()

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        shared = how.shared_by(min(self.cycle_length, len(self.datasets)))
        return InterleaveStream(self, how.side_by_side, how.options, shared)

    def describe(self) -> str:
        return f"interleave({len(self.datasets)} datasets, cycle_length={self.cycle_length})"


class Nodes(Protocol):
    """The nodes of some datasets by their numbers, each made when it is needed."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Node | None: ...

    def listed(self) -> Sequence[Node]:
        """All nodes, if no function has to be called to make them; else an empty list."""
        ...


def interleave_node(
    datasets: tuple[Node, ...] | Nodes, cycle_length: int | None, open_stream: Any
) -> InterleaveNode:
    """The step of `interleave`; all datasets are open together, unless a number is given."""
    cycle = len(datasets) if cycle_length is None else whole(cycle_length, "cycle_length")
    if cycle <= 0:
        raise PlanError(f"`cycle_length` must be positive, and is {cycle}.")
    return InterleaveNode(datasets, cycle, open_stream)


class _CycleSlot:
    """A slot of the cycle: the dataset in it, and whether that has ended."""

    __slots__ = ("cursor", "ended", "number", "place")

    def __init__(self, number: int, stream: Stream, ended: bool = False) -> None:
        self.number, self.cursor, self.ended = number, Cursor(stream), ended
        self.passed()

    def passed(self) -> None:
        """Remembers the place after the last element taken.

        Looking ahead may move the cursor to the next chunk, and where that begins depends on
        how the stream was cut.
        """
        self.place: StreamPlace = self.cursor.mark()[:2]

    def state(self) -> State:
        marks, used = self.place
        return marks.at(used)


class _EndedStream(Stream):
    """Stands in for a stream that had ended in a state, which need not be opened again."""

    def __init__(self, state: State) -> None:
        self._state = state

    def pull(self, want: int) -> Chunk | None:
        return None

    def state(self) -> State:
        return self._state

    def restore(self, state: State) -> None:
        self._state = state

    def fields(self) -> Fields:
        return Fields()


_PLACE = Path().of("iterators_in_use_states")


class InterleaveStream(Stream):
    """Takes one element of each open stream in turn; when one ends, the next takes its place."""

    def __init__(
        self,
        node: InterleaveNode,
        side_by_side: ReadSideBySide,
        options: DatasetOptions | None = None,
        shared: Any = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._node, self._side_by_side, self._clock = node, side_by_side, clock
        self._options, self._shared = options, shared
        # The number of rounds read at once: the overhead of a read does not depend on the number of
        # elements.
        self._at_once = BlockSize(
            most=_MOST_ROUNDS,
            most_bytes=_BYTES_AT_ONCE,
            target_seconds=max(SOON_SECONDS, _SECONDS_OF_A_STREAM * node.cycle_length),
            under_way=1,
        )
        self._slots: list[_CycleSlot] = []
        self._following = 0
        self._turn = 0
        # The open streams, while they are read side by side.
        self._side: SideTurns | None = None
        self._may_join = True
        self._begun = False

    def _read_each(self, side: SideTurns) -> None:
        """Reads each stream by itself, from its current place."""
        self._may_join = side.parts.is_suited
        self.restore(side.state(), each=True)

    def _open(self) -> Failure | None:
        """Opens the first streams, as far as they can be opened."""
        while len(self._slots) < self._node.cycle_length and self._has_next():
            entering = self._next_slot()
            if isinstance(entering, Failure):
                return entering
            if entering is not None:
                self._slots.append(entering)
        return None

    def _opened(self, number: int) -> Stream | None:
        node = self._node.datasets[number]
        if node is None:
            return None
        return self._node.open_dataset(node, self._options, self._shared)

    def _has_next(self) -> bool:
        return self._following < len(self._node.datasets)

    def _next_slot(self) -> _CycleSlot | Failure | None:
        """Opens the next dataset; None if there is none with its number."""
        number = self._following
        try:
            stream = self._opened(number)
        except Exception as error:
            return failed(error, self._node, number)
        self._following += 1
        if stream is None:
            return None
        self.eager = self.eager and stream.eager
        return _CycleSlot(number, stream)

    def _beginning(self) -> SideTurns | None:
        """The open datasets, if they are read side by side."""
        if not self._begun:
            self._begun = True
            numbers = range(min(self._node.cycle_length, len(self._node.datasets)))
            with suppress(Exception):  # The error comes again when that dataset is opened.
                self._side = self._in_one_go(numbers)
        return self._side

    def pull(self, want: int) -> Chunk | None:
        side = self._beginning()
        if side is not None:
            chunk = side.pull(want)
            if chunk is not None:
                return chunk
            self._read_each(side)
        unopened = self._open()
        if unopened is not None:
            return self._skip_dataset(unopened)
        slots = self._slots
        while slots:
            running = [
                (self._turn + step) % len(slots)
                for step in range(len(slots))
                if not slots[(self._turn + step) % len(slots)].ended
            ]
            if not running and not self._has_next():
                return None
            rounds = max(want // max(1, len(running)), self._at_once.size) if self.eager else 1
            if len(running) < len(slots) and self._has_next():
                # Up to the turn at which the next dataset enters.
                running, rounds = self._until_one_enters(slots), 1
            chunk = self._turns(slots, running, rounds) if running else None
            if chunk is not None:
                return chunk
            chunk = self._one_turn(slots)
            if chunk is not None:
                return chunk
        return None

    def _skip_dataset(self, failure: Failure) -> Chunk:
        """Raises that the next dataset cannot be opened, and continues after it."""
        before = self.state()
        self._following += 1
        after = self.state()  # With the later ones open, as after a restore.
        block = Block([], np.empty(0, dtype=np.int64), failure)
        return Chunk(block, ComputedMarks(lambda used: after if used else before))

    def _until_one_enters(self, slots: list[_CycleSlot]) -> list[int]:
        """The slots whose turns come before that of a stream that has ended."""
        from_here = [*range(self._turn, len(slots)), *range(self._turn)]
        return list(takewhile(lambda number: not slots[number].ended, from_here))

    def _turns(self, slots: list[_CycleSlot], running: list[int], rounds: int) -> Chunk | None:
        """`rounds` turns of each slot, or as many as all have; else those before an empty one."""
        began, before = self._clock(), [slot.place for slot in slots]
        for place, number in enumerate(running):
            prepared = slots[number].cursor.prepare(rounds, self._at_once.size)
            rounds = min(rounds, max(1, prepared))
            if not prepared:
                running, rounds = running[:place], 1
                break
        if not running:
            return None
        begins, parts = list(before), []
        for number in running:
            taken = slots[number].cursor.take(rounds)
            begins[number] = taken.marks, 0
            parts.append(taken.block)
            slots[number].passed()
        rows = zip(*(part.rows() for part in parts), strict=True)
        elements = [row for turn in rows for row in turn]
        # Positions within each part, as a state does not tell the number of elements before it.
        positions = np.stack([part.positions for part in parts], axis=1).ravel()
        order = np.tile(np.array(running, dtype=np.int64), rounds)
        marks = self._marks(slots, before, begins, order)
        self._turn = (running[-1] + 1) % len(slots)
        self._at_once.learn(rounds, (self._clock() - began) * len(slots) / len(running))
        if self._at_once.wants_sample():
            self._at_once.limit_to(len(slots) * bytes_of(elements[0]))
        return Chunk(Block(elements, positions), marks)

    def _marks(
        self,
        slots: list[_CycleSlot],
        before: Sequence[StreamPlace],
        begins: Sequence[StreamPlace],
        order: Keys,
        failed: int | None = None,
    ) -> InterleaveMarks:
        return InterleaveMarks(
            self._turn,
            self._following,
            [slot.number for slot in slots],
            [slot.ended for slot in slots],
            before,
            begins,
            order,
            failed,
        )

    def _one_turn(self, slots: list[_CycleSlot]) -> Chunk | None:
        """The element of the slot whose turn it is, if it has one."""
        turn = self._turn
        slot = slots[turn]
        while slot.ended and self._has_next():
            entering = self._next_slot()
            if isinstance(entering, Failure):
                return self._skip_dataset(entering)
            if entering is not None:
                slot.cursor.stream.close()
                slots[turn] = slot = entering
        following = (turn + 1) % len(slots)
        if slot.ended:
            self._turn = following
            return None
        before = [other.place for other in slots]
        rows, _, failure = slot.cursor.look_ahead(1)
        if failure is None and not rows:
            slot.ended = True  # It loses this turn.
            self._turn = following
            return None
        begins = [other.cursor.mark()[:2] for other in slots]
        if failure is not None:
            # The same stream continues after the failure.
            order = np.empty(0, dtype=np.int64)
            begins[turn] = (begins[turn][0], begins[turn][1] - 1)
            slot.passed()
            marks = self._marks(slots, before, begins, order, failed=turn)
            return Chunk(Block([], order, failure), marks)
        block = slot.cursor.take(1).block
        slot.passed()
        marks = self._marks(slots, before, begins, np.array([turn], dtype=np.int64))
        self._turn = following
        return Chunk(block, marks)

    def state_for(self, index: int) -> State:
        part = self._only()
        if part is None:
            return super().state_for(index)
        try:
            return interleave_state(0, 1, [0], [part.state_for(index)], [False])
        finally:
            part.close()

    def index_in(self, state: State) -> int:
        part = self._only()
        if part is None:
            return super().index_in(state)
        try:
            return part.index_in(state["iterators_in_use_states"][0])
        finally:
            part.close()

    def _only(self) -> Stream | None:
        """The only dataset, if there is just one, for questions about its states."""
        return self._opened(0) if len(self._node.datasets) == 1 else None

    def state(self) -> State:
        side = self._beginning()
        if side is not None:
            return side.state()
        self._open()
        slots = self._slots
        states = [slot.state() for slot in slots]
        numbers, ended = [slot.number for slot in slots], [slot.ended for slot in slots]
        return interleave_state(self._turn, self._following, numbers, states, ended)

    def restore(self, state: State, each: bool = False) -> None:
        """Restores a state; with `each`, streams are read by themselves afterwards."""
        numbers, states = state["iterators_in_use_indices"], state["iterators_in_use_states"]
        ended = [bool(flag) for flag in state["exhausted"]]
        turn, following = state["next_index_in_cycle"], state["next_index_in_datasets"]
        side = None if each else self._side_at(numbers, states, ended, following)
        if side is not None:
            self.close()
            side.turn, side.following = turn % len(numbers), following
            self._begun, self._side = True, side
            self._slots, self.eager = [], True
            return
        streams = self._checked(numbers, states, ended)
        for stream, inner in zip(streams, states, strict=True):
            stream.restore(inner)
        slots = list(map(_CycleSlot, numbers, streams, ended))
        self.close()
        self._begun, self._side = True, None
        self._slots, self._turn, self._following = slots, turn % max(1, len(slots)), following
        self.eager = all(slot.cursor.stream.eager for slot in slots)

    def _checked(self, numbers: list[int], states: list[State], ended: list[bool]) -> list[Stream]:
        """Opens the streams of a state; all of it is checked before any of them moves."""
        streams: list[Stream] = []
        try:
            for number, inner, flag in zip(numbers, states, ended, strict=True):
                stream = _EndedStream(inner) if flag else self._opened(number)
                if stream is None:
                    raise StateError(f"this state has dataset {number} open, and there is none.")
                streams.append(stream)
                check_state(stream, inner, _PLACE.of(len(streams) - 1))
        except BaseException:
            for stream in streams:
                stream.close()
            raise
        return streams

    def _side_at(
        self, numbers: list[int], states: list[State], ended: list[bool], following: int
    ) -> SideTurns | None:
        if len(numbers) < self._node.cycle_length and following < len(self._node.datasets):
            return None  # Other iterators are opened before they are restored.
        if any(ended) or not self._may_join:
            return None
        side: SideTurns | None = None
        with suppress(Exception):  # The error comes again when that dataset is opened.
            side = self._in_one_go(numbers)
        if side is None:
            return None
        for place, (part, inner) in enumerate(zip(side.parts.parts, states, strict=True)):
            check_state(part, inner, _PLACE.of(place))
        return side if side.parts.restore(states) else None

    def fields(self) -> Fields:
        return interleave_fields(len(self._node.datasets), self._node.cycle_length)

    def _in_one_go(self, numbers: Sequence[int]) -> SideTurns | None:
        """Several of the datasets, if they can be read side by side."""
        parts = self._side_by_side(map(self._node.datasets.__getitem__, numbers))
        return None if parts is None else SideTurns(numbers, parts, len(numbers))

    def start(self) -> None:
        if self._beginning() is not None:
            return  # Whether threads pay is not known at first.
        self._open()
        for slot in self._slots:
            slot.cursor.stream.start()

    def close(self) -> None:
        for slot in self._slots:
            slot.cursor.stream.close()
