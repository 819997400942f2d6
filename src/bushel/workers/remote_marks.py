"""The marks (states at every element) of elements that workers made."""

from bushel.core.frozen import plain
from bushel.core.state import State, replaced
from bushel.core.stream import Marks
from bushel.on_error.budget import with_bad_records
from bushel.order.mix_held import with_held


@plain
class RecountedMarks(Marks):
    """States of a task that counted bad records from zero, though there were some before."""

    marks: Marks
    counts: list[int]

    def at(self, used: int) -> State:
        return with_bad_records(self.marks.at(used), self.counts)

    def before(self, index: int) -> State:
        return with_bad_records(self.marks.before(index), self.counts)

    def reached(self, used: int) -> State:
        return with_bad_records(self.marks.reached(used), self.counts)


@plain
class PlacedMarks(Marks):
    """States of elements made from a block, in terms of the stream from which the block came."""

    made: Marks
    input: Marks
    depth: int

    def at(self, used: int) -> State:
        return replaced(self.made.at(used), self.depth, self._input_state)

    def before(self, index: int) -> State:
        return replaced(self.made.before(index), self.depth, self._input_state)

    def reached(self, used: int) -> State:
        return replaced(self.made.at(used), self.depth, self._input_reached)

    def _input_reached(self, root: State) -> State:
        return self.input.reached(root["next_index"] + root.get("before", False))

    def _input_state(self, root: State) -> State:
        index = root["next_index"]
        if not root.get("before"):
            return self.input.at(index)
        # Within the elements made from one element, as local streams express it (see
        # `ExpandStream`).
        return with_held(self.input.before(index), lambda: self.input.reached(index + 1))


@plain
class FailureMarks(Marks):
    """States around a failure of the input that came alone."""

    counts: State
    input: Marks
    depth: int

    def at(self, used: int) -> State:
        return replaced(self.counts, self.depth, lambda _: self.input.at(used))

    def reached(self, used: int) -> State:
        return replaced(self.counts, self.depth, lambda _: self.input.reached(used))
