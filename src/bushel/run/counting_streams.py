"""For statistics: makes streams count their elements and time some of their pulls."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from bushel.core.stream import Chunk, OnDemand, Stream
from bushel.run.step_sheet import Sheet

if TYPE_CHECKING:
    from bushel.run.step_times import StepTimes, TimedTurns

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
    """Has a stream work, with a look at the clock where this thread takes the time."""
    sheet: Sheet | None = stream._measured_by.thread.sheet
    if sheet is None:
        return work(stream, argument)
    return sheet.call(stream._measured_as, work, (stream, argument), _by_chunk)


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
        _measured_by: "StepTimes"
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
            if not self._measured_left and self._measured_may_look():
                assert self._measured_turns is not None
                try:
                    chunk, self._measured_left = self._measured_turns.timed(self.pull, want)
                except BaseException:
                    self._measured_left = 1
                    raise
                return chunk
            if changes:
                return kind.pull(self, want)  # In which `_changed` counts.
            if self._measured_by.is_timing:
                chunk = _measured(self, kind.pull, want)
            else:
                chunk = kind.pull(self, want)
            if chunk is not None:
                self._measured_count += len(chunk.block.values)
            return chunk

        def _measured_may_look(self) -> bool:
            """Whether this pull, the turn of which has come, is timed."""
            turns = self._measured_turns
            assert turns is not None
            if turns.may_look():
                self._measured_left = _NEVER  # While it goes on, and comes to `pull` once more.
                return True
            self._measured_left = turns.left
            return False

    if kind.on_demand is not Stream.on_demand:

        def on_demand(self: Any) -> OnDemand | None:
            sessions = self._measured_sessions
            if sessions is None:
                return kind.on_demand(self)
            spans = self._measured_by.spans
            is_next = spans is not None or (sessions.left == 1 and self._measured_gives)
            found: OnDemand | None
            if not is_next or not sessions.may_look():
                found = kind.on_demand(self)
                self._measured_gives = found is not None
                if found is not None and sessions.left > 1:
                    sessions.left -= 1
                return found
            sheet = sessions.sheet()
            found = sessions.begun(sheet, partial(kind.on_demand, self))
            if found is not None:
                rows = found.rows
                found.rows = chain(sessions.timed_rows(self._measured_as, rows, sheet), rows)
            return found

        Counting.on_demand = on_demand

    if changes:

        def _changed(self: Any, chunk: Chunk) -> Any:
            if self._measured_by.is_timing:
                changed: Any = _measured(self, changes, chunk)
            else:
                changed = changes(self, chunk)
            self._measured_count += len(changed.block.values)
            return changed

        Counting._changed = _changed
    Counting.__name__ = Counting.__qualname__ = kind.__name__
    return Counting
