"""`windows`: overlapping groups of neighbours, by position or of a stream."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.arguments import whole as whole_number
from bushel.core.block import Block
from bushel.core.cursor import Cursor
from bushel.core.frozen import frozen, plain
from bushel.core.node import Found, Node, Order, failed
from bushel.core.places import droppers
from bushel.core.positions import Keys, Positions, before, join_epochs, split_epochs
from bushel.core.stack import stack
from bushel.core.state import State
from bushel.core.state_fields import Fields, Flag, Inner
from bushel.core.step import How, OverOne
from bushel.core.stream import Chunk, Marks, Stream, beginning_of
from bushel.core.tree import map_leaves
from bushel.errors import PlanError
from bushel.order.group_marks import Group, MarksOfGroups


def count_windows(length: int, size: int, stride: int, drop_remainder: bool) -> tuple[int, int]:
    """The number of whole windows, and the number of elements in a last, shorter one.

    The shorter one is for elements at the end that are in no whole window.

    >>> count_windows(10, 4, 3, drop_remainder=False), count_windows(11, 4, 3, False)
    ((3, 0), (3, 2))
    """
    whole = (length - size) // stride + 1 if length >= size else 0
    seen = (whole - 1) * stride + size if whole else 0
    start = whole * stride
    return whole, 0 if drop_remainder or seen >= length else max(0, length - start)


@frozen
class OverlapNode(Order):
    """Puts the elements of each window one after the other, for a batch to join.

    Windows lie within one epoch.

    >>> import numpy as np
    >>> from bushel.sources.memory import RangeNode
    >>> OverlapNode(RangeNode(range(6)), 3, 2, drop_remainder=True).locate(np.arange(8))
    array([0, 1, 2, 2, 3, 4, 6, 7])
    """

    input: Node
    size: int
    stride: int
    drop_remainder: bool

    def length(self) -> int:
        length = self.input.length()
        whole, rest = count_windows(length, self.size, self.stride, self.drop_remainder)
        return whole * self.size + rest

    def locate(self, positions: Positions) -> Positions:
        epochs, offsets = split_epochs(positions, self.length())
        windows, places = offsets // self.size, offsets % self.size
        return join_epochs(windows * self.stride + places, epochs, self.input.length())

    def find(self, positions: Positions, stop: int) -> Found:
        epochs, offsets = split_epochs(positions, self.input.length())
        found: list[Positions] = []
        numbers: list[Keys] = []
        # The last window that begins before an element, and earlier ones that still have it.
        for back in range(-(-self.size // self.stride)):
            windows = offsets // self.stride - back
            places = windows * self.size + offsets - windows * self.stride
            there = (windows >= 0) & (offsets - windows * self.stride < self.size)
            mine = np.flatnonzero(there & (places < self.length()))
            epoch = epochs if isinstance(epochs, int) else epochs.take(mine)
            come, which = before(join_epochs(places.take(mine), epoch, self.length()), stop)
            found.append(come)
            numbers.append(mine.take(which))
        return np.concatenate(found), np.concatenate(numbers)

    def describe(self) -> str:
        return describe_windows(self.size, self.stride, self.drop_remainder)


@frozen
class StreamWindowsNode(OverOne):
    """Joins the elements of each window over a stream."""

    input: Node
    size: int
    stride: int
    drop_remainder: bool
    one_each = True

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return WindowsStream(inputs[0], self)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        (length,) = lengths
        if length is None:
            return None
        whole, rest = count_windows(length, self.size, self.stride, self.drop_remainder)
        return whole + (1 if rest else 0)

    def describe(self) -> str:
        return describe_windows(self.size, self.stride, self.drop_remainder)


def describe_windows(size: int, stride: int, drop_remainder: bool) -> str:
    """Shows windows as a user would write them.

    >>> describe_windows(4, 1, True), describe_windows(4, 2, False)
    ('windows(4)', 'windows(4, stride=2, drop_remainder=False)')
    """
    every = "" if stride == 1 else f", stride={stride}"
    keep = "" if drop_remainder else ", drop_remainder=False"
    return f"windows({size}{every}{keep})"


@plain
class _WindowsMarks(MarksOfGroups):
    marks: Marks
    # For each window, and before the first: the number of elements so far, whether the next window
    # follows another one, and how many of the next elements it shares with that one.
    places: Sequence[tuple[int, bool, int]]

    def group(self, used: int, before: bool) -> Group:
        count, follows, shared = self.places[used]
        return Group(
            (self.marks, count),
            lambda parent: {"parent": parent, "follows": int(follows)},
            (self.marks, count + shared) if shared else None,
        )


class WindowsStream(Stream):
    """Joins `size` neighbours, then moves `stride` elements forward.

    After a failed element windows begin anew: no window contains the gap.
    """

    def __init__(self, input: Stream, node: StreamWindowsNode) -> None:
        self._cursor = Cursor(input)
        self._node = node
        self.eager = input.eager
        self._number = 0
        # The distance of the next window from the end of the last one: either it begins with
        # elements of that one, or elements in between are in no window.
        self._overlap = max(0, node.size - node.stride)
        self._gap = max(0, node.stride - node.size)
        self._begin(False)

    def _begin(self, follows: bool) -> None:
        # Whether the next window follows another one.
        self._follows = follows
        # The number of elements that it shares with that one; after a restore, the input knows.
        self._shared = 0
        # The current place, whatever has been read ahead.
        start = _WindowsMarks(beginning_of(self._cursor.stream), [(0, follows, 0)])
        self._place: tuple[Marks, int] = (start, 0)

    def pull(self, want: int) -> Chunk | None:
        size, stride = self._node.size, self._node.stride
        gap = self._gap if self._follows else 0
        asked = gap + size + stride * (max(1, want) - 1)
        taken = self._cursor.take(asked)
        elements, failure = taken.block, taken.failure
        at_end = failure is None and len(elements) < asked
        bounds = self._bounds(gap, len(elements), at_end)
        rows: list[Any] = []
        places = [(0, self._follows, self._shared)]
        for start, stop in bounds:
            try:
                rows.append(self.joined(elements.part(start, stop)))
            except Exception as error:
                failure = failed(error, self._node, self._number + len(rows))
            whole = stop - start == size
            next_one = start + min(size, stride) if whole else stop
            places.append((next_one, whole, stop - next_one))
            if len(rows) < len(places) - 1:
                break
        broken = len(rows) < len(bounds)
        if failure is not None and not broken:
            places.append((len(elements) + 1, False, 0))
        count, self._follows, self._shared = places[-1]
        if broken or (count < len(elements) and not at_end):
            self._cursor.put_back(taken, count)
        self._number += len(rows)
        if not rows and failure is None:
            return None
        marks = _WindowsMarks(taken.marks, places)
        self._place = (marks, len(places) - 1)
        positions = elements.positions[[stop - 1 for _, stop in bounds[: len(rows)]]]
        return Chunk(Block(rows, positions, failure), marks)

    def _bounds(self, gap: int, count: int, at_end: bool) -> list[tuple[int, int]]:
        """The beginnings and ends of the windows within the next `count` elements."""
        size, stride = self._node.size, self._node.stride
        drop = self._node.drop_remainder or not at_end
        whole, rest = count_windows(max(0, count - gap), size, stride, drop)
        starts = range(gap, gap + whole * stride, stride)
        bounds = [(start, start + size) for start in starts]
        # A shorter one, if some of its elements are in no other window.
        if rest and (whole or not self._follows or rest > self._overlap):
            bounds.append((count - rest, count))
        return bounds

    def joined(self, window: Block) -> Any:
        """Makes one element of the elements of a window."""
        values = window.values
        if isinstance(values, list):
            return stack(values)
        if values.keys is None and self._overlap:
            # Each window has its own copy: a change to one does not show in the next.
            return map_leaves(np.copy, values.gather())
        return values.gather()

    def state(self) -> State:
        marks, used = self._place
        return marks.at(used)

    def restore(self, state: State) -> None:
        self._cursor.restore(state["parent"])
        self._begin(bool(state["follows"]))

    def fields(self) -> Fields:
        return Fields(self._follows_nothing, parent=Inner(self._cursor.stream), follows=Flag())

    def _follows_nothing(self, state: State) -> str | None:
        given = self._cursor.stream.most_before(state["parent"])
        least = min(self._node.size, self._node.stride)
        if not state["follows"] or given is None or given >= least:
            return None
        return f"'follows' says that a window came before, and {given} elements make none"

    def most_before(self, state: State | None) -> int | None:
        return self._cursor.stream.most_before(state and state["parent"])

    def state_for(self, index: int) -> State:
        # After the window before: at its end, or at the beginning of the next one, if that is
        # sooner.
        size, stride = self._node.size, self._node.stride
        before = (index - 1) * stride + min(size, stride) if index else 0
        return {"parent": self._cursor.stream.state_for(before), "follows": int(index > 0)}

    def index_in(self, state: State) -> int:
        before = self._cursor.stream.index_in(state["parent"])
        return -(-before // self._node.stride)

    def start(self) -> None:
        self._cursor.stream.start()

    def close(self) -> None:
        self._cursor.stream.close()


def check_windows(size: Any, stride: Any) -> tuple[int, int]:
    """Returns the size and the stride of windows."""
    size, stride = whole_number(size, "size"), whole_number(stride, "stride")
    if not 0 < size <= sys.maxsize or not 0 < stride <= sys.maxsize:
        raise PlanError(
            f"`windows`: size and stride must be positive, and are {size} and {stride}. (No "
            f"dataset has more than {sys.maxsize} elements.)"
        )
    return size, stride


def windows_by_position(parent: Node, size: Any, stride: Any, drop_remainder: bool) -> OverlapNode:
    """Puts the windows of a random-access dataset, with elements in known places, in a row."""
    size, stride = check_windows(size, stride)
    for step in droppers(parent):
        raise PlanError(
            f"`windows({size})` cannot follow `{step.label}` on a random-access dataset: it "
            "may leave elements out, so window 0 has no known members. Call `.compact()` "
            "between the two, or `.to_iter_dataset()`."
        )
    length = parent.length()
    if not any(count_windows(length, size, stride, drop_remainder)):
        raise PlanError(
            f"`windows({size})` of a dataset of {length} elements: there is no whole window. "
            "Take a smaller size, or `drop_remainder=False`."
        )
    return OverlapNode(parent, size, stride, drop_remainder)
