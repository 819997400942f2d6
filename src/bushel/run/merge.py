"""Streams of several inputs; zipped ones."""

from collections.abc import Sequence

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.fields import Declares, Fields, Flag, Inners, all_before
from bushel.core.frozen import plain
from bushel.core.node import Zip
from bushel.core.state import State
from bushel.core.stream import Chunk, Cursor, Marks, Stream, Taken
from bushel.errors import PlanError


class Merged(Stream):
    """A stream that reads from several."""

    def __init__(self, inputs: Sequence[Stream]) -> None:
        self._cursors = [Cursor(stream) for stream in inputs]
        self.eager = all(stream.eager for stream in inputs)

    def _states(self) -> list[State]:
        return [cursor.state() for cursor in self._cursors]

    def _go_back(self, states: Sequence[State]) -> None:
        for cursor, state in zip(self._cursors, states, strict=True):
            cursor.restore(state)

    def start(self) -> None:
        for cursor in self._cursors:
            cursor.stream.start()

    def close(self) -> None:
        for cursor in self._cursors:
            cursor.stream.close()


def marks_of(taken: Sequence[Taken]) -> list[Marks]:
    """The states, without the elements."""
    return [part.marks for part in taken]


@plain
class _ZipMarks(Marks):
    parts: Sequence[Marks]
    # After a failure: how many elements each input had then given.
    after_failure: Sequence[int] = ()
    size: int = 0
    # Whether that failure was that the inputs did not end together: then nothing follows.
    stopped: bool = False

    def at(self, used: int) -> State:
        failed = used > self.size
        counts = self.after_failure if failed else [used] * len(self.parts)
        states = [part.at(count) for part, count in zip(self.parts, counts, strict=True)]
        return _zip_state(states, failed and self.stopped)


def _zip_state(states: Sequence[State], stopped: bool) -> State:
    state: State = {"parents": list(states)}
    return {**state, "stop": True} if stopped else state


class ZipStream(Merged):
    """Makes tuples of one element from each input."""

    def __init__(self, inputs: Sequence[Stream], node: Zip, strict: bool) -> None:
        super().__init__(inputs)
        self._node = node
        self._strict = strict
        self._stopped = False
        self._mismatched = False

    def pull(self, want: int) -> Chunk | None:
        if self._stopped:
            return None
        if want == 1 or not self.eager:
            return self._pull_one()
        taken = [cursor.take(want) for cursor in self._cursors]
        end = min(len(part.block) for part in taken)
        if any(len(part.block) != end or part.failure is not None for part in taken):
            for cursor, part in zip(self._cursors, taken, strict=True):
                cursor.put_back(part, end)
        if not end:
            return self._pull_one()
        # To the shortest: what is left of the others was put back.
        rows = list(zip(*(part.block.rows() for part in taken), strict=False))
        block = Block(rows, taken[0].block.positions[:end])
        return Chunk(block, _ZipMarks(marks_of(taken), (), end))

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
            return Chunk(Block([row], taken[0].block.positions), _ZipMarks(marks_of(taken), (), 1))
        while len(taken) < len(self._cursors):
            taken.append(self._cursors[len(taken)].take(0))
            counts.append(0)
        self._mismatched = ended is not None
        return Chunk(block, _ZipMarks(marks_of(taken), counts, 0, self._mismatched))

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
        return _zip_state(self._states(), self._mismatched)

    def restore(self, state: State) -> None:
        self._go_back(state["parents"])
        self._stopped = self._mismatched = bool(state.get("stop"))

    def fields(self) -> Fields:
        return zip_fields([cursor.stream for cursor in self._cursors])

    def most_before(self, state: State | None) -> int | None:
        inners = [None] * len(self._cursors) if state is None else state["parents"]
        # (Of all inputs together: one that fails leaves the others where they are.)
        return all_before([cursor.stream for cursor in self._cursors], inners)


def zip_fields(inputs: Sequence[Declares]) -> Fields:
    """The state of a zip: those of its inputs, and whether they did not end together."""
    return Fields(parents=Inners(inputs, of="this zip has {} inputs"), stop=Flag(optional=True))
