"""Streams of several inputs: mixed in proportion, or zipped."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.block import Block, Failure
from bushel.errors import PlanError, StateError
from bushel.frozen import plain
from bushel.node import Choice, Zip
from bushel.positions import Keys
from bushel.run.stream import Chunk, Cursor, Marks, State, Stream, Taken, need, need_int


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


def _marks(taken: Sequence[Taken]) -> list[Marks]:
    """The states, without the elements."""
    return [part.marks for part in taken]


@plain
class _MixMarks(Marks):
    stream: "MixStream"
    start: int
    which: Keys
    parts: Sequence[Marks]
    failed_part: int | None

    def at(self, used: int) -> State:
        chosen = self.which[:used]
        counts = np.bincount(chosen, minlength=len(self.parts))
        if used > len(self.which) and self.failed_part is not None:
            counts[self.failed_part] += 1
        states = [part.at(int(count)) for part, count in zip(self.parts, counts, strict=True)]
        return self.stream.state_of(states, self.start + used, False)


class MixStream(Merged):
    """Takes elements from its inputs in turn, as a `Choice` says, until one has no more."""

    def __init__(self, inputs: Sequence[Stream], node: Choice, names: Sequence[str] | None) -> None:
        super().__init__(inputs)
        self._node = node
        self._names = names
        self._index = 0
        self._stopped = False
        self._starts = self._states() if names is not None else []

    def pull(self, want: int) -> Chunk | None:
        if self._stopped:
            return None
        if not self.eager:
            want = 1
        which, taken, end = self._take(want)
        if end < want and want > 1:
            # An input ended, or failed, at element `end`: only what comes before it is taken.
            which = which[:end]
            counts = np.bincount(which, minlength=len(taken)).tolist()
            for cursor, from_it, count in zip(self._cursors, taken, counts, strict=True):
                cursor.put_back(from_it, count)
            if not end:
                return self.pull(1)
        start = self._index
        if not end:
            part = int(which[0])
            failure = taken[part].failure
            if failure is None:
                self._stopped = True
                return None
            self._index += 1
            empty = Block([], np.empty(0, dtype=np.int64), failure)
            return Chunk(empty, _MixMarks(self, start, which[:0], _marks(taken), part))
        self._index += end
        rows: list[Any] = [None] * end
        for number, part_taken in enumerate(taken):
            places = (which == number).nonzero()[0]
            for place, row in zip(places.tolist(), part_taken.block.rows(), strict=False):
                rows[place] = row
        positions = np.arange(start, start + end, dtype=np.int64)
        return Chunk(Block(rows, positions), _MixMarks(self, start, which, _marks(taken), None))

    def _take(self, want: int) -> tuple[Keys, list[Taken], int]:
        positions = np.arange(self._index, self._index + want, dtype=np.int64)
        which, _ = self._node.locate(positions)
        counts = np.bincount(which, minlength=len(self._cursors))
        taken = []
        end = want
        for number, cursor in enumerate(self._cursors):
            part = cursor.take(int(counts[number]))
            if len(part.block) < counts[number]:
                end = min(end, int((which == number).nonzero()[0][len(part.block)]))
            taken.append(part)
        return which, taken, end

    def state_of(self, states: Sequence[State], index: int, stopped: bool) -> State:
        parents: Any = list(states)
        if self._names is not None:
            parents = dict(zip(self._names, states, strict=True))
        return {"parents": parents, "index": index, "stop": stopped}

    def state(self) -> State:
        return self.state_of(self._states(), self._index, self._stopped)

    def restore(self, state: State) -> None:
        parents, stopped = need(state, "parents", "stop")
        index = need_int(state, "index")
        if self._names is not None:
            # By name, so that parts may come and go: a new one starts at its beginning.
            if not isinstance(parents, dict):
                raise StateError(
                    f"this mixture has named parts, and the state has {parents!r:.200}."
                )
            for name, cursor, start in zip(self._names, self._cursors, self._starts, strict=True):
                cursor.restore(parents.get(name, start))
        else:
            if not isinstance(parents, list) or len(parents) != len(self._cursors):
                raise StateError(
                    f"this mixture has {len(self._cursors)} parts, and the state {parents!r:.200}."
                )
            self._go_back(parents)
        self._index, self._stopped = index, bool(stopped)


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
        return Chunk(Block(rows, taken[0].block.positions[:end]), _ZipMarks(_marks(taken), (), end))

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
            return Chunk(Block([row], taken[0].block.positions), _ZipMarks(_marks(taken), (), 1))
        while len(taken) < len(self._cursors):
            taken.append(self._cursors[len(taken)].take(0))
            counts.append(0)
        self._mismatched = ended is not None
        return Chunk(block, _ZipMarks(_marks(taken), counts, 0, self._mismatched))

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
        (parents,) = need(state, "parents")
        if not isinstance(parents, list) or len(parents) != len(self._cursors):
            raise StateError(
                f"this zip has {len(self._cursors)} inputs, and the state has {parents!r:.200}."
            )
        self._go_back(parents)
        self._stopped = self._mismatched = state.get("stop") is True
