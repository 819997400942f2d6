"""`shuffle` of a stream with a bounded buffer: the place of each element is computed.

The stream is cut into blocks of n elements. The elements of a block are dealt, by a random
permutation, to the next n output blocks, one to each: so output block e has one element from
each of the input blocks e - n + 1 to e, and those are permuted again.

    input          a0 a1 a2   b0 b1 b2   c0 c1 c2   d0 d1 d2           n = 3
    output block 2: one of a, one of b, one of c      c1 a0 b2
    output block 3: one of b, one of c, one of d      b0 d1 c2

Both permutations are functions of the seed and the number of the block. So any output block can be
made again from n input blocks, without earlier ones.

Output comes in groups. The first group waits until the buffer is full, and has all elements that
are due by then; each later group is one output block; the last one has all remaining elements.

The state is the beginning of the first input block that the current group needs, the number of the
group, and the number of its elements delivered. After a restore those blocks are read again.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.arguments import positive
from bushel.core.block import Block, Failure
from bushel.core.cursor import Cursor
from bushel.core.frozen import frozen, plain
from bushel.core.node import ONE_LANE, Node
from bushel.core.state import State
from bushel.core.state_fields import Fields, Inner, Whole, check_failures, check_used
from bushel.core.step import How, OverOne
from bushel.core.stream import Chunk, Marks, Stream
from bushel.order.mix_held import with_held

Words = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_64_BITS = 0xFFFFFFFFFFFFFFFF


@frozen
class StreamShuffleNode(OverOne):
    """Spreads each element over a stretch of the stream that is twice the buffer."""

    input: Node
    buffer_size: int
    seed: int
    # Blocks of different lanes have different numbers (see `Each.lane`).
    lane: tuple[int, int] = ONE_LANE
    same_elements = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return SpreadShuffleStream(inputs[0], self)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        return lengths[0]

    def describe(self) -> str:
        return f"shuffle({self.buffer_size}, seed={self.seed})"

    def dealt(self, block: int, size: int) -> list[int]:
        """Which element of an input block goes to its first output block, its second, ..."""
        return self._permutation(0, block, size)

    def arranged(self, block: int, size: int) -> list[int]:
        """The order of the elements within an output block."""
        return self._permutation(1, block, size)

    def _permutation(self, stage: int, block: int, size: int) -> list[int]:
        lane, lanes = self.lane
        start = _mixed_one(self.seed * 2 + stage) + (block * lanes + lane << 32)
        words = np.arange(size, dtype=np.uint64) + np.uint64(start & _64_BITS)
        # No two are equal, as the words are different and mixing is invertible: so the order is
        # unique.
        order: list[int] = _mixed(words).argsort().tolist()
        return order


def side_of(buffer_size: int) -> int:
    """The largest block size for which a buffer holds all waiting elements.

    Of n blocks, n elements of the last one wait, n - 1 of the one before, and so on.

    >>> side_of(1), side_of(3), side_of(10_000)
    (1, 2, 140)
    """
    return (math.isqrt(8 * buffer_size + 1) - 1) // 2


def _mixed(words: Words) -> Words:
    """A permutation of all 64-bit words, under which neighbours have nothing in common."""
    words = words * np.uint64(_GOLDEN)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _mixed_one(word: int) -> int:
    return int(_mixed(np.array([word], dtype=np.uint64))[0])


@plain
class _ShuffledGroup:
    """The beginning of a group's blocks, its number, and its elements."""

    place: tuple[Marks, int, int]
    number: int
    # The number of failures raised while the group was being filled.
    failures: int
    # The number of its elements before this chunk.
    used: int
    # The place up to which the input was read before the first element of the group.
    touched: tuple[Marks, int, int] | None
    # The number in this chunk, and the end of its blocks; known when the group is done.
    count: int = 0
    end: tuple[Marks, int, int] | None = None
    # Whether the group ends because the input does.
    is_last: bool = False

    def state(self, taken: int) -> State:
        marks, before, _ = self.place
        parent, used = marks.at(before), self.used + taken
        behind = self.end if used else self.touched
        if behind is not None:
            last, count, _ = behind
            parent = with_held(parent, lambda: last.at(count), used > 0 and self.is_last)
        state = {"parent": parent, "group": self.number, "used": used}
        return {**state, "failures": self.failures} if self.failures else state


@plain
class _GroupsMarks(Marks):
    groups: Sequence[_ShuffledGroup]
    # The next group, and the group after the failure.
    following: _ShuffledGroup
    behind: _ShuffledGroup

    def at(self, used: int) -> State:
        for group in self.groups:
            if used < group.count:
                return group.state(used)
            used -= group.count
        return (self.behind if used else self.following).state(0)


class SpreadShuffleStream(Stream):
    """Delivers each element somewhere in the stretch of the stream after it."""

    def __init__(self, input: Stream, node: StreamShuffleNode) -> None:
        self._cursor = Cursor(input)
        self._node = node
        self._side = side_of(node.buffer_size)
        # The number of blocks that the first group waits for: as many as a buffer holds.
        self._first = min(self._side, node.buffer_size // self._side)
        self.eager = input.eager
        self._begin(0, 0, 0)

    def _begin(self, group: int, used: int, failures: int) -> None:
        self._group, self._skip, self._failures = group, used, failures
        # Failures that were already raised, among the elements to be read again.
        self._raised = failures
        # The number of the next input block, and its elements so far.
        self._next = max(0, self._last_block() - self._side + 1)
        self._filling: list[Any] | None = None
        # Waiting elements of each input block, reversed; and the beginnings of these blocks.
        self._waiting: deque[list[Any]] = deque()
        self._places: deque[tuple[Marks, int, int]] = deque()
        self._short = False
        # The place up to which the input was read, for delivered elements or a failure.
        self._touched: tuple[Marks, int, int] | None = None
        # The last group, once it is delivered.
        self._done: _ShuffledGroup | None = None

    def _last_block(self) -> int:
        """The last input block that the current group needs."""
        return self._first - 1 + self._group

    def pull(self, want: int) -> Chunk | None:
        groups: list[_ShuffledGroup] = []
        rows: list[Any] = []
        while self._done is None and len(rows) < max(1, want):
            failure = self._fill(want)
            group = self._following()
            if failure is not None:
                if self._skip:
                    # It did not fail when the state was taken, as some of the group was delivered.
                    # Who asks again begins at that state again.
                    raise failure.release()
                self._failures += 1
                self._touched = self._cursor.mark()
                return self._chunk(rows, groups, group, failure)
            check_failures(group.failures, self._raised, "a shuffled window")
            group.end = self._touched = self._cursor.mark()
            group.is_last = self._short
            made = self._take_group()
            used = len(made)
            check_used(group.used, used, "a shuffled window")
            groups.append(replace(group, count=used - group.used))
            rows += made[group.used :]
            if self._short:
                self._done = replace(group, used=used)
            self._group, self._skip, self._failures = self._group + 1, 0, 0
        return self._chunk(rows, groups, self._following(), None) if rows else None

    def _chunk(
        self,
        rows: list[Any],
        groups: list[_ShuffledGroup],
        following: _ShuffledGroup,
        failure: Failure | None,
    ) -> Chunk:
        first = groups[0] if groups else following
        start = self._made_before(first.number) + first.used
        block = Block(rows, np.arange(start, start + len(rows), dtype=np.int64), failure)
        return Chunk(block, _GroupsMarks(groups, following, self._following()))

    def _made_before(self, group: int) -> int:
        """The number of elements in all groups before a group."""
        if not group:
            return 0
        # It has one element of each of its blocks for each later block, and no more than all.
        blocks = self._first - 1 + group
        waiting = min(blocks, self._side)
        return waiting * (waiting + 1) // 2 + (blocks - waiting) * self._side

    def _following(self) -> _ShuffledGroup:
        if self._done is not None:
            return self._done
        place = self._places[0] if self._places else self._cursor.mark()
        return _ShuffledGroup(place, self._group, self._failures, self._skip, self._touched)

    def _fill(self, want: int) -> Failure | None:
        """Reads the blocks that the group needs, or up to the end."""
        while not self._short and self._next <= self._last_block():
            failure = self._fill_block(want)
            if failure is None:
                self._deal()
                continue
            # Failures in blocks of earlier groups, and the counted ones of this group, were raised.
            before = self._group > 0 and self._next < self._last_block()
            if not before and not self._raised:
                return failure
            self._raised -= not before
        return None

    def _fill_block(self, want: int) -> Failure | None:
        if self._filling is None:
            self._places.append(self._cursor.mark())
            self._filling = []
        while not self._short and (missing := self._side - len(self._filling)):
            taken = self._cursor.take(missing, ahead=max(0, want - missing))
            self._filling += taken.block.rows()
            if taken.failure is not None:
                return taken.failure
            self._short = len(taken.block) < missing
        return None

    def _deal(self) -> None:
        """Sorts the elements of a block by the time they are due; drops those delivered before."""
        rows, self._filling = self._filling or [], None
        order = self._node.dealt(self._next, len(rows))
        gone = max(0, self._last_block() - self._next) if self._group else 0
        self._waiting.append([rows[index] for index in order[: gone - len(order) - 1 : -1]])
        self._next += 1

    def _take_group(self) -> list[Any]:
        """Takes out the elements of this group, in the order of delivery."""
        last = self._last_block()
        made: list[Any] = []
        if self._short:
            made = [row for rows in self._waiting for row in reversed(rows)]
            self._waiting.clear()
        elif self._group:
            made = [rows.pop() for rows in self._waiting]
        else:
            for number, rows in enumerate(self._waiting):
                made += [rows.pop() for _ in range(last - number + 1)]
        while self._waiting and not self._waiting[0]:
            self._waiting.popleft()
            self._places.popleft()
        return [made[index] for index in self._node.arranged(last, len(made))]

    def state(self) -> State:
        return self._following().state(0)

    def restore(self, state: State) -> None:
        self._cursor.restore(state["parent"])
        self._begin(state["group"], state["used"], state.get("failures", 0))

    def fields(self) -> Fields:
        return Fields(
            self._is_ahead,
            parent=Inner(self._cursor.stream),
            group=Whole(),
            used=Whole(self._node.buffer_size + self._side),
            failures=Whole(optional=True),
        )

    def _is_ahead(self, state: State) -> str | None:
        """Raises that a group's blocks begin after the place of the input."""
        given = self._cursor.stream.most_before(state["parent"])
        before = max(0, self._first + state["group"] - self._side) * self._side
        if given is None or before <= given:
            return None
        return f"'group' is {state['group']}, which begins after {before} elements, not {given}"

    def most_before(self, state: State | None) -> int | None:
        if state is None:
            return self._cursor.stream.most_before(None)
        # Elements of earlier groups come from those that the input had given, without those that
        # wait.
        before = self._cursor.stream.most_before(state["parent"])
        since = self._side * self._side + state["used"] + state.get("failures", 0)
        return None if before is None else before + since

    def start(self) -> None:
        self._cursor.stream.start()

    def close(self) -> None:
        self._cursor.stream.close()


def check_buffer_size(buffer_size: Any) -> int:
    """Returns the size of a buffer."""
    return positive("shuffle", "buffer_size", buffer_size)
