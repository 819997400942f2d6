"""Streams one after the other."""

from collections.abc import Sequence

from bushel.core.frozen import plain
from bushel.core.state import State, need, need_int
from bushel.core.stream import Chunk, Marks, Stream, beginning_of
from bushel.errors import StateError


@plain
class _PartMarks(Marks):
    marks: Marks
    part: int

    def at(self, used: int) -> State:
        return _state_of(self.marks.at(used), self.part)

    def before(self, index: int) -> State:
        return _state_of(self.marks.before(index), self.part)


def _state_of(parent: State, part: int) -> State:
    return {"parent": parent, "part": part}


class ConcatenateStream(Stream):
    """Goes through its inputs, one after the other."""

    def __init__(self, inputs: Sequence[Stream]) -> None:
        self._inputs = inputs
        self.eager = all(stream.eager for stream in inputs)
        self._starts = [beginning_of(stream) for stream in inputs]
        # Those that need not go back to their beginning when it is their turn.
        self._untouched = set(range(len(inputs)))
        self._part = 0

    def pull(self, want: int) -> Chunk | None:
        while True:
            self._untouched.discard(self._part)
            chunk = self._inputs[self._part].pull(want)
            if chunk is not None:
                return Chunk(chunk.block, _PartMarks(chunk.marks, self._part))
            if self._part + 1 == len(self._inputs):
                return None
            self._enter(self._part + 1)

    def _enter(self, part: int) -> None:
        if part not in self._untouched:
            self._inputs[part].restore(self._starts[part].at(0))
        self._part = part

    def state(self) -> State:
        return _state_of(self._inputs[self._part].state(), self._part)

    def restore(self, state: State) -> None:
        (parent,) = need(state, "parent")
        part = need_int(state, "part")
        if part >= len(self._inputs):
            raise StateError(
                f"this state is in part {part} of a concatenation, and there are "
                f"{len(self._inputs)} parts."
            )
        self._untouched.discard(part)
        self._inputs[part].restore(parent)
        self._part = part

    def start(self) -> None:
        # Only the one that comes next: the others may be many.
        self._inputs[self._part].start()

    def close(self) -> None:
        for stream in self._inputs:
            stream.close()
