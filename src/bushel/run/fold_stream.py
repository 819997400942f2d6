"""The stream of a `Fold`: groups of one given size, as those of `batch` and window shuffles."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.cursor import Cursor
from bushel.core.frozen import plain
from bushel.core.node import Fold, failed
from bushel.core.state import State
from bushel.core.state_fields import Fields, Inner, Whole, given_by
from bushel.core.stream import Chunk, Marks, Stream
from bushel.errors import StateError
from bushel.order.mix_held import with_held


@plain
class _GroupMarks(Marks):
    """Marks of groups that became one element each: the state is the input's."""

    places: Sequence[tuple[Marks, int, int]]

    def at(self, used: int) -> State:
        marks, before, _ = self.places[used]
        return marks.at(before)


@plain
class _WindowMarks(Marks):
    """Marks of a group that became several elements: its start, and the number delivered."""

    place: tuple[Marks, int, int]
    after: tuple[Marks, int, int]
    number: int
    size: int
    # Whether the window is short because the input ended.
    is_last: bool

    def at(self, used: int) -> State:
        (marks, before, _), (after, behind, _) = self.place, self.after
        number = self.number
        # One state of the input, where that is enough: in a chain of windows each asks the next.
        if used >= self.size:
            parent, number, used = after.at(behind), number + 1, 0
        else:
            parent = marks.at(before)
            if used:
                parent = with_held(parent, lambda: after.at(behind), self.is_last)
        return {
            "parent_window_start_state": parent,
            "window_index": number,
            "pos_in_window": used,
        }


class FoldStream(Stream):
    """Turns groups of neighbours into new elements."""

    def __init__(self, input: Stream, node: Fold) -> None:
        self._cursor = Cursor(input)
        self._node = node
        self._number = 0
        self._skip = 0
        self.eager = input.eager
        self.needed_together(1)

    def pull(self, want: int) -> Chunk | None:
        if not self._node.one_per_group:
            return self._pull_window()
        size = self._node.group_size
        rows: list[Any] = []
        failure: Failure | None = None
        places = [self._cursor.mark()]
        positions: list[int] = []
        metadata: list[Any] | None = None
        while len(rows) < want and failure is None:
            # The same size for every group, even if few elements are left: the rest of a filtered
            # chunk is kept for the next pull, so that chunks stay large enough to be worth their
            # overhead.
            group = self._cursor.cut(size)
            if group is None:
                taken = self._cursor.take(size, ahead=size * (want - 1))
                group, failure = taken.block, taken.failure
            if failure is None:
                if len(group) < size and (not len(group) or self._node.drops_short_group):
                    break
                try:
                    rows.extend(self._node.fold(group.values, self._number))
                    positions.append(int(group.positions[-1]))
                    if group.metadata is not None:
                        metadata = metadata or []
                        metadata.append(group.metadata[-1].remove_record_key())
                    self._number += 1
                except Exception as error:
                    failure = failed(error, self._node, self._number)
            places.append(self._cursor.mark())
        if not rows and failure is None:
            return None
        block = Block(rows, np.array(positions, dtype=np.int64), failure, metadata)
        return Chunk(block, _GroupMarks(places))

    def _pull_window(self) -> Chunk | None:
        if self._skip >= self._node.group_size:
            # A window that was delivered to its end, in Grain's form: skip it.
            self._cursor.take(self._node.group_size)
            self._skip = 0
        place = self._cursor.mark()
        taken = self._cursor.take(self._node.group_size)
        failure = taken.failure
        rows: Sequence[Any] = ()
        if failure is None:
            if not len(taken.block):
                return None
            try:
                rows = self._node.fold(taken.block.values, self._number)
            except Exception as error:
                failure = failed(error, self._node, self._number)
        block = Block(list(rows), taken.block.positions[: len(rows)], failure)
        is_last = len(taken.block) < self._node.group_size
        size = len(rows) + bool(failure)
        marks = _WindowMarks(place, self._cursor.mark(), self._number, size, is_last)
        self._number += 1
        skip, self._skip = self._skip, 0
        chunk = Chunk(block, marks)
        if skip and failure is not None:
            # It did not when the state was taken. Who asks again begins at that state again.
            raise failure.release()
        if skip > size:
            raise StateError(
                f"this state is after {skip} elements of a window of {size}: it belongs to other "
                "data."
            )
        return chunk.rest(skip) if skip else chunk

    def state(self) -> State:
        if self._node.one_per_group:
            return self._cursor.state()
        return {
            "parent_window_start_state": self._cursor.state(),
            "window_index": self._number,
            "pos_in_window": self._skip,
        }

    def restore(self, state: State) -> None:
        if self._node.one_per_group:
            self._cursor.restore(state)
            self._number = self._count_before(state)
            return
        self._cursor.restore(state["parent_window_start_state"])
        self._number, self._skip = state["window_index"], state["pos_in_window"]

    def fields(self) -> Fields:
        input = self._cursor.stream
        if self._node.one_per_group:
            return input.fields()
        return Fields(
            parent_window_start_state=Inner(input),
            window_index=Whole(within=given_by(input, "parent_window_start_state", self._used_up)),
            pos_in_window=Whole(self._node.group_size),
        )

    def _used_up(self, state: State) -> int:
        """The windows (0 or 1) that may be used up: Grain counts one, and still names its start.

        The last window may be shorter than the others, so any of its elements may be the last.
        """
        return int(state["pos_in_window"] > 0)

    def most_before(self, state: State | None) -> int | None:
        input = self._cursor.stream
        if state is None or self._node.one_per_group:
            return input.most_before(state)
        before = input.most_before(state["parent_window_start_state"])
        return None if before is None else before + state["pos_in_window"]

    def _count_before(self, state: State) -> int:
        # Only for messages: after a filter the length is unknown.
        try:
            return self.index_in(state)
        except NotImplementedError:
            return 0

    def state_for(self, index: int) -> State:
        if not self._node.one_per_group:
            return super().state_for(index)
        return self._cursor.stream.state_for(index * self._node.group_size)

    def index_in(self, state: State) -> int:
        if not self._node.one_per_group:
            return super().index_in(state)
        return -(-self._cursor.stream.index_in(state) // self._node.group_size)

    def needed_together(self, count: int) -> None:
        self._cursor.stream.base.needed_together(count * self._node.group_size)

    def start(self) -> None:
        self._cursor.stream.start()

    def close(self) -> None:
        self._cursor.stream.close()
