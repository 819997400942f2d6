"""Wraps streams so that they count their elements and time some of their pulls."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from bushel.core.stream import Chunk, OnDemand, Stream
from bushel.run.step_sheet import Sheet, ThreadSheet

if TYPE_CHECKING:
    from bushel.run.step_times import TimedTurns

S = TypeVar("S", bound=Stream)
# More turns than anybody takes.
_NEVER = 1 << 62


def handed_on(stream: Stream) -> int:
    """How many elements a stream has given, be it by pulls or on demand."""
    positions_read = getattr(stream, "positions_read", None)
    if positions_read is None:
        return int(getattr(stream, "_measured_count", 0))
    return sum(stop - start for start, stop in positions_read())


def _measured(stream: Any, work: Callable[..., Chunk | None], argument: Any) -> Chunk | None:
    """Has a stream work, and counts; with a look at the clock where that is wanted."""
    sheet: Sheet | None = stream._measured_by.sheet
    if sheet is None:
        chunk = work(stream, argument)
    else:
        chunk = sheet.call(stream._measured_as, work, (stream, argument), _by_chunk)
    if chunk is not None:
        stream._measured_count += len(chunk.block)
    return chunk


def _by_chunk(args: Sequence[Any], chunk: Chunk | None) -> tuple[int, int]:
    """A stream that is pulled: what it gives, and how much it gave before."""
    return 0 if chunk is None else len(chunk.block), args[0]._measured_count


def counting_kind(kind: type[S]) -> type[S]:
    """The same kind of stream, which counts what is pulled, and is timed in some turns.

    (A stream that had its own method as an attribute would refer to itself, and be there until
    somebody collects garbage.)
    """
    # The last of several steps that change elements one by one has the others do their work.
    changes = getattr(kind, "_changed", None)

    class Counting(kind):  # type: ignore[valid-type,misc]
        # (Long names: those of the stream are its own.)
        _measured_by: ThreadSheet
        _measured_as: int
        _measured_count = 0
        # Where its pulls are turns, and how many are left until one is timed.
        _measured_turns: "TimedTurns | None" = None
        _measured_left = _NEVER
        # And where elements that are made on demand are, until the next pull.
        _measured_sessions: "TimedTurns | None" = None
        # Whether there were any the last time.
        _measured_gives = False

        def pull(self, want: int) -> Chunk | None:
            self._measured_left -= 1
            if not self._measured_left:
                turns = self._measured_turns
                assert turns is not None
                if not turns.may_look():
                    self._measured_left = turns.left
                    return self._measured_pull(want)
                self._measured_left = _NEVER  # While this goes on, and comes here once more.
                try:
                    chunk, self._measured_left = turns.timed(self.pull, want)
                except BaseException:
                    self._measured_left = 1
                    raise
                return chunk
            return self._measured_pull(want)

        def _measured_pull(self, want: int) -> Chunk | None:
            return kind.pull(self, want) if changes else _measured(self, kind.pull, want)

        def on_demand(self) -> OnDemand | None:
            sessions = self._measured_sessions
            gives = self._measured_gives or (sessions is not None and sessions.spans is not None)
            is_timed = sessions is not None and gives and sessions.is_timed_next
            if sessions is None or not is_timed or not sessions.may_look():
                found: OnDemand | None = super().on_demand()
                self._measured_gives = found is not None
                if found is not None and sessions is not None and not sessions.is_timed_next:
                    sessions.pass_one()
                return found
            sheet = sessions.sheet()
            found = sessions.begun(sheet, super().on_demand)
            if found is not None:
                rows = found.rows
                found.rows = chain(sessions.timed_rows(self._measured_as, rows, sheet), rows)
            return found

    if changes:
        Counting._changed = lambda self, chunk: _measured(self, changes, chunk)
    Counting.__name__ = Counting.__qualname__ = kind.__name__
    return Counting
