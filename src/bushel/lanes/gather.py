"""The stream of the lanes of one host: gathers rows into steps, pads the last, asks other hosts."""

import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.cursor import Cursor, Taken
from bushel.core.frozen import frozen
from bushel.core.merged import Cursors
from bushel.core.node import Node
from bushel.core.sizes import bytes_of
from bushel.core.state import State
from bushel.core.state_fields import Declares, Fields, Whole, all_before
from bushel.core.step import EvaluateTogether, How, Join, SideBySide
from bushel.core.stream import Chunk, Stream
from bushel.errors import add_note
from bushel.lanes.by_position import SideLanes
from bushel.lanes.deal import Agree
from bushel.lanes.in_turn import columns_in_turn, rows_in_turn
from bushel.lanes.padding import Filler
from bushel.lanes.reader import LaneReader, steps_at_once
from bushel.lanes.saved import LaneMarks, LaneStates, SideLaneMarks

# The number of steps that a host offers when it has no more elements, but can pad as long as others
# have some.
_AS_MANY_AS_YOU_LIKE = sys.maxsize

# The least number of lanes; fewer are read faster one by one, in blocks of their own.
_FEWEST_SIDE_BY_SIDE = 8


@frozen
class OwnLanesNode(Join):
    """The lanes of one host, each a stream of its own."""

    parts: tuple[Node, ...]
    first: int
    lanes: int
    rows: int
    pads: bool
    # The number of steps, if that is arithmetic.
    steps: int | None
    # Makes the function by which hosts agree on the number of steps; None if that number is
    # arithmetic, or there is one host.
    agreement: Callable[[], Agree] | None
    # Any lane of the job by its number, for an element to pad with if these lanes have none.
    lane_of: Callable[[int], Node]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def join(self, inputs: Callable[[], Sequence[Stream]], how: How) -> Stream:
        side = None
        if not self.pads and len(self.parts) >= _FEWEST_SIDE_BY_SIDE:
            side = how.side_by_side(self.parts)
        return LanesStream(inputs, self, how.together, lambda: self._example(how), side)

    def _example(self, how: How) -> Any:
        found = (how.first_of(self.lane_of(lane)) for lane in range(self.lanes))
        return next(first[0] for first in found if first)  # There is a step, so this exists.

    def describe(self) -> str:
        last = self.first + len(self.parts) - 1
        return f"lanes {self.first} to {last} of {self.lanes}"


class LanesStream(Stream):
    """Takes `rows` elements from each lane for a step, lane after lane.

    Hosts that share the lanes of a job stay together: all take the same number of steps. So they
    agree, in rounds, on the number of steps that all of them have. A host joins a round when it is
    to hand out a step that no round was about, and not before it has handed out all others. So the
    order of rounds depends on the pipeline alone, and no two hosts can wait for each other, one in
    a round and one in the training.

    If workers are `ahead`, their consumer has to call `settle` before it hands out their elements.
    """

    def __init__(
        self,
        inputs: Callable[[], Sequence[Stream]],
        node: OwnLanesNode,
        together: Callable[[Sequence[Cursor]], EvaluateTogether],
        example: Callable[[], Any],
        side: SideBySide | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`side` has the lanes as long as they can be read by position."""
        self._node, self._inputs, self._together = node, inputs, together
        # Returns the minimum of the numbers of all hosts, if they have to agree.
        self._agree = agree = None if node.agreement is None else node.agreement()
        # Whether all lanes start to prefetch before the first of them is waited for.
        self.starts_together = False
        self._begun = False
        # Whether workers get steps before all hosts have agreed to them.
        self.ahead = False
        self.rows = node.rows
        # The number of elements in one step on this host.
        self.width = len(node.parts) * node.rows
        self._clock = clock
        self._at_once = steps_at_once(len(node.parts), node.rows, agree is not None)
        self._side = None if side is None else SideLanes(side, len(node.parts), node.rows)
        # Whether lanes are read by position now.
        self._is_side = side is not None
        self._made: LaneReader | None = None
        # (Lanes that are read by position may be prefetched.)
        self.eager = agree is None and (side is not None or self._reader.eager)
        # The padding of hosts whose lanes have no more elements.
        self._filler = Filler(example)
        self._step = self._skip = 0
        self._over = False
        # Whether some lane has ended, and the others continue.
        self._ending = False
        # Steps still to be handed out; other hosts may not have them.
        self._kept: Chunk | None = None
        # The number of steps that all hosts have; the total, once all know it; and the number that
        # this host has, once it knows.
        self._agreed = 0
        self._end: int | None = None
        self._own_end: int | None = None
        self._leave: weakref.finalize[..., LanesStream] | None = None
        close = getattr(agree, "close", None)
        if close is not None:
            # The other hosts are told, too, when this stream is garbage.
            self._leave = weakref.finalize(self, close)
            self._leave.atexit = False

    @property
    def _reader(self) -> LaneReader:
        """Makes the reader that reads each lane as a stream of its own."""
        if self._made is None:
            cursors = Cursors(self._inputs())
            evaluate = self._together(cursors)
            self._made = LaneReader(cursors, self.rows, self._at_once, evaluate, self._clock)
        return self._made

    @property
    def _cursors(self) -> Cursors:
        return self._reader.cursors

    def pull(self, want: int) -> Chunk | None:
        if self._over:
            return None
        if self.starts_together and not self._begun:
            self._begun = True
            self.start()
        if self._agree is None:
            chunk = self._several(want // self.width)
        else:
            chunk = self._next_step()
        if chunk is None:
            self._over = True
            return None
        self._step += _steps_in(chunk, self.width)
        skip, self._skip = self._skip, 0
        return chunk.rest(skip) if skip else chunk

    @property
    def shared(self) -> bool:
        """Whether other hosts have to be asked."""
        return self._agree is not None

    @property
    def ends(self) -> bool:
        """Whether all hosts know the total number of steps."""
        return self._end is not None

    @property
    def reached(self) -> int:
        """The number of steps handed out, plus one once the end was told."""
        return self._step + self._over

    def settle(self, steps: int) -> int:
        """Waits until all hosts have `steps` steps, or one ends; returns the common number."""
        assert self._agree is not None
        at_step = getattr(self._agree, "at_step", None)
        while self._end is None and self._agreed < steps:
            if at_step is not None:
                at_step(self._agreed)
            least = self._agree(self._steps_to_offer())
            if least == (_AS_MANY_AS_YOU_LIKE if self._node.pads else 0):
                self._end = self._agreed
            else:
                self._agreed += least
        return steps if self._end is None else min(steps, self._end)

    def begin_anew(self) -> None:
        """Resets the agreement, as all hosts have restored another state."""
        self._agreed, self._end = self._step, None
        restart = getattr(self._agree, "restart", None)
        if restart is not None:
            restart()

    def _next_step(self) -> Chunk | None:
        if self.ahead:
            self._see_to_kept()
        # A host that never had an element looks for one to pad with, and there may be none
        # anywhere.
        at_end = self._node.pads and self._own_end is not None
        in_the_dark = at_end and not self._filler.is_known
        if (not self.ahead or in_the_dark) and self._step >= self._agreed:
            self.settle(self._step + 1)
        if self._end is not None and self._step >= self._end:
            return None
        self._see_to_kept()
        if self._kept is None:
            return self._padding() if self._node.pads else None
        chunk, self._kept = self._kept, None
        if len(chunk.block) > self.width:
            self._kept = chunk.rest(self.width)
            return Chunk(chunk.block.part(0, self.width), chunk.marks)
        return chunk

    def _steps_to_offer(self) -> int:
        """The number of steps that this host has beyond those that all have."""
        if self._step <= self._agreed:
            self._see_to_kept()
        if self._node.pads and self._own_end is not None and self._own_end <= self._agreed:
            return _AS_MANY_AS_YOU_LIKE
        steps = self._step
        if self._own_end is not None:
            steps = self._own_end
        elif self._kept is not None:
            steps += _steps_in(self._kept, self.width)
        return steps - self._agreed

    def _see_to_kept(self) -> None:
        if self._kept is None and self._own_end is None:
            self._kept = self._several()
            if self._kept is None:
                self._own_end = self._step

    def _several(self, least: int = 1) -> Chunk | None:
        """The next steps, as many as come soon.

        Other hosts may have fewer: the remaining steps are kept.
        """
        at_once = self._at_once
        steps, began = max(least, at_once.size), self._clock()
        chunk = self._gather(steps)
        made = 0 if chunk is None else len(chunk.block) // self.width
        at_once.learn(made, self._clock() - began)
        if chunk is not None and made and at_once.wants_sample():
            row = chunk.block.part(0, 1).rows()[0]
            at_once.limit_to(self.width * bytes_of(row))
        return chunk

    def _gather(self, steps: int) -> Chunk | None:
        """The next steps of this host, or None if it has no more."""
        if self._node.steps is not None:
            steps = min(steps, self._node.steps - self._step)
            if steps <= 0:
                return None
        if self._is_side and self._side is not None:
            found = self._side.read(steps)
            if found is not None:
                values, size, lanes = found
                positions = np.arange(size, dtype=np.int64) + self._step * self.width
                return Chunk(Block(values, positions), SideLaneMarks(self, self._step, lanes))
            if self._side.ends:
                return None
            # An element in the next step fails, or elements are heavy.
            self._is_side = False
            self._cursors.restore(self._side.states())
        if self._ending or not self._reader.eager:
            steps = 1
        taken = self._reader.take(steps, self._step)
        whole = min(len(part.block) for part in taken) // self.rows
        if whole < steps and steps > 1:
            # A lane ends, or fails, before that: take the steps before it.
            self._reader.put_back(taken)
            steps = max(1, whole)
            taken = self._reader.take(steps, self._step)
            whole = min(len(part.block) for part in taken) // self.rows
        if whole == steps:
            marks = LaneMarks(self, self._step, steps * self.width, taken)
            return Chunk(self._in_turn(taken, steps), marks)
        if not self._node.pads and any(map(self._ended, taken)):
            # A failure in a step that is not handed out does not matter.
            self._reader.put_back(taken)
            return None
        failure, ended = self._failure_in(taken)
        if failure is not None:
            if ended and not self._node.pads:
                return None
            block = Block([], np.empty(0, dtype=np.int64), failure)
            after = [cursor.mark() for cursor in self._cursors]
            return Chunk(block, LaneMarks(self, self._step, 0, taken, after))
        if self._node.pads and (any(len(part.block) for part in taken) or self._node.steps):
            self._ending = True
            return Chunk(self._padded(taken), LaneMarks(self, self._step, self.width, taken))
        self._reader.put_back(taken)
        return None

    def _ended(self, part: Taken) -> bool:
        return len(part.block) < self.rows and part.failure is None

    def _failure_in(self, taken: Sequence[Taken]) -> tuple[Failure | None, bool]:
        """The failure in a step, and whether a lane ends in it.

        The whole step is skipped, as if it had been handed out.
        """
        failures: list[Failure] = []
        ended = False
        for cursor, part in zip(self._cursors, taken, strict=True):
            missing = self.rows - len(part.block)
            while part.failure is not None:
                failures.append(part.failure)
                missing -= 1
                part = cursor.take(missing)
                missing -= len(part.block)
            ended = ended or missing > 0
        return _first_of(failures), ended

    def _in_turn(self, taken: Sequence[Taken], steps: int) -> Block:
        blocks = [part.block for part in taken]
        size = steps * self.width
        positions = np.arange(size, dtype=np.int64) + self._step * self.width
        if self._node.pads:
            rows = rows_in_turn(blocks, self.rows)
            self._filler.learn(rows)
            return Block([(row, True) for row in rows], positions)
        columns = columns_in_turn(blocks, self.rows)
        return Block(columns or rows_in_turn(blocks, self.rows), positions)

    def _padded(self, taken: Sequence[Taken]) -> Block:
        """One step in which some lanes lack rows."""
        rows: list[Any] = []
        for part in taken:
            self._filler.learn(part.block.rows())
        for part in taken:
            mine = part.block.rows()
            rows += [(row, True) for row in mine]
            rows += [(self._filler.element(), False)] * (self.rows - len(mine))
        return Block(rows, np.arange(self.width, dtype=np.int64) + self._step * self.width)

    def _padding(self) -> Chunk:
        """A step that is all padding."""
        taken = [cursor.take(0) for cursor in self._cursors]
        positions = np.arange(self.width, dtype=np.int64) + self._step * self.width
        block = Block([(self._filler.element(), False)] * self.width, positions)
        return Chunk(block, LaneMarks(self, self._step, self.width, taken))

    def state_of(self, states: Sequence[State], step: int, row: int) -> State:
        first = self._node.first
        lanes = {str(first + lane): state for lane, state in enumerate(states)}
        state: State = {"lanes": lanes, "step": step}
        return {**state, "row": row, "width": self.width} if row else state

    def state(self) -> State:
        if self._kept is not None:
            return self._kept.marks.at(self._skip)
        states = self._side.states() if self._side and self._is_side else self._cursors.states()
        return self.state_of(states, self._step, self._skip)

    def restore(self, state: State) -> None:
        states = self._own_states(state)
        self._is_side = self._side is not None and self._side.restore(states)
        if not self._is_side:
            self._cursors.restore(states)
        self._step, self._skip, self._kept = state["step"], state.get("row", 0), None
        self._over = self._ending = self._begun = False
        self._own_end = None
        if not self.ahead:
            self.begin_anew()

    def index_in(self, state: State) -> int:
        return int(state["step"]) * self.width + int(state.get("row", 0))

    def most_before(self, state: State | None) -> int | None:
        if state is None:
            return None
        # The state may be of a job with fewer hosts, each with more of the lanes.
        return (int(state["step"]) + 1) * self._node.lanes * self.rows

    def _own_states(self, state: State) -> list[State]:
        first = self._node.first
        return [state["lanes"][str(first + lane)] for lane in range(len(self._node.parts))]

    def _declared(self) -> Sequence[Declares]:
        """The lanes, as far as their states are concerned."""
        return self._cursors.streams if self._side is None else self._side.declared

    def fields(self) -> Fields:
        lanes = {str(lane): part for lane, part in enumerate(self._declared(), self._node.first)}
        beyond = "'step' in a state is {value}, which no job can reach."
        return Fields(
            self._misfit,
            lanes=LaneStates(lanes),
            step=Whole(sys.maxsize // self.width, beyond=beyond),
            row=Whole(optional=True),
        )

    def _misfit(self, state: State) -> str | None:
        row = state.get("row", 0)
        if row and (state.get("width") != self.width or row >= self.width):
            return (
                f"it was taken within a step, after {row} of the {state.get('width')!r} elements "
                f"that its host had of it, and this host has {self.width} of each step. Take "
                "states between steps: of batches, or after all elements of a step"
            )
        given = None
        if not self._node.pads:
            given = all_before(self._declared(), self._own_states(state))
        if given is None or state["step"] <= given:
            return None
        return f"'step' is {state['step']}, and its lanes have given {given} elements"

    def start(self) -> None:
        if not self._is_side:  # Whether threads pay is not known at first.
            self._cursors.start()

    def close(self) -> None:
        if self._leave is not None:
            self._leave()
        if self._made is not None:
            self._cursors.close()


def _first_of(failures: Sequence[Failure]) -> Failure | None:
    """The first failure of a step; it mentions the others."""
    for other in failures[1:]:
        error = other.release()
        if failures[0].error is not None:
            add_note(failures[0].error, f"bushel: in the same step also {error!r}.")
    return failures[0] if failures else None


def _steps_in(chunk: Chunk, width: int) -> int:
    return len(chunk.block) // width + (chunk.block.failure is not None)
