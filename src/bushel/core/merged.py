"""Streams that read from several."""

from collections.abc import Sequence

from bushel.core.cursor import Cursor
from bushel.core.state import State
from bushel.core.stream import Stream


class Merged(Stream):
    """A stream that reads from several."""

    def __init__(self, inputs: Sequence[Stream]) -> None:
        self._cursors = [Cursor(stream) for stream in inputs]
        self.eager = all(stream.eager for stream in inputs)

    def _states(self) -> list[State]:
        return [cursor.state() for cursor in self._cursors]

    def _go_back(self, states: Sequence[State]) -> None:
        for cursor, state in zip(self._cursors, states, strict=True):
            cursor.restore(state)

    def start(self) -> None:
        for cursor in self._cursors:
            cursor.stream.start()

    def close(self) -> None:
        for cursor in self._cursors:
            cursor.stream.close()
