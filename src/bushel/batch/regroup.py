"""The stream of steps whose groups the data decide: pack, token batches, buckets, rebatching.

A group is a run of elements after which nothing is left over, or only a part of one element. The
state is the beginning of the current group, and the number of its new elements that have been
handed out: after a restore the group is made again, and those are skipped, as are failures of
elements in it that were raised already.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.cursor import Cursor
from bushel.core.frozen import plain
from bushel.core.node import failed
from bushel.core.state import State
from bushel.core.state_fields import Fields, Whole, check_failures, check_used
from bushel.core.step import How, OverOne
from bushel.core.stream import Chunk, Marks, Stream
from bushel.order.mix_held import with_held, with_seen

# A row takes many elements, so more elements than rows are read: as many as earlier rows took,
# within these bounds.
_AT_LEAST = 64
_AT_MOST = 1024


class Machine(ABC):
    """Makes new elements of groups of neighbours; holds the group that is being made."""

    # The part used of the next element, as plain values; None if it is whole.
    carried: Any = None
    # Whether a group may end within an element, whose rest begins the next group. (Other machines
    # use `carried` for values that have nothing to do with the next element.)
    cuts_elements = False
    # Whether the new elements are batches, whose rows are elements of the group.
    makes_batches = False
    # Whether the group needs no further element; otherwise it ends with the first that it refuses.
    complete = False

    @abstractmethod
    def begin(self, carried: Any) -> None:
        """Begins a group, with the rest of the next element."""

    @abstractmethod
    def add(self, element: Any) -> bool:
        """Takes an element; False if it ends the group, and is offered again to the next group."""

    # Whether `elements` below may be rows that were taken apart (`core/ragged.py`).
    takes_ragged = False

    def add_many(self, elements: Sequence[Any], start: int) -> int:
        """Takes elements from `start` on, up to the first that is not easy; returns the number.

        That element is given to `add_at`, which may take it, refuse it or fail.
        """
        return 0

    def add_at(self, elements: Sequence[Any], index: int) -> bool:
        """The same as `add`, for one of the elements that `add_many` has seen."""
        return self.add(elements[index])

    @abstractmethod
    def end(self, made_before: int) -> list[Any]:
        """Makes the elements of the group; `made_before` were made by earlier groups."""

    def members(self, count: int) -> Iterable[Sequence[int]]:
        """The elements of the group (`count` of them) that are in each result of `end`."""
        return repeat(range(count))

    # Whether `make_many` may make some. (Rows that were taken apart are put together for it.)
    makes_many = False

    def make_many(self, elements: Sequence[Any], start: int, most: int) -> "ManyMade | None":
        """Makes several groups of elements from `start` on, each of one new element, at once.

        `add_many` has seen the elements, for the group before them. None if it is impossible for
        two groups or more.
        """
        return None

    def finish(self, made: list[Any]) -> list[Any]:
        """Completes the results of several groups, if that is better done together; cannot fail."""
        return made

    @abstractmethod
    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        """The state after `used` elements of the group that begins at `parent`."""

    @abstractmethod
    def fields(self, input: Stream) -> Fields:
        """The fields of such a state."""

    @abstractmethod
    def read(self, state: State) -> tuple[Any, Any, int, int]:
        """The arguments that `state_of` had."""


class ManyMade(ABC):
    """The results of several consecutive groups, one new element each."""

    made: list[Any]

    @abstractmethod
    def begin(self, index: int) -> tuple[int, Any]:
        """The first element that group `index` needs, and the value carried to it.

        The group after the last is the one that comes next.
        """


class Regroup(OverOne):
    """Makes new elements of any number of neighbours."""

    __slots__ = ()

    @abstractmethod
    def machine(self) -> Machine:
        """A new machine, for one stream."""

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return RegroupStream(inputs[0], self)


@plain
class _MadeGroup:
    """The beginning of a group, the part used of its first element, and its results."""

    place: tuple[Marks, int, int]
    carried: Any
    # The number of new elements made before it.
    made_before: int
    # The number of its new elements handed out before this chunk, and of failures raised.
    used: int
    failures: int
    # The place after the last element that the previous group saw: the first element of this group
    # may have ended it.
    seen: tuple[Marks, int, int] | None
    # The place up to which elements must be the same when the group is made again, even if none of
    # it was handed out: up to an element that is partly used, or up to a failure.
    touched: tuple[Marks, int, int] | None = None
    # The number of its new elements in this chunk, and its end; known when it is done.
    count: int = 0
    end: tuple[Marks, int, int] | None = None
    # Whether the group ends because the input does.
    is_last: bool = False

    def state(self, machine: Machine, taken: int) -> State:
        marks, place, _ = self.place
        used = self.used + taken
        parent = marks.at(place)
        behind = self.end if used else self.touched
        if behind is not None:
            parent = with_held(parent, _state_at(behind), used > 0 and self.is_last)
        elif self.seen is not None:
            parent = with_seen(parent, _state_at(self.seen))
        state = machine.state_of(parent, self.carried, used, self.made_before)
        return {**state, "failures": self.failures} if self.failures else state


def _state_at(place: tuple[Marks, int, int]) -> Callable[[], State]:
    marks, used, _ = place
    return lambda: marks.at(used)


class _ManyGroups:
    """Groups that were made together, all from elements of one chunk."""

    used = 0

    def __init__(self, many: ManyMade, marks: Marks, made_before: int, cuts: bool) -> None:
        self._many, self._marks, self.made_before, self._cuts = many, marks, made_before, cuts
        self.count = len(many.made)

    def group(self, index: int) -> _MadeGroup:
        """One of the groups, as if it had been made alone."""
        place, carried = self._many.begin(index)
        is_cut = self._cuts and bool(carried)
        seen = (self._marks, place + is_cut, 0)
        touched = seen if is_cut else None
        begins = (self._marks, place, 0)
        return _MadeGroup(begins, carried, self.made_before + index, 0, 0, seen, touched)

    def state(self, machine: Machine, taken: int) -> State:
        return self.group(taken).state(machine, 0)


@plain
class _RegroupMarks(Marks):
    machine: Machine
    groups: Sequence[_MadeGroup | _ManyGroups]
    # The next group, and the group after the failure.
    following: _MadeGroup
    behind: _MadeGroup

    def at(self, used: int) -> State:
        for group in self.groups:
            # After an element, groups without results are still to come: whether they are in this
            # chunk depends on how the stream was cut.
            if used < group.count or not used:
                return group.state(self.machine, used)
            used -= group.count
        return (self.behind if used else self.following).state(self.machine, 0)


class RegroupStream(Stream):
    """Hands out what a machine makes of the elements of its input."""

    def __init__(self, input: Stream, node: Regroup) -> None:
        self._cursor = Cursor(input)
        self._node = node
        self._machine = node.machine()
        self.eager = input.eager
        # The number of new elements of all finished groups.
        self._made = 0
        # The number of elements taken, and of new elements made of them, as far as known.
        self._taken_and_made = [0, 0]
        # The number of elements taken before the group that is being made.
        self._taken_before = 0
        # The place after the last element taken: looking ahead may move the cursor to the next
        # chunk, and where that begins depends on how the stream was cut.
        self._place: tuple[Marks, int, int] | None = None
        # The number of new elements, and of failures, of the next group that were handed out
        # before.
        self._skip = 0
        self._skip_failures = 0
        # The group that is being made; it stays open over several pulls if an element fails.
        self._open: _MadeGroup | None = None
        # `_refused`: the next element was refused by the previous group. `_seen`: the place
        # after the last element that group saw; None after a restore, the input's state has it.
        self._refused = False
        self._seen: tuple[Marks, int, int] | None = None
        self._ended = False

    def pull(self, want: int) -> Chunk | None:
        groups: list[_MadeGroup | _ManyGroups] = []
        rows: list[Any] = []
        while not self._ended and len(rows) < max(1, want):
            many = self._made_together(want - len(rows))
            if many is not None:
                groups.append(many[0])
                rows += many[1]
                continue
            group = self._open
            if group is None:
                group = self._open = self._following()
                self._machine.begin(group.carried)
                self._taken_before = self._taken_and_made[0]
            failure = self._fill(want)
            if failure is not None:
                if self._had_not_failed(group):
                    # Who asks again begins at the state before it again: nothing is lost.
                    raise failure.release()
                place = self._cursor.mark()
                self._open = replace(group, failures=group.failures + 1, touched=place)
                return self._chunk(rows, groups, group, failure)
            check_failures(group.failures, self._skip_failures, "a group of neighbours")
            self._skip = 0
            self._seen = self._after_seen()
            try:
                made = self._machine.end(self._made)
            except Exception as error:
                # The whole group is lost; the stream continues with the next one.
                self._open = None
                return self._chunk(rows, groups, group, failed(error, self._node, self._made))
            check_used(group.used, len(made), "what a group of neighbours makes")
            if self._ended and not made:
                break  # The rest makes nothing, and the state stays at its beginning.
            self._open = None
            self._made += len(made)
            self._taken_and_made[1] += len(made)
            group.count = len(made) - group.used
            group.end, group.is_last = self._seen, self._ended
            groups.append(group)
            rows += made[group.used :] if group.used else made
        return self._chunk(rows, groups, self._following(), None) if groups else None

    def _had_not_failed(self, group: _MadeGroup) -> bool:
        """Whether elements were made of what fails now, before a state was taken and restored."""
        is_cut = self._machine.cuts_elements and bool(group.carried)
        return group.used > 0 or (is_cut and self._taken_and_made[0] == self._taken_before)

    def _made_together(self, most: int) -> tuple[_ManyGroups, list[Any]] | None:
        """Makes groups from the chunk in which the last one ended, if the machine can."""
        machine, cursor = self._machine, self._cursor
        if not machine.makes_many:
            return None
        if self._open is not None or self._place is None or self._skip or self._skip_failures:
            return None
        shown = cursor.rest_of(self._place)
        many = None if shown is None else machine.make_many(*shown, most)
        if shown is None or many is None:
            return None
        place, carried = many.begin(len(many.made))
        groups = _ManyGroups(many, self._place[0], self._made, machine.cuts_elements)
        made, many.made = many.made, []  # States keep no elements in memory.
        cursor.pass_over(place - shown[1])
        self._taken_and_made[0] += place - shown[1]
        self._taken_and_made[1] += groups.count
        self._made += groups.count
        self._place = cursor.mark()
        machine.carried = carried
        self._refused = machine.cuts_elements and bool(carried)
        self._seen = self._after_seen()
        return groups, made

    def _following(self) -> _MadeGroup:
        """The next group, or the one being made."""
        if self._open is not None:
            return self._open
        if self._place is None:
            self._place = self._cursor.mark()
        carried, skip = self._machine.carried, (self._skip, self._skip_failures)
        touched = self._seen if carried and self._machine.cuts_elements else None
        return _MadeGroup(self._place, carried, self._made, *skip, self._seen, touched)

    def _after_seen(self) -> tuple[Marks, int, int]:
        """The place after all elements that the machine has seen: others might not end it."""
        marks, used, _ = self._cursor.mark()
        is_cut = self._machine.cuts_elements and bool(self._machine.carried)
        # The cursor is before the next element, in the chunk that has it.
        return marks, used + (self._refused or is_cut), 0

    def _chunk(
        self,
        rows: list[Any],
        groups: list[_MadeGroup | _ManyGroups],
        following: _MadeGroup,
        failure: Failure | None,
    ) -> Chunk:
        first = groups[0] if groups else following
        start = first.made_before + first.used
        rows = self._machine.finish(rows)
        block = Block(rows, np.arange(start, start + len(rows), dtype=np.int64), failure)
        return Chunk(block, _RegroupMarks(self._machine, groups, following, self._following()))

    def _fill(self, want: int) -> Failure | None:
        """Gives elements to the machine until its group is complete, or the input ends."""
        machine, cursor = self._machine, self._cursor
        self._refused = False
        taken, made = self._taken_and_made
        likely = min(want * taken // made, _AT_MOST) if made else 0
        while True:
            wanted = max(want, likely, _AT_LEAST)
            rows, start, failure = cursor.look_ahead(wanted, machine.takes_ragged)
            if failure is None and not len(rows):
                self._ended = True
                return None
            taken, count = 0, len(rows) - start
            try:
                while taken < count:
                    taken += machine.add_many(rows, start + taken)
                    if machine.complete:
                        return None
                    if taken < count:
                        if not machine.add_at(rows, start + taken):
                            self._refused = True
                            return None
                        taken += 1
                        if machine.complete:
                            return None
            except Exception as error:
                taken += 1  # The group continues without that element.
                failure = failed(error, self._node, self._made)
            finally:
                cursor.pass_over(taken)
                self._taken_and_made[0] += taken
                if taken or failure is not None:
                    self._place = cursor.mark()
            if failure is None:
                continue
            if not self._skip_failures:
                return failure
            self._skip_failures -= 1  # It was raised before the state was taken.

    def state(self) -> State:
        return self._following().state(self._machine, 0)

    def restore(self, state: State) -> None:
        parent, carried, skip, made = self._machine.read(state)
        failures = state.get("failures", 0)
        self._cursor.restore(parent)
        self._machine.carried = carried
        self._made, self._skip, self._skip_failures = made, skip, failures
        self._place, self._open, self._seen = None, None, None
        self._refused = self._ended = False

    def fields(self) -> Fields:
        own = self._machine.fields(self._cursor.stream)
        return Fields(*own.relations, **own.kinds, failures=Whole(optional=True))

    def start(self) -> None:
        self._cursor.stream.start()

    def close(self) -> None:
        self._cursor.stream.close()
