"""Streams mixed in proportion, and parts of a mixture that begin again."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.block import Block, Failure
from bushel.errors import PlanError, StateError
from bushel.frozen import plain
from bushel.node import failed
from bushel.order.turns import Ahead, Choices
from bushel.plan.mixing import EpochsNode, StreamMixNode
from bushel.positions import Keys
from bushel.run.merge import Merged, marks_of
from bushel.run.mix_weights import Course, going_on, own_piece
from bushel.run.stream import (
    Chunk,
    Marks,
    State,
    Stream,
    Taken,
    beginning_of,
    need,
    need_int,
)


@plain
class _Place:
    """Where a mixture is, apart from where its parts are."""

    index: int
    # How many elements each part has given, how far it is ahead of its share, and whether it
    # is still there.
    taken: Sequence[int]
    ahead: Ahead
    stays: Sequence[bool]


@plain
class _MixMarks(Marks):
    stream: "MixStream"
    course: Course
    start: _Place
    choices: Choices
    which: Keys
    parts: Sequence[Marks]
    failed_part: int | None

    def at(self, used: int) -> State:
        counts = np.bincount(self.which[:used], minlength=len(self.parts)).tolist()
        start = self.start
        taken = [before + count for before, count in zip(start.taken, counts, strict=True)]
        if used > len(self.which) and self.failed_part is not None:
            counts[self.failed_part] += 1  # It had its turn, and gave nothing.
        states = [part.at(count) for part, count in zip(self.parts, counts, strict=True)]
        place = _Place(start.index + used, taken, self.choices.ahead(used), start.stays)
        return self.stream.state_of(states, self.course, place, False)


class MixStream(Merged):
    """Takes elements from its inputs in turn.

    When a part has no element for its turn, the mixture ends, or goes on without that part.
    """

    def __init__(self, inputs: Sequence[Stream], node: StreamMixNode) -> None:
        super().__init__(inputs)
        self._node = node
        self._names = node.names
        self._drops = node.on_end == "drop"
        self._own = own_piece(node)
        self._course = Course([self._own])
        count = len(inputs)
        self._place = _Place(0, [0] * count, self._own.first, [True] * count)
        self._stopped = False
        self._starts = self._states() if self._names is not None else []

    def pull(self, want: int) -> Chunk | None:
        ask = want if self.eager else 1
        while not self._stopped:
            place = self._place
            piece, most = self._course.at(place.index), self._course.most(place.index, ask)
            if not most:
                self._stopped = True
                return None
            ahead = piece.ahead(place.ahead)
            try:
                choices = piece.turns.choose(place.index, most, ahead, place.stays)
            except Exception as error:  # In a user's function that tells the weights.
                return self._failed(failed(error, self._node, place.index))
            which = choices.which
            taken, end = self._take(which)
            if end < len(which) and len(which) > 1:
                # An input ended, or failed, at element `end`: only what comes before is taken.
                which = which[:end]
                counts = np.bincount(which, minlength=len(taken)).tolist()
                for cursor, from_it, count in zip(self._cursors, taken, counts, strict=True):
                    cursor.put_back(from_it, count)
                if not end:
                    ask = 1
                    continue
            if end:
                return self._chunk(choices, which[:end], taken)
            part = int(which[0]) if len(which) else None
            if part is not None and taken[part].failure is not None:
                return self._failed(taken[part].failure, choices, taken, part)
            if part is None or not self._drops:
                self._stopped = True
                return None
            stays = [there and number != part for number, there in enumerate(place.stays)]
            self._place = _Place(place.index, place.taken, place.ahead, stays)
            ask = want if self.eager else 1
        return None

    def _failed(
        self,
        failure: Failure | None,
        choices: Choices | None = None,
        taken: Sequence[Taken] | None = None,
        part: int | None = None,
    ) -> Chunk:
        """What comes in the place of an element whose part failed, or for which there is none."""
        start = self._place
        nothing = np.empty(0, dtype=np.int64)
        choices = choices or Choices(nothing, start.ahead)
        taken = taken or [cursor.take(0) for cursor in self._cursors]
        marks = _MixMarks(self, self._course, start, choices, nothing, marks_of(taken), part)
        self._place = _Place(start.index + 1, start.taken, choices.ahead(1), start.stays)
        return Chunk(Block([], nothing, failure), marks)

    def _take(self, which: Keys) -> tuple[list[Taken], int]:
        """Takes what each part is to give, and tells how many elements that makes."""
        counts = np.bincount(which, minlength=len(self._cursors)).tolist()
        taken = []
        end = len(which)
        for number, cursor in enumerate(self._cursors):
            part = cursor.take(counts[number])
            if len(part.block) < counts[number]:
                end = min(end, int((which == number).nonzero()[0][len(part.block)]))
            taken.append(part)
        return taken, end

    def _chunk(self, choices: Choices, which: Keys, taken: Sequence[Taken]) -> Chunk:
        start, size = self._place, len(which)
        rows: list[Any] = [None] * size
        counts = list(start.taken)
        for number, part in enumerate(taken):
            places = (which == number).nonzero()[0].tolist()
            counts[number] += len(places)
            for place, row in zip(places, part.block.rows(), strict=False):
                rows[place] = row
        self._place = _Place(start.index + size, counts, choices.ahead(size), start.stays)
        positions = np.arange(start.index, start.index + size, dtype=np.int64)
        marks = _MixMarks(self, self._course, start, choices, which, marks_of(taken), None)
        return Chunk(Block(rows, positions), marks)

    def state_of(
        self, states: Sequence[State], course: Course, place: _Place, stopped: bool
    ) -> State:
        state: State = {
            "parents": self._by_name(states),
            "index": place.index,
            "stop": stopped,
            "taken": self._by_name(place.taken),
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
        self._go_back(parents)
        stays = [not (gone and self._drops) for gone in left]
        self._place, self._stopped = _Place(index, taken, ahead, stays), bool(stopped)
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
