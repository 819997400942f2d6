"""The lanes of one host, gathered into steps."""

import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Columns, Failure, merge_columns
from bushel.core.cursor import Cursor, Taken
from bushel.core.frozen import frozen
from bushel.core.merged import Merged
from bushel.core.node import Node
from bushel.core.positions import Keys
from bushel.core.sizes import bytes_of
from bushel.core.state import State
from bushel.core.state_fields import Fields, Whole, all_before
from bushel.core.step import FEWEST_TOGETHER, EvaluateTogether, How, Join
from bushel.core.stream import Chunk, Stream
from bushel.core.tune import MOST_ELEMENTS, SOON_SECONDS, BlockSize
from bushel.errors import add_note
from bushel.lanes.deal import Agree
from bushel.lanes.padding import zeros_like
from bushel.lanes.saved import LaneMarks, LaneStates

# The steps offered by a host that has no more elements, but can pad as long as others have some.
_AS_MANY_AS_YOU_LIKE = sys.maxsize

_AHEAD = 64
# Elements of a lane that are taken at once, and seconds that they may take: with more, the cost
# of taking them no longer matters. The seconds are more than what a read of one element costs
# beside its work: with fewer, reading would stay slow because it is slow.
_MOST_OF_A_LANE = 64
_SECONDS_OF_A_LANE = 0.0005
_BYTES_AT_ONCE = 1 << 22
# Bytes that may wait, of all lanes together.
_BYTES_AHEAD = 1 << 25
# The least share of what a filter is asked for that is counted on.
_LEAST_SHARE = 0.1
# How much of what was measured still counts a step later.
_LATELY = 0.98


@frozen
class OwnLanesNode(Join):
    """The lanes of one host, each a stream of its own."""

    parts: tuple[Node, ...]
    first: int
    lanes: int
    rows: int
    pads: bool
    # How many steps there are, where that is arithmetic.
    steps: int | None
    # Makes the function by which hosts agree on the number of steps; None where that number is
    # arithmetic, or there is one host.
    agreement: Callable[[], Agree] | None
    # Any lane of the job, by its number: for an element to pad with, where these have none.
    lane_of: Callable[[int], Node]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def join(self, inputs: Callable[[], Sequence[Stream]], how: How) -> Stream:
        return LanesStream(inputs(), self, how.together, lambda: self._example(how))

    def _example(self, how: How) -> Any:
        found = (how.first_of(self.lane_of(lane)) for lane in range(self.lanes))
        return next(first[0] for first in found if first)  # There is a step, so there is one.

    def describe(self) -> str:
        last = self.first + len(self.parts) - 1
        return f"lanes {self.first} to {last} of {self.lanes}"


class LanesStream(Merged):
    """Takes `rows` elements from each lane for a step, lane after lane.

    Hosts that share the lanes of a job stay together: all take the same number of steps. So
    they agree, in rounds, on how many steps all of them have. A host joins a round when it is
    to hand out a step that no round was about, and not before it has handed out all others.
    So it depends on the pipeline alone which round comes when, and no host can wait for one
    that waits for it in the training.

    Where workers are `ahead`, whoever hands out what they make has to see to that (`settle`).
    """

    def __init__(
        self,
        inputs: Sequence[Stream],
        node: OwnLanesNode,
        together: Callable[[Sequence[Cursor]], EvaluateTogether],
        example: Callable[[], Any],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(inputs)
        self._node = node
        # Tells the least of the numbers that all hosts give, where they have to agree.
        self._agree = agree = None if node.agreement is None else node.agreement()
        # Whether lanes may be read ahead, and gone back in.
        self._lanes_eager = self.eager
        if agree is not None:
            self.eager = False
        # Whether all lanes are told to begin before the first of them is waited for.
        self.starts_together = False
        self._begun = False
        # Whether steps are given to workers before all hosts have agreed to them.
        self.ahead = False
        self.rows = node.rows
        # How many elements one step has here.
        self.width = len(inputs) * node.rows
        # How long it took lately to get how many elements from the lanes.
        self._spent = self._cpu_spent = self._gotten = 0.0
        self._touched = False
        # How many elements of lanes were asked for, and how many came.
        self._asked = self._came = 1
        # How many steps are made at once, be they offered to other hosts or not. To take from a
        # lane costs some microseconds, however few elements: of many lanes, more than a step.
        most = max(1, _MOST_OF_A_LANE // node.rows)
        self._at_once = BlockSize(
            # To agree with other hosts costs far more.
            most=most if agree is None else MOST_ELEMENTS,
            most_bytes=_BYTES_AT_ONCE,
            target_seconds=max(SOON_SECONDS, _SECONDS_OF_A_LANE * len(inputs)),
        )
        self._clock = clock
        self._evaluate = together(self._cursors)
        # Makes an element to pad with, for a host whose lanes have none.
        self._example = example
        self._step = self._skip = 0
        self._over = False
        # Whether some lane has come to its end, and the others go on.
        self._ending = False
        # Steps that are still to be handed out; other hosts may not have them.
        self._kept: Chunk | None = None
        # How many steps all hosts have; when all know it, how many there are; and how many
        # this host has, when it knows.
        self._agreed = 0
        self._end: int | None = None
        self._own_end: int | None = None
        self._template: Any = None
        self._has_template = False
        self._leave: weakref.finalize[..., LanesStream] | None = None
        close = getattr(agree, "close", None)
        if close is not None:
            # The other hosts are told, too, when nobody refers to this stream any more.
            self._leave = weakref.finalize(self, close)
            self._leave.atexit = False

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
        """Whether all hosts know how many steps there are."""
        return self._end is not None

    @property
    def reached(self) -> int:
        """How many steps were handed out; one more where it was said that there are no more."""
        return self._step + self._over

    def settle(self, steps: int) -> int:
        """Waits until all hosts have `steps` steps, or one ends; returns how many all have."""
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
        """Forgets what was agreed: all hosts have gone to another state."""
        self._agreed, self._end = self._step, None
        restart = getattr(self._agree, "restart", None)
        if restart is not None:
            restart()

    def _next_step(self) -> Chunk | None:
        if self.ahead:
            self._see_to_kept()
        # Who never had an element looks for one to pad with, and there may be none anywhere.
        at_end = self._node.pads and self._own_end is not None
        in_the_dark = at_end and not self._has_template
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
        """How many steps this host has beyond those that all have."""
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
        """The next steps, as many at once as come soon.

        Other hosts may have fewer: what is left of them is kept.
        """
        steps, began = max(least, self._at_once.size), self._clock()
        chunk = self._gather(steps)
        made = 0 if chunk is None else len(chunk.block) // self.width
        self._at_once.learn(made, self._clock() - began)
        if chunk is not None and made and self._at_once.wants_sample():
            row = chunk.block.part(0, 1).rows()[0]
            self._at_once.limit_to(self.width * bytes_of(row))
        return chunk

    def _gather(self, steps: int) -> Chunk | None:
        """The next steps of this host, or None where it has no more."""
        if self._ending or not self._lanes_eager:
            steps = 1
        if self._node.steps is not None:
            steps = min(steps, self._node.steps - self._step)
            if steps <= 0:
                return None
        taken = self._take(steps)
        whole = min(len(part.block) for part in taken) // self.rows
        if whole < steps and steps > 1:
            # Some lane ends, or fails, before that. Take what comes before.
            self._put_back(taken)
            steps = max(1, whole)
            taken = self._take(steps)
            whole = min(len(part.block) for part in taken) // self.rows
        if whole == steps:
            marks = LaneMarks(self, self._step, steps * self.width, taken)
            return Chunk(self._in_turn(taken, steps), marks)
        if not self._node.pads and any(map(self._ended, taken)):
            # What fails in a step that is not handed out anyway, does not matter.
            self._put_back(taken)
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
        self._put_back(taken)
        return None

    def _ended(self, part: Taken) -> bool:
        return len(part.block) < self.rows and part.failure is None

    def _failure_in(self, taken: Sequence[Taken]) -> tuple[Failure | None, bool]:
        """What failed in a step, and whether a lane ends in it.

        All of the step is passed over, as if it had been handed out.
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

    def _put_back(self, taken: Sequence[Taken]) -> None:
        for cursor, part in zip(self._cursors, taken, strict=True):
            cursor.put_back(part, 0)

    def _take(self, steps: int) -> list[Taken]:
        count, lanes, ahead = steps * self.rows, len(self._cursors), self._elements_ahead()
        began, cpu_began = self._clock(), time.thread_time()
        # Not as many of each, so that the lanes are not all read in the same step.
        further = [ahead + ahead * lane // lanes for lane in range(lanes)]
        if self._lanes_eager:
            self._read(count, further)
        taken = [
            cursor.take(count, more) for cursor, more in zip(self._cursors, further, strict=True)
        ]
        if not self._touched:
            # What runs each lane was made, which says nothing of what comes after.
            self._touched = True
            return taken
        self._spent = self._spent * _LATELY + self._clock() - began
        self._cpu_spent = self._cpu_spent * _LATELY + time.thread_time() - cpu_began
        self._gotten = self._gotten * _LATELY + count * lanes
        return taken

    def _read(self, count: int, further: Sequence[int]) -> None:
        """Reads what is missing of many lanes, side by side, for as long as there are many."""
        cursors = self._cursors
        ready = [cursor.prepared for cursor in cursors]
        lacking = [n for n, there in enumerate(ready) if there < count]
        while len(lacking) >= FEWEST_TOGETHER:
            # To come back to a lane for what a filter left out costs more than to read it.
            share = max(_LEAST_SHARE, min(1.0, self._came / self._asked))
            wanted = [(n, int((count - ready[n]) / share) + further[n]) for n in lacking]
            self._evaluate(wanted)
            lacking = []
            for n, want in wanted:
                goes_on, there = cursors[n].read_on(want), cursors[n].prepared
                self._asked, self._came = self._asked + want, self._came + there - ready[n]
                ready[n] = there
                if goes_on and there < count:
                    lacking.append(n)

    def _elements_ahead(self) -> int:
        """How much more than a step needs is read of a lane: worth the call, and there soon."""
        if not self._gotten:
            return 0
        # On a core, so that other programs make no difference; but records may wait, too.
        worth = _SECONDS_OF_A_LANE / max(self._cpu_spent, 1e-9)
        soon = SOON_SECONDS / max(self._spent, 1e-9)
        # Who takes a few steps does not wait for many.
        ahead = min(_AHEAD, min(worth, soon) * self._gotten, self._step * self.rows)
        if self._at_once.bytes_each:
            ahead = min(ahead, _BYTES_AHEAD * self.rows // self._at_once.bytes_each)
        return int(ahead)

    def _in_turn(self, taken: Sequence[Taken], steps: int) -> Block:
        blocks = [part.block for part in taken]
        size = steps * self.width
        positions = np.arange(size, dtype=np.int64) + self._step * self.width
        if self._node.pads:
            rows = self._rows_in_turn(blocks, steps)
            self._remember(rows)
            return Block([(row, True) for row in rows], positions)
        columns = self._columns_in_turn(blocks, steps, size)
        return Block(columns or self._rows_in_turn(blocks, steps), positions)

    def _rows_in_turn(self, blocks: Sequence[Block], steps: int) -> list[Any]:
        rows = [block.rows() for block in blocks]
        if steps == 1:
            return [row for lane in rows for row in lane]
        starts = range(0, steps * self.rows, self.rows)
        return [row for start in starts for lane in rows for row in lane[start : start + self.rows]]

    def _columns_in_turn(self, blocks: Sequence[Block], steps: int, size: int) -> Columns | None:
        first = blocks[0].values
        if not isinstance(first, Columns):
            return None
        by_key = [
            block.values.keys
            for block in blocks
            if isinstance(block.values, Columns) and block.values.tree is first.tree
        ]
        keys = [part for part in by_key if part is not None]
        if len(keys) == len(blocks):
            # All are selections of one and the same table: nothing is copied before the batch.
            lanes = np.stack([part.reshape(steps, self.rows) for part in keys], axis=1)
            return Columns(first.tree, lanes.reshape(-1))
        return merge_columns(size, list(zip(self._places(steps), blocks, strict=True)))

    def _places(self, steps: int) -> list[Keys]:
        """The places that the elements of each lane take in the rows of `steps` steps."""
        each = np.arange(steps)[:, None] * self.width + np.arange(self.rows)
        return [(each + lane * self.rows).reshape(-1) for lane in range(len(self._cursors))]

    def _padded(self, taken: Sequence[Taken]) -> Block:
        """One step, of which some lanes have not all rows any more."""
        rows: list[Any] = []
        for part in taken:
            self._remember(part.block.rows())
        for part in taken:
            mine = part.block.rows()
            rows += [(row, True) for row in mine]
            rows += [(self._filler(), False)] * (self.rows - len(mine))
        return Block(rows, np.arange(self.width, dtype=np.int64) + self._step * self.width)

    def _padding(self) -> Chunk:
        """A step without a single element."""
        taken = [cursor.take(0) for cursor in self._cursors]
        positions = np.arange(self.width, dtype=np.int64) + self._step * self.width
        block = Block([(self._filler(), False)] * self.width, positions)
        return Chunk(block, LaneMarks(self, self._step, self.width, taken))

    def _filler(self) -> Any:
        if not self._has_template:
            self._remember([self._example()])
        return self._template

    def _remember(self, rows: Sequence[Any]) -> None:
        """Takes note of what elements look like."""
        if rows and not self._has_template:
            self._template, self._has_template = zeros_like(rows[0]), True

    def state_of(self, states: Sequence[State], step: int, row: int) -> State:
        first = self._node.first
        lanes = {str(first + lane): state for lane, state in enumerate(states)}
        state: State = {"lanes": lanes, "step": step}
        return {**state, "row": row, "width": self.width} if row else state

    def state(self) -> State:
        if self._kept is not None:
            return self._kept.marks.at(self._skip)
        return self.state_of(self._cursors.states(), self._step, self._skip)

    def restore(self, state: State) -> None:
        self._cursors.restore(self._own_states(state))
        self._step, self._skip, self._kept = state["step"], state.get("row", 0), None
        self._over = self._ending = self._begun = False
        self._own_end = None
        if not self.ahead:
            self.begin_anew()

    def index_in(self, state: State) -> int:
        return int(state["step"]) * self.width + int(state.get("row", 0))

    def _own_states(self, state: State) -> list[State]:
        first = self._node.first
        return [state["lanes"][str(first + lane)] for lane in range(len(self._cursors))]

    def fields(self) -> Fields:
        lanes = {
            str(self._node.first + lane): cursor.stream for lane, cursor in enumerate(self._cursors)
        }
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
        streams = self._cursors.streams
        given = None if self._node.pads else all_before(streams, self._own_states(state))
        if given is None or state["step"] <= given:
            return None
        return f"'step' is {state['step']}, and its lanes have given {given} elements"

    def close(self) -> None:
        if self._leave is not None:
            self._leave()
        super().close()


def _first_of(failures: Sequence[Failure]) -> Failure | None:
    """The first failure of a step; it tells of the others."""
    for other in failures[1:]:
        error = other.release()
        if failures[0].error is not None:
            add_note(failures[0].error, f"bushel: in the same step also {error!r}.")
    return failures[0] if failures else None


def _steps_in(chunk: Chunk, width: int) -> int:
    return len(chunk.block) // width + (chunk.block.failure is not None)
