"""Delivers steps that workers have prefetched, once all hosts have agreed to them."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from bushel.core.frozen import plain
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.core.stream import Chunk, Marks, Stream, beginning_of
from bushel.lanes.gather import LanesStream

# The number of steps handed out of each of the lanes that a stream reads from.
Reached: TypeAlias = tuple[int, ...]


@plain
class _Made:
    """Elements that workers made of steps to which perhaps not all hosts have agreed yet."""

    chunk: Chunk | None
    reached: Reached
    # For each of the lanes, whether its end was known.
    knew: Sequence[bool]


class AheadOfHosts(Stream):
    """Hands out elements of workers once all hosts have the steps that they were made from.

    Workers get steps of the lanes without asking other hosts, as many as keep them busy; their
    number need not be the same on other hosts. When an element is to be handed out, the hosts agree
    on the steps that it needs, as they would without workers. If one of these turns out to be after
    the end, the stream goes back to the last element, and now knows the end.
    """

    eager = False

    def __init__(
        self, stream: Stream, lanes: Sequence[LanesStream], reach: Callable[[], Reached]
    ) -> None:
        self._stream, self._lanes, self._reach = stream, lanes, reach
        # Kept while hosts agree, as that may be interrupted, or fail.
        self._made: _Made | None = None
        self._place: tuple[Marks, int] = (beginning_of(stream), 0)

    def pull(self, want: int) -> Chunk | None:
        while True:
            if self._made is None:
                knew = [lanes.ends for lanes in self._lanes]
                chunk = self._stream.pull(1)
                self._made = _Made(chunk, self._reach(), knew)
            made = self._made
            there_are = [
                lanes.settle(steps) for lanes, steps in zip(self._lanes, made.reached, strict=True)
            ]
            parts = zip(there_are, made.reached, made.knew, strict=True)
            if not any(steps < reached and not knew for steps, reached, knew in parts):
                break
            self._stream.restore(self.state())
            self._made = None
        self._made = None
        chunk = made.chunk
        elements = 0 if chunk is None else len(chunk.block) + (chunk.block.failure is not None)
        if chunk is not None and elements:
            self._place = (chunk.marks, elements)
        return chunk

    def state(self) -> State:
        marks, used = self._place
        return marks.at(used)

    def restore(self, state: State) -> None:
        self._stream.restore(state)
        for lanes in self._lanes:
            lanes.begin_anew()
        self._made = None
        self._place = (beginning_of(self._stream), 0)

    def fields(self) -> Fields:
        return self._stream.fields()

    def most_before(self, state: State | None) -> int | None:
        return self._stream.most_before(state)

    def state_for(self, index: int) -> State:
        return self._stream.state_for(index)

    def index_in(self, state: State) -> int:
        return self._stream.index_in(state)

    def start(self) -> None:
        self._stream.start()

    def close(self) -> None:
        self._stream.close()
