"""The lanes of one host, gathered into steps."""

import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bushel.block import Block, Columns, Failure, merge_columns
from bushel.errors import StateError, StateRangeError
from bushel.frozen import plain
from bushel.plan.lanes import Agree, OwnLanesNode
from bushel.positions import Keys
from bushel.run.merge import Merged
from bushel.run.stream import Chunk, Marks, State, Stream, Taken, need, need_int
from bushel.run.tune import BlockSize, approximate_bytes
from bushel.tree import map_leaves

# What a host says that has no more elements of its own, but can pad as long as others have.
_AS_MANY_AS_YOU_LIKE = sys.maxsize

_AHEAD = 64


@plain
class _LaneMarks(Marks):
    stream: "LanesStream"
    step: int
    size: int
    taken: Sequence[Taken]

    def at(self, used: int) -> State:
        if used > self.size:  # Behind the failure: every lane has taken what it could.
            after = [part.at(len(part.block) + (part.failure is not None)) for part in self.taken]
            return self.stream.state_of(after, self.step + self.size // self.stream.width + 1, 0)
        steps, row = divmod(used, self.stream.width)
        count = steps * self.stream.rows
        # In the middle of a step: its start, and how far we are. So nothing in a state but
        # that number depends on which host had the lanes.
        states = [part.at(min(count, len(part.block))) for part in self.taken]
        return self.stream.state_of(states, self.step + steps, row)


class LanesStream(Merged):
    """Takes `rows` elements from each lane for a step, lane after lane.

    Hosts that share the lanes of a job stay together: all take the same number of steps.
    """

    def __init__(
        self,
        inputs: Sequence[Stream],
        node: OwnLanesNode,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(inputs)
        self._node = node
        # Whether lanes may be read ahead, and gone back in.
        self._lanes_eager = self.eager
        if node.agree is not None:
            # Hosts wait for each other where they agree, so none may do so before it has to:
            # the others may be waiting, in the training, for what it has already.
            self.eager = False
        self.rows = node.rows
        # How many elements one step has here.
        self.width = len(inputs) * node.rows
        # How much more than a step needs is read of a lane: enough to be worth the call, and
        # different, so that the lanes are not all read in the same step.
        self._ahead = [_AHEAD + _AHEAD * lane // len(inputs) for lane in range(len(inputs))]
        # How many steps are offered to the other hosts at once.
        self._offer = BlockSize()
        self._clock = clock
        self._step = 0
        self._skip = 0
        self._over = False
        # Whether some lane has come to its end, and the others go on.
        self._ending = False
        # Steps that other hosts may not have.
        self._kept: Chunk | None = None
        self._template: Any = None
        self._has_template = False
        self._leave: weakref.finalize[..., LanesStream] | None = None
        close = getattr(node.agree, "close", None)
        if close is not None:
            # The other hosts are told, too, when nobody refers to this stream any more.
            self._leave = weakref.finalize(self, close)
            self._leave.atexit = False

    def pull(self, want: int) -> Chunk | None:
        if self._over:
            return None
        if self._node.agree is None:
            chunk = self._gather(max(1, want // self.width))
        else:
            chunk = self._among_hosts(self._kept or self._to_offer(), self._node.agree)
        if chunk is None:
            self._over = True
            return None
        self._step += _steps_in(chunk, self.width)
        skip, self._skip = self._skip, 0
        return chunk.rest(skip) if skip else chunk

    def _to_offer(self) -> Chunk | None:
        """Steps of which other hosts may have fewer: what is left of them is kept."""
        steps, began = self._offer.size, self._clock()
        chunk = self._gather(steps)
        self._offer.learn(steps, self._clock() - began)
        if chunk is not None and len(chunk.block) and self._offer.wants_sample():
            row = chunk.block.part(0, 1).rows()[0]
            self._offer.limit_to(self.width * approximate_bytes(row))
        return chunk

    def _among_hosts(self, chunk: Chunk | None, agree: Agree) -> Chunk | None:
        """What of these steps all hosts have."""
        self._kept = None
        have = _AS_MANY_AS_YOU_LIKE if self._node.pads else 0
        if chunk is not None:
            have = _steps_in(chunk, self.width)
        steps = agree(have)
        if steps == (_AS_MANY_AS_YOU_LIKE if self._node.pads else 0):
            self._kept = chunk
            return None
        if chunk is None:
            return self._padding(steps)
        if steps < have:
            self._kept = chunk.rest(steps * self.width)
            return Chunk(chunk.block.part(0, steps * self.width), chunk.marks)
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
            marks = _LaneMarks(self, self._step, steps * self.width, taken)
            return Chunk(self._in_turn(taken, steps), marks)
        failure = _failure_of(taken)
        if failure is not None:
            block = Block([], np.empty(0, dtype=np.int64), failure)
            return Chunk(block, _LaneMarks(self, self._step, 0, taken))
        if self._node.pads and (any(len(part.block) for part in taken) or self._node.steps):
            self._ending = True
            return Chunk(self._padded(taken), _LaneMarks(self, self._step, self.width, taken))
        self._put_back(taken)
        return None

    def _put_back(self, taken: Sequence[Taken]) -> None:
        for cursor, part in zip(self._cursors, taken, strict=True):
            cursor.put_back(part, 0)

    def _take(self, steps: int) -> list[Taken]:
        count, ahead = steps * self.rows, self._ahead
        return [c.take(count, more) for c, more in zip(self._cursors, ahead, strict=True)]

    def _in_turn(self, taken: Sequence[Taken], steps: int) -> Block:
        blocks = [part.block for part in taken]
        size = steps * self.width
        positions = np.arange(size, dtype=np.int64) + self._step * self.width
        if self._node.pads:
            rows = [(row, True) for row in self._rows_in_turn(blocks, steps)]
            return Block(rows, positions)
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
        """The places that the elements of each lane take in so many steps."""
        each = np.arange(steps)[:, None] * self.width + np.arange(self.rows)
        return [(each + lane * self.rows).reshape(-1) for lane in range(len(self._cursors))]

    def _padded(self, taken: Sequence[Taken]) -> Block:
        """One step, of which some lanes have not all rows any more."""
        rows: list[Any] = []
        for part in taken:
            mine = part.block.rows()
            if mine and not self._has_template:
                self._template, self._has_template = zeros_like(mine[0]), True
        for part in taken:
            mine = part.block.rows()
            rows += [(row, True) for row in mine]
            rows += [(self._filler(), False)] * (self.rows - len(mine))
        return Block(rows, np.arange(self.width, dtype=np.int64) + self._step * self.width)

    def _padding(self, steps: int) -> Chunk:
        """Steps without a single element."""
        taken = [cursor.take(0) for cursor in self._cursors]
        size = steps * self.width
        block = Block([(self._filler(), False)] * size, np.arange(size, dtype=np.int64))
        return Chunk(block, _LaneMarks(self, self._step, size, taken))

    def _filler(self) -> Any:
        if not self._has_template:
            self._template, self._has_template = zeros_like(self._node.example()), True
        return self._template

    def state_of(self, states: Sequence[State], step: int, row: int) -> State:
        first = self._node.first
        lanes = {str(first + lane): state for lane, state in enumerate(states)}
        state: State = {"lanes": lanes, "step": step}
        return {**state, "row": row, "width": self.width} if row else state

    def state(self) -> State:
        if self._kept is not None:
            return self._kept.marks.at(self._skip)
        return self.state_of(self._states(), self._step, self._skip)

    def restore(self, state: State) -> None:
        (lanes,) = need(state, "lanes")
        step = need_int(state, "step")
        row = need_int(state, "row") if "row" in state else 0
        if not isinstance(lanes, dict):
            raise StateError(f"'lanes' in a state must be a dict, and is {lanes!r:.200}.")
        if step > sys.maxsize // self.width:
            raise StateRangeError(f"'step' in a state is {step}, which no job can reach.")
        if row and (state.get("width") != self.width or row >= self.width):
            raise StateError(
                f"this state was taken within a step, after {row} of the {state.get('width')!r} "
                f"elements that its host had of it, and this host has {self.width} of each step. "
                "Take states between steps: of batches, or after all elements of a step."
            )
        numbers = range(self._node.first, self._node.first + len(self._cursors))
        missing = [number for number in numbers if str(number) not in lanes]
        if missing:
            raise StateError(
                f"this host has lanes {numbers[0]} to {numbers[-1]}, and the state has none for "
                f"lane {missing[0]}: it has {_show(lanes)}. A checkpoint of another number of "
                "hosts is restored from the states of all of them together: through Orbax by "
                "itself, or with `bushel.checkpoint.merge_states([...])`."
            )
        self._go_back([lanes[str(number)] for number in numbers])
        self._step, self._skip, self._kept = step, row, None
        self._over = self._ending = False
        restart = getattr(self._node.agree, "restart", None)
        if restart is not None:
            restart()

    def close(self) -> None:
        if self._leave is not None:
            self._leave()
        super().close()


def zeros_like(element: Any) -> Any:
    """An element of the same structure, shapes and types, of which nothing is to be learnt.

    >>> zeros_like({"x": np.array([1.5, 2.5]), "y": 7, "name": "n", "flag": True})
    {'x': array([0., 0.]), 'y': 0, 'name': '', 'flag': False}
    """

    def zero(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return np.zeros_like(leaf)
        if isinstance(leaf, np.generic):
            return np.zeros((), leaf.dtype)[()]  # A date keeps its unit.
        try:
            return type(leaf)()
        except Exception:  # Whatever its class may want.
            return leaf

    return map_leaves(zero, element)


def _failure_of(taken: Sequence[Taken]) -> Failure | None:
    """The first failure of a step; it tells of the others."""
    failures = [part.failure for part in taken if part.failure is not None]
    if not failures:
        return None
    for other in failures[1:]:
        error = other.release()
        if failures[0].error is not None:
            failures[0].error.add_note(f"bushel: in the same step also {error!r}.")
    return failures[0]


def _steps_in(chunk: Chunk, width: int) -> int:
    return len(chunk.block) // width + (chunk.block.failure is not None)


def _show(lanes: dict[str, Any]) -> str:
    if not lanes:
        return "none"
    names = list(lanes)
    return f"lane {names[0]}" if len(names) == 1 else f"lanes {names[0]} to {names[-1]}"
