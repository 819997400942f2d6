"""`Merged`: the base class of streams with several inputs, with a cursor in each of them."""

from collections.abc import Sequence

from bushel.core.cursor import Cursor
from bushel.core.state import State
from bushel.core.stream import Stream


class Cursors(list[Cursor]):
    """A cursor in each of several streams."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        super().__init__(map(Cursor, streams))
        # Whether, in all of them, reading more than was asked for has no visible effect.
        self.eager = all(stream.eager for stream in streams)

    @property
    def streams(self) -> list[Stream]:
        """The streams themselves."""
        return [cursor.stream for cursor in self]

    def states(self) -> list[State]:
        """The state of each."""
        return [cursor.state() for cursor in self]

    def restore(self, states: Sequence[State]) -> None:
        """Restores each to its state."""
        for cursor, state in zip(self, states, strict=True):
            cursor.restore(state)

    def start(self) -> None:
        """Starts prefetching."""
        for cursor in self:
            cursor.stream.start()

    def close(self) -> None:
        """Stops all threads."""
        for cursor in self:
            cursor.stream.close()


class Merged(Stream):
    """A stream that reads from several."""

    def __init__(self, inputs: Sequence[Stream]) -> None:
        self._cursors = Cursors(inputs)
        self.eager = self._cursors.eager

    def start(self) -> None:
        self._cursors.start()

    def close(self) -> None:
        self._cursors.close()
