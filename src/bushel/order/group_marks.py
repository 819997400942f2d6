"""The states of steps that make groups: where the group begins, and what it has read.

A state within a group is that of the input before the group, with a note of how far the group has
read (see `mix_held.py`). The note comes from a second state of the input, the one at the end of the
group. If the input makes groups as well, it would need two states for each of the two, and a chain
of twenty such steps a million. So of the second state nothing is asked but how far it has read,
which is a single path through the chain: from the end of a group to the end of the group there.
And of the groups in whose middle a state is, the last step's has read furthest. So the note of a
step replaces the notes of the same kind that steps before it would have made. For both to hold, a
group that ended with the input says so even where all of it was handed out.

    windows of 3     a a a|b b b|c c c|          the state after the first x is before a,
    windows of 4     x x x x|y y y y|            and x has read up to the end of b
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from bushel.core.frozen import plain
from bushel.core.state import State, input_state
from bushel.core.stream import BorrowedMarks, Marks, lender
from bushel.order.mix_held import with_end, with_held, with_seen


@plain
class Group:
    """A place in a group: where the group begins in the input, and how far it has read there."""

    # Marks of the input, and the number of elements.
    start: tuple[Marks, int]
    # Makes the state of the step of that of its input.
    around: Callable[[State], State]
    # Up to where the elements must be the same if the group is made again; None if it need not be.
    end: tuple[Marks, int] | None = None
    # Whether they are held back until then; otherwise the group before has only seen them.
    is_held: bool = True
    # Whether nothing follows, as the input ended in this group or the one before.
    is_last: bool = False
    # Whether the start is the latest state before its next element (see `Marks.before`).
    latest_start: bool = False

    def state(self) -> State:
        """The state at this place."""
        return _state_in(self)


class MarksOfGroups(Marks):
    """Marks of elements that a step made of groups."""

    __slots__ = ()

    @abstractmethod
    def group(self, used: int, before: bool) -> Group:
        """The place after `used` elements; or, if it is later, the one `before` that element."""

    def at(self, used: int) -> State:
        return _state_in(self.group(used, False))

    def before(self, index: int) -> State:
        return _state_in(self.group(index, True))

    def reached(self, used: int) -> State:
        group: Group | None = self.group(used, False)
        changes: list[Callable[[State], State]] = []
        while group is not None:
            changes.append(group.around)
            if group.is_last:
                changes.append(with_end)
            marks, used = group.end or group.start
            group, marks, used, _ = _group_at(marks, used, False)
        return _changed(marks.reached(used), changes)


@plain
class _Note:
    """What a step notes in the state of its input, or in that of a step before that."""

    end: tuple[Marks, int]
    is_held: bool
    is_last: bool
    # The number of steps between the two.
    depth: int = 0

    def __call__(self, state: State) -> State:
        if self.is_held:
            return with_held(state, self._end, self.is_last)
        return with_seen(state, self._end)

    def _end(self) -> Any:
        marks, used = self.end
        state = marks.reached(used)
        for _ in range(self.depth):
            state = input_state(state)
        return state


def _state_in(group: Group) -> State:
    marks, used = group.start
    if not isinstance(marks, (MarksOfGroups, BorrowedMarks)):  # It is the only such step.
        state = marks.before(used) if group.latest_start else marks.at(used)
        if group.end is not None:
            state = _Note(group.end, group.is_held, group.is_last)(state)
        return group.around(state)
    # A loop, as there may be more such steps than calls may be nested.
    changes: list[Callable[[State], State]] = []
    note: _Note | None = None
    further: Group | None = group
    while further is not None:
        group = further
        if note is not None and (group.end is None or group.is_held == note.is_held):
            ends = note.is_last or (group.end is not None and group.is_last)
            note = _Note(note.end, note.is_held, ends, note.depth + 1)
        else:
            if note is not None:
                changes.append(note)
            note = group.end and _Note(group.end, group.is_held, group.is_last)
        changes.append(group.around)
        marks, used = group.start
        further, marks, used, before = _group_at(marks, used, group.latest_start)
    if note is not None:
        changes.append(note)
    return _changed(marks.before(used) if before else marks.at(used), changes)


def _group_at(marks: Marks, used: int, before: bool) -> tuple[Group | None, Marks, int, bool]:
    """The group at a place, if the step makes groups, and the marks that have its states."""
    marks, used, before = lender(marks, used, before)
    group = marks.group(used, before) if isinstance(marks, MarksOfGroups) else None
    return group, marks, used, before


def _changed(state: State, changes: list[Callable[[State], State]]) -> State:
    for change in reversed(changes):
        state = change(state)
    return state
