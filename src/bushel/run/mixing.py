"""Streams mixed in proportion, and parts of a mixture that begin again."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.block import Block, Failure
from bushel.core.frozen import plain
from bushel.core.node import failed
from bushel.core.positions import Keys, sorted_runs
from bushel.core.state import State, need, need_int
from bushel.core.stream import Chunk, Cursor, Marks, Stream, beginning_of
from bushel.errors import PlanError, StateError
from bushel.order.turns import Ahead, Choices
from bushel.plan.mixing import EpochsNode, StreamMixNode
from bushel.run.foresight import Foresight
from bushel.run.merge import Merged
from bushel.run.mix_weights import Course, going_on, own_piece

_Counts: TypeAlias = npt.NDArray[np.int64]


@plain
class _Place:
    """Where a mixture is, apart from where its parts are."""

    index: int
    # How many elements each part has given.
    taken: _Counts
    # Whose turn it is, and how many of these turns are over.
    choices: Choices
    used: int
    # Whether each part is still there.
    stays: Sequence[bool]

    @property
    def ahead(self) -> Ahead:
        """How far each part is ahead of its share."""
        return self.choices.ahead(self.used)


class _Log:
    """Where the parts of a mixture were at each time, as far as somebody may ask.

    Most of a thousand parts stay where they are while a few give their elements. So what is
    written down is who moved.
    """

    def __init__(self, cursors: Sequence[Cursor]) -> None:
        self._cursors = cursors
        # Where parts were in the beginning. Of those that are not in it: where they are now.
        self._first: dict[int, tuple[Marks, int]] = {}
        self._moves: list[tuple[int, Marks, int]] = []

    def __len__(self) -> int:
        return len(self._moves)

    @property
    def is_long(self) -> bool:
        return len(self._moves) > 4 * len(self._cursors)

    def add(self, part: int, marks: Marks, count: int) -> None:
        """Notes that a part gives so many of the elements between these states."""
        self._first.setdefault(part, (marks, 0))
        self._moves.append((part, marks, count))

    def settle(self, parts: Iterable[int]) -> None:
        """Notes where parts are, before they go somewhere else."""
        for part in parts:
            if part not in self._first:
                self._first[part] = self._cursors[part].mark()[:2]

    def at(self, length: int) -> list[tuple[Marks, int]]:
        """Where the parts were after the first so many moves."""
        places = dict(self._first)
        for part, marks, count in self._moves[:length]:
            places[part] = marks, count
        return [
            places[part] if part in places else self._untouched(part)
            for part in range(len(self._cursors))
        ]

    def _untouched(self, part: int) -> tuple[Marks, int]:
        # Somebody else may pull meanwhile. Who moves a part says so before.
        place = self._cursors[part].mark()[:2]
        return self._first.get(part, place)


@plain
class _MixMarks(Marks):
    stream: "MixStream"
    course: Course
    start: _Place
    which: Keys
    log: _Log
    # How many moves were before these elements, and the states of those that give them.
    moves: int
    parts: dict[int, Marks]
    failed_part: int | None = None

    def at(self, used: int) -> State:
        start = self.start
        counts = np.bincount(self.which[:used], minlength=len(start.taken))
        taken = start.taken + counts
        if used > len(self.which) and self.failed_part is not None:
            counts[self.failed_part] += 1  # It had its turn, and gave nothing.
        places = self.log.at(self.moves)
        for part, marks in self.parts.items():
            places[part] = marks, int(counts[part])
        place = _Place(start.index + used, taken, start.choices, start.used + used, start.stays)
        states = [marks.at(count) for marks, count in places]
        return self.stream.state_of(states, self.course, place, False)


class MixStream(Merged):
    """Takes elements from its inputs in turn.

    When a part has no element for its turn, the mixture ends, or goes on without that part.
    """

    def __init__(
        self,
        inputs: Sequence[Stream],
        node: StreamMixNode,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(inputs)
        self._node = node
        self._names = node.names
        self._drops = node.on_end == "drop"
        self._own = own_piece(node)
        self._course = Course([self._own])
        count = len(inputs)
        self._place = self._beginning(self._own.first, [True] * count)
        self._stopped = False
        self._starts = self._states() if self._names is not None else []
        self._log = _Log(self._cursors)
        self._foresight = Foresight(self._cursors, clock)

    def _beginning(self, ahead: Ahead, stays: Sequence[bool]) -> _Place:
        nothing = Choices(np.empty(0, dtype=np.int64), ahead)
        return _Place(0, np.zeros(len(stays), dtype=np.int64), nothing, 0, stays)

    def pull(self, want: int) -> Chunk | None:
        ask = want if self.eager else 1
        while not self._stopped:
            place = self._place
            most = self._course.most(place.index, ask)
            if not most:
                self._stopped = True
                return None
            if place.used >= len(place.choices.which):
                try:
                    place = self._place = self._choose(place, most)
                except Exception as error:  # In a user's function that tells the weights.
                    return self._failed(failed(error, self._node, place.index))
            which = place.choices.which[place.used : place.used + most]
            rows, parts = self._prepare(which)
            if len(rows):
                return self._chunk(which[: len(rows)], rows, parts)
            part = int(which[0]) if len(which) else None
            if part is not None and self._cursors[part].fails:
                return self._failed(None, part)
            if part is None or not self._drops:
                self._stopped = True
                return None
            stays = [there and number != part for number, there in enumerate(place.stays)]
            # Whose turn it is, is to be found out anew.
            nothing = Choices(which[:0], place.ahead)
            self._place = _Place(place.index, place.taken, nothing, 0, stays)
        return None

    def _choose(self, place: _Place, most: int) -> _Place:
        """The same place, with what comes from there on."""
        piece = self._course.at(place.index)
        count = self._course.most(place.index, piece.turns.at_once(most))
        ahead = piece.ahead(place.ahead)
        choices = piece.turns.choose(place.index, count, ahead, place.stays)
        return _Place(place.index, place.taken, choices, 0, place.stays)

    def _prepare(self, which: Keys) -> tuple[list[Any], dict[int, Marks]]:
        """The elements of parts in turn, up to where one has none, and the states of the parts."""
        order, runs = sorted_runs(which)
        places = order.tolist()
        end = len(which)
        rows: list[Any] = [None] * end
        parts: dict[int, Marks] = {}
        cursors = self._cursors
        wanted = [(part, stop - start) for part, start, stop in runs]
        missing = [(part, count) for part, count in wanted if cursors[part].ready < count]
        if missing:
            self._foresight.prepare(missing)
        for part, start, stop in runs:
            cursor = cursors[part]
            count = stop - start
            if cursor.ready < count and cursor.prepared < count:
                count = cursor.prepared
                end = min(end, places[start + count])
            mine, parts[part] = cursor.show(count)
            if count == 1:
                rows[places[start]] = mine[0]
                continue
            for place, row in zip(places[start : start + count], mine, strict=True):
                rows[place] = row
        return rows[:end], parts

    def _chunk(self, which: Keys, rows: list[Any], parts: dict[int, Marks]) -> Chunk:
        start, size = self._place, len(rows)
        self._foresight.look_at(rows[0])
        log = self._log = _Log(self._cursors) if self._log.is_long else self._log
        marks = _MixMarks(self, self._course, start, which, log, len(log), parts)
        counts = np.bincount(which, minlength=len(self._cursors))
        numbers = list(parts)
        for part, count in zip(numbers, counts.take(numbers).tolist(), strict=True):
            states = parts[part]
            if count:
                log.add(part, states, count)
                self._cursors[part].advance(count)
        self._place = _Place(
            start.index + size, start.taken + counts, start.choices, start.used + size, start.stays
        )
        positions = np.arange(start.index, start.index + size, dtype=np.int64)
        return Chunk(Block(rows, positions), marks)

    def _failed(self, failure: Failure | None, part: int | None = None) -> Chunk:
        """What comes in the place of an element whose part failed, or for which there is none."""
        start, log, moves = self._place, self._log, len(self._log)
        parts: dict[int, Marks] = {}
        if part is not None:
            log.settle([part])
            taken = self._cursors[part].take(1)
            failure, parts[part] = taken.failure, taken.marks
            log.add(part, taken.marks, 1)
        nothing = np.empty(0, dtype=np.int64)
        marks = _MixMarks(self, self._course, start, nothing, log, moves, parts, part)
        self._place = _Place(
            start.index + 1, start.taken, start.choices, start.used + 1, start.stays
        )
        return Chunk(Block([], nothing, failure), marks)

    def state_of(
        self, states: Sequence[State], course: Course, place: _Place, stopped: bool
    ) -> State:
        state: State = {
            "parents": self._by_name(states),
            "index": place.index,
            "stop": stopped,
            "taken": self._by_name(place.taken.tolist()),
        }
        ahead = course.at(place.index).ahead(place.ahead)
        if ahead:
            state["ahead"] = self._by_name(ahead)
        if self._drops:
            state["left"] = self._by_name([int(not there) for there in place.stays])
        return {**state, **course.told(place.index)}

    def _by_name(self, values: Sequence[Any]) -> Any:
        if self._names is None:
            return list(values)
        return dict(zip(self._names, values, strict=True))

    def state(self) -> State:
        return self.state_of(self._states(), self._course, self._place, self._stopped)

    def restore(self, state: State) -> None:
        _, stopped = need(state, "parents", "stop")
        index = need_int(state, "index")
        parents = self._parts_of(state, "parents", self._starts)
        known = self._own.turns.taken_before(index)
        none = [0] * len(self._cursors)
        taken = self._whole_parts_of(state, "taken", none, known)
        course = going_on(self._own, self._node, state)
        ahead = course.at(index).first
        if ahead:
            ahead = tuple(self._whole_parts_of(state, "ahead", ahead))
        left = self._whole_parts_of(state, "left", none)
        self._log.settle(range(len(self._cursors)))
        self._go_back(parents)
        self._log = _Log(self._cursors)
        stays = [not (gone and self._drops) for gone in left]
        nothing = Choices(np.empty(0, dtype=np.int64), ahead)
        counts = np.array(taken, dtype=np.int64)
        self._place, self._stopped = _Place(index, counts, nothing, 0, stays), bool(stopped)
        self._course = course

    def _parts_of(self, state: State, field: str, otherwise: Sequence[Any]) -> list[Any]:
        """What a state says of each part.

        By name where they have names, so that parts may come and go: a new one starts at its
        beginning.
        """
        values = state[field]
        if self._names is not None:
            if not isinstance(values, dict):
                raise StateError(
                    f"this mixture has named parts, and {field!r} of the state is {values!r:.200}."
                )
            return [values.get(name, new) for name, new in zip(self._names, otherwise, strict=True)]
        if not isinstance(values, list) or len(values) != len(self._cursors):
            raise StateError(
                f"this mixture has {len(self._cursors)} parts, and {field!r} of the state is "
                f"{values!r:.200}."
            )
        return values

    def _whole_parts_of(
        self, state: State, field: str, new: Sequence[int], otherwise: Sequence[int] | None = None
    ) -> list[int]:
        """The same for numbers, which states of Grain, and of other weights, do not have."""
        if field not in state:
            return list(otherwise or new)
        values = self._parts_of(state, field, new)
        return [need_int({field: value}, field) for value in values]


@plain
class _EpochMarks(Marks):
    marks: Marks
    epoch: int
    taken: int
    size: int

    def at(self, used: int) -> State:
        taken = self.taken + min(used, self.size)
        return _epoch_state(self.marks.at(used), self.epoch, taken)


def _epoch_state(parent: State, epoch: int, taken: int) -> State:
    return {"parent": parent, "epoch": epoch, "in_epoch": taken}


class EpochsStream(Stream):
    """Begins its input again whenever it ends, and counts."""

    def __init__(self, input: Stream, node: EpochsNode) -> None:
        self._input, self._node = input, node
        self.eager = input.eager
        self._start = beginning_of(input)
        # How often it began again, and how many elements it had since.
        self._epoch = self._taken = 0

    def pull(self, want: int) -> Chunk | None:
        while (chunk := self._input.pull(want)) is None:
            if not self._taken:
                return self._refuse()  # It would begin again for ever.
            self._input.restore(self._start.at(0))
            self._epoch, self._taken = self._epoch + 1, 0
        size = len(chunk.block)
        marks = _EpochMarks(chunk.marks, self._epoch, self._taken, size)
        self._taken += size
        return Chunk(chunk.block, marks)

    def _refuse(self) -> Chunk:
        lane, lanes = self._node.lane
        where = f" in lane {lane} of {lanes}" if lanes > 1 else ""
        error = PlanError(
            f"`mix(..., on_end='restart')`: {self._node.part} has no elements{where}, so it cannot "
            "begin again. Leave it out, or write on_end='drop'."
        )
        marks = _EpochMarks(beginning_of(self._input), self._epoch, 0, 0)
        return Chunk(Block([], np.empty(0, dtype=np.int64), Failure(error)), marks)

    def state(self) -> State:
        return _epoch_state(self._input.state(), self._epoch, self._taken)

    def restore(self, state: State) -> None:
        (parent,) = need(state, "parent")
        epoch, taken = need_int(state, "epoch"), need_int(state, "in_epoch")
        self._input.restore(parent)
        self._epoch, self._taken = epoch, taken

    def start(self) -> None:
        self._input.start()

    def close(self) -> None:
        self._input.close()
