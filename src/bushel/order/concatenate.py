"""`concatenate`: one dataset after the other, by arithmetic; or one stream after the other."""

from collections.abc import Sequence
from dataclasses import field
from typing import cast

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.node import Choice, Found, Node
from bushel.core.positions import Keys, Positions, before, join_epochs, split_epochs
from bushel.core.state import State
from bushel.core.state_fields import Fields, InnerOf, Whole, all_before
from bushel.core.step import How, Step
from bushel.core.stream import Chunk, Framed, Stream, beginning_of
from bushel.errors import PlanError
from bushel.order.repeat import INFINITE


@frozen
class ConcatenateNode(Choice, Step):
    """Puts the inputs one after the other; an epoch of the whole is one epoch of each input.

    >>> from bushel.sources.memory import RangeNode
    >>> parts = (RangeNode(range(2)), RangeNode(range(3)))
    >>> ConcatenateNode(parts).locate(np.arange(7))
    (array([0, 0, 1, 1, 1, 0, 0]), array([0, 1, 0, 1, 2, 2, 3]))
    """

    parts: tuple[Node, ...]
    # The inputs' lengths, cached: asking a thousand inputs takes a while.
    lengths: list[tuple[Keys, int]] = field(default_factory=list, init=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def length(self) -> int:
        return self._lengths()[1]

    def _lengths(self) -> tuple[Keys, int]:
        if not self.lengths:
            each = [part.length() for part in self.parts]
            self.lengths.append((np.array(each, dtype=np.int64), sum(each)))
        return self.lengths[0]

    def locate(self, positions: Positions) -> tuple[Keys, Positions]:
        lengths, total = self._lengths()
        ends = lengths.cumsum()
        epochs, offsets = split_epochs(positions, total)
        which: Keys = ends.searchsorted(offsets, side="right")
        if positions.dtype == object:
            lengths = lengths.astype(object)
        located = offsets - (ends - lengths).take(which) + epochs * lengths.take(which)
        return which, cast(Positions, located)

    def find(self, part: int, positions: Positions, stop: int) -> Found:
        lengths, total = self._lengths()
        start, length = int(lengths[:part].sum()), int(lengths[part])
        if not length:
            return before(positions[:0], stop)
        epochs, offsets = split_epochs(positions, length)
        return before(join_epochs(offsets + start, epochs, total), stop)

    def reach(self, part: int, stop: int) -> int:
        lengths, total = self._lengths()
        return -(-stop // total) * int(lengths[part]) if total else 0

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return ConcatenateStream(inputs)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        known = [length for length in lengths if length is not None]
        return sum(known) if len(known) == len(lengths) else None

    def describe(self) -> str:
        return f"concatenate({len(self.parts)} parts)"


class ConcatenateStream(Stream):
    """Goes through its inputs, one after the other."""

    def __init__(self, inputs: Sequence[Stream]) -> None:
        self._inputs = inputs
        self.eager = all(stream.eager for stream in inputs)
        self._starts = [beginning_of(stream) for stream in inputs]
        # Numbers of the inputs of which nothing was read yet.
        self._untouched = set(range(len(inputs)))
        self._part = 0

    def pull(self, want: int) -> Chunk | None:
        while True:
            self._untouched.discard(self._part)
            chunk = self._inputs[self._part].pull(want)
            if chunk is not None:
                return Chunk(chunk.block, Framed(chunk.marks, {"part": self._part}))
            if self._part + 1 == len(self._inputs):
                return None
            self._enter(self._part + 1)

    def _enter(self, part: int) -> None:
        if part not in self._untouched:
            self._inputs[part].restore(self._starts[part].at(0))
        self._part = part

    def state(self) -> State:
        return {"parent": self._inputs[self._part].state(), "part": self._part}

    def restore(self, state: State) -> None:
        part = state["part"]
        self._untouched.discard(part)
        self._inputs[part].restore(state["parent"])
        self._part = part

    def fields(self) -> Fields:
        count = len(self._inputs)
        beyond = f"this state is in part {{value}} of a concatenation, and there are {count} parts."
        return Fields(
            part=Whole(count - 1, beyond=beyond),
            parent=InnerOf("part", self._inputs),
        )

    def most_before(self, state: State | None) -> int | None:
        if state is None:
            return all_before(self._inputs, [None] * len(self._inputs))
        part = state["part"]
        return all_before(self._inputs[: part + 1], [*[None] * part, state["parent"]])

    def start(self) -> None:
        # Only the next one, as there may be many others.
        self._inputs[self._part].start()

    def close(self) -> None:
        for stream in self._inputs:
            stream.close()


def concatenate_by_position(parts: tuple[Node, ...]) -> Node:
    """The step of `concatenate` on random-access datasets."""
    for number, part in enumerate(parts):
        if part.length() == INFINITE:
            raise PlanError(
                f"`concatenate` cannot go beyond an infinite dataset, and dataset {number} is "
                "infinite. Call `repeat` after `concatenate`."
            )
    return ConcatenateNode(parts)


def concatenate_step(parts: tuple[Node, ...]) -> Node:
    """The step of `concatenate` on streams."""
    if not parts:
        raise PlanError("`concatenate` needs at least one dataset, and got none.")
    return ConcatenateNode(parts)
