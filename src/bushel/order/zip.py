"""`zip`: tuples of one element from each of several datasets or streams."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.cursor import Cursor, Taken
from bushel.core.frozen import frozen, plain
from bushel.core.merged import Merged
from bushel.core.node import Node, Zip
from bushel.core.state import State
from bushel.core.state_fields import Declares, Fields, Flag, Inners, all_before
from bushel.core.step import EvaluateTogether, How, Join, SideBySide, SideMarks
from bushel.core.stream import Chunk, Marks, StateAt, Stream, state_at, state_reached
from bushel.errors import PlanError
from bushel.order.foresight import Foresight

# The least number of datasets; fewer are read faster one by one, in blocks of their own.
_FEWEST_SIDE_BY_SIDE = 16


@frozen
class ZipNode(Zip, Join):
    """Makes tuples of one element from each input."""

    parts: tuple[Node, ...]
    strict: bool = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def length(self) -> int:
        return self.parts[0].length()

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        known = [length for length in lengths if length is not None]
        return min(known) if len(known) == len(lengths) else None

    def join(self, inputs: Callable[[], Sequence[Stream]], how: How) -> Stream:
        parts = how.side_by_side(self.parts) if len(self.parts) >= _FEWEST_SIDE_BY_SIDE else None

        def each() -> ZipStream:
            return ZipStream(inputs(), self.strict, how.together)

        return each() if parts is None else SideZipStream(parts, each)

    def describe(self) -> str:
        return f"zip({len(self.parts)} parts)"


def _marks_of(taken: Sequence[Taken]) -> list[Marks]:
    """The states, without the elements."""
    return [part.marks for part in taken]


@plain
class _ZipMarks(Marks):
    parts: Sequence[Marks]
    # After a failure: the number of elements that each input had then given.
    after_failure: Sequence[int] = ()
    size: int = 0
    # Whether the failure is that the inputs did not end together: then it is the end.
    stopped: bool = False

    def at(self, used: int) -> State:
        return self._after(used, state_at)

    def reached(self, used: int) -> State:
        return self._after(used, state_reached)

    def _after(self, used: int, state: StateAt) -> State:
        failed = used > self.size
        counts = self.after_failure if failed else [used] * len(self.parts)
        states = [state(part, count) for part, count in zip(self.parts, counts, strict=True)]
        return _zip_state(states, failed and self.stopped)


def _zip_state(states: Sequence[State], stopped: bool) -> State:
    state: State = {"parents": list(states)}
    return {**state, "stop": True} if stopped else state


class ZipStream(Merged):
    """Makes tuples of one element from each input."""

    def __init__(
        self,
        inputs: Sequence[Stream],
        strict: bool,
        together: Callable[[Sequence[Cursor]], EvaluateTogether],
    ) -> None:
        super().__init__(inputs)
        self._strict = strict
        # A read costs more than an element. Reading one element of each of many streams would take
        # so long that no more would be read at once: so several of each are read, and wait.
        self._foresight: Foresight | None = None
        if self.eager and len(inputs) >= _FEWEST_SIDE_BY_SIDE:
            evaluate = together(self._cursors)
            self._foresight = Foresight(self._cursors, evaluate, time.perf_counter)
        self._stopped = False
        self._mismatched = False

    def pull(self, want: int) -> Chunk | None:
        if self._stopped:
            return None
        if self._foresight is not None:
            ready = [cursor.prepared for cursor in self._cursors]
            missing = [(number, want) for number, count in enumerate(ready) if count < want]
            if missing:
                self._foresight.prepare(missing)
        if want == 1 or not self.eager:
            return self._pull_one()
        taken = [cursor.take(want) for cursor in self._cursors]
        end = min(len(part.block) for part in taken)
        if any(len(part.block) != end or part.failure is not None for part in taken):
            for cursor, part in zip(self._cursors, taken, strict=True):
                cursor.put_back(part, end)
        if not end:
            return self._pull_one()
        # As many as the shortest input has: the rest of the others was put back.
        rows = list(zip(*(part.block.rows() for part in taken), strict=False))
        block = Block(rows, taken[0].block.positions[:end])
        self._look_at(rows[0])
        return Chunk(block, _ZipMarks(_marks_of(taken), (), end))

    def _pull_one(self) -> Chunk | None:
        taken: list[Taken] = []
        counts: list[int] = []
        failure: Failure | None = None
        ended: int | None = None
        for number, cursor in enumerate(self._cursors):
            part = cursor.take(1 if failure is None else 0)
            taken.append(part)
            counts.append(0 if failure is not None else 1)
            if part.failure is not None:
                failure = part.failure
            elif failure is None and not len(part.block):
                counts[-1] = 0
                if ended is None:
                    ended = number
                if number and ended == number:
                    break
            elif ended == 0 and failure is None:
                failure = self._unequal(number, "longer")
        if ended is not None:
            self._stopped = True
            if failure is None and ended > 0 and self._strict:
                failure = self._unequal(ended, "shorter")
            if failure is None or not self._strict:
                return None
        block = Block([], np.empty(0, dtype=np.int64), failure)
        if failure is None:
            row = tuple(part.block.rows()[0] for part in taken)
            self._look_at(row)
            return Chunk(Block([row], taken[0].block.positions), _ZipMarks(_marks_of(taken), (), 1))
        while len(taken) < len(self._cursors):
            taken.append(self._cursors[len(taken)].take(0))
            counts.append(0)
        self._mismatched = ended is not None
        return Chunk(block, _ZipMarks(_marks_of(taken), counts, 0, self._mismatched))

    def _look_at(self, row: tuple[Any, ...]) -> None:
        """Takes note of the size of elements, given those of one tuple."""
        if self._foresight is not None:
            self._foresight.look_at(row[0])

    def _unequal(self, number: int, how: str) -> Failure | None:
        if not self._strict:
            return None
        return Failure(
            PlanError(
                f"`ZipIterDataset`: argument {number + 1} is {how} than argument 1. Datasets must "
                "end together, unless `strict=False`."
            )
        )

    def state(self) -> State:
        return _zip_state(self._cursors.states(), self._mismatched)

    def restore(self, state: State) -> None:
        self._cursors.restore(state["parents"])
        self._stopped = self._mismatched = bool(state.get("stop"))

    def fields(self) -> Fields:
        return zip_fields(self._cursors.streams)

    def most_before(self, state: State | None) -> int | None:
        inners = [None] * len(self._cursors) if state is None else state["parents"]
        # (Of all inputs together, as a failure in one leaves the others where they are.)
        return all_before(self._cursors.streams, inners)


def zip_fields(inputs: Sequence[Declares]) -> Fields:
    """The state of a zip: those of its inputs, and whether they failed to end together."""
    return Fields(parents=Inners(inputs, of="this zip has {} inputs"), stop=Flag(optional=True))


@plain
class _ZippedSideMarks(Marks):
    parts: SideMarks
    count: int

    def at(self, used: int) -> State:
        return {"parents": self.parts.at(np.full(self.count, used, dtype=np.int64))}


class SideZipStream(Stream):
    """Makes tuples of one element from each of many datasets, while all have one."""

    def __init__(self, parts: SideBySide, make_each: Callable[[], ZipStream]) -> None:
        self._parts, self._make_each = parts, make_each
        self._made: ZipStream | None = None
        # The same with each stream read by itself, once that is necessary.
        self._each: ZipStream | None = None

    def pull(self, want: int) -> Chunk | None:
        if self._each is None:
            chunk = self._together(want) if self._parts.is_suited else None
            if chunk is not None:
                return chunk
            self._read_each(self.state())
        assert self._each is not None
        return self._each.pull(want)

    def _together(self, want: int) -> Chunk | None:
        """Some tuples; None if there are none that can be read like this."""
        parts, count = self._parts, len(self._parts.parts)
        size = min(want, max(1, parts.at_once // count))
        which = np.tile(np.arange(count), size)
        block = parts.read(which, least=count)
        size = len(block) // count
        if not size:
            return None
        # Each tuple takes the next `count` rows from one iterator, which is passed for all parts.
        made = list(zip(*[iter(block.rows())] * count, strict=False))
        taken = parts.take(which[: size * count], block.positions[: size * count])
        positions = block.positions[: size * count : count]
        return Chunk(Block(made, positions), _ZippedSideMarks(taken, count))

    def _read_each(self, state: State) -> None:
        if self._made is None:
            self._made = self._make_each()
        self._made.restore(state)
        self._each = self._made

    def state(self) -> State:
        if self._each is not None:
            return self._each.state()
        return {"parents": self._parts.states()}

    def restore(self, state: State) -> None:
        if not state.get("stop") and self._parts.restore(state["parents"]):
            self._each = None
            return
        self._read_each(state)

    def fields(self) -> Fields:
        return zip_fields(self._parts.parts)

    def most_before(self, state: State | None) -> int | None:
        inners = [None] * len(self._parts.parts) if state is None else state["parents"]
        return all_before(self._parts.parts, inners)

    def start(self) -> None:
        if self._each is not None:
            self._each.start()

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
