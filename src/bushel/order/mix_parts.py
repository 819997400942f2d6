"""Reads the parts of a `mix` of streams: each as a stream, or all together by position."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.block import Columns, Failure
from bushel.core.cursor import Cursor
from bushel.core.frozen import plain
from bushel.core.merged import Cursors
from bushel.core.positions import Keys, sorted_runs
from bushel.core.state import State
from bushel.core.state_fields import Declares
from bushel.core.step import EvaluateTogether, SideBySide, SideMarks
from bushel.core.stream import Marks, Stream
from bushel.order.foresight import Foresight

Counts: TypeAlias = npt.NDArray[np.int64]


class PartMarks(ABC):
    """The states of the parts before and after some elements."""

    __slots__ = ()

    @abstractmethod
    def at(self, counts: Counts) -> list[State]:
        """The states of all parts, after `counts` elements of each."""


@plain
class Portion:
    """Elements of parts in turn."""

    values: list[Any] | Columns
    size: int
    # The number of these elements from each part.
    counts: Counts
    marks: PartMarks


class MixParts(ABC):
    """The parts of a mixture."""

    # Whether reading more than was asked for has no visible effect.
    eager = True

    @property
    def at_once(self) -> int:
        """The best number of elements to read together."""
        return 1

    @property
    def side_by_side(self) -> SideBySide | None:
        """The parts, where they are read by position."""
        return None

    @abstractmethod
    def read(self, which: Keys) -> Portion | None:
        """Takes elements of parts in turn, up to a part that has none; perhaps fewer.

        None if they cannot continue in this way, and should become `streams`.
        """

    @abstractmethod
    def fails(self, part: int) -> bool:
        """Whether the next element that was read of a part is one that failed."""

    @abstractmethod
    def marks(self) -> PartMarks:
        """The marks of the parts."""

    @abstractmethod
    def streams(self) -> "StreamParts":
        """The same parts, read as streams."""

    @abstractmethod
    def declared(self) -> Sequence[Declares]:
        """The parts, as far as their states are concerned."""

    @abstractmethod
    def states(self) -> list[State]:
        """The states of all parts."""

    @abstractmethod
    def restore(self, states: Sequence[State]) -> "MixParts":
        """Restores all parts, and returns them in the form that suits these states."""

    @abstractmethod
    def start(self) -> None:
        """Starts prefetching, if any part prefetches."""

    @abstractmethod
    def close(self) -> None:
        """Stops all threads."""


@plain
class _PositionMarks(PartMarks):
    marks: SideMarks

    def at(self, counts: Counts) -> list[State]:
        return self.marks.at(counts)


class PositionParts(MixParts):
    """Parts that are datasets by position."""

    def __init__(self, parts: SideBySide, make_streams: "Callable[[], StreamParts]") -> None:
        self._parts, self._make_streams = parts, make_streams
        self._made: StreamParts | None = None

    @property
    def at_once(self) -> int:
        return self._parts.at_once

    @property
    def side_by_side(self) -> SideBySide | None:
        return self._parts

    def read(self, which: Keys) -> Portion | None:
        parts = self._parts
        if not parts.is_suited:
            return None
        block = parts.read(which)
        if not len(block) and len(which) and not parts.is_at_end(int(which[0])):
            return None
        which = which[: len(block)]
        counts = np.bincount(which, minlength=len(parts.parts))
        marks = _PositionMarks(parts.take(which, block.positions))
        return Portion(block.values, len(block), counts, marks)

    def fails(self, part: int) -> bool:
        return False

    def marks(self) -> PartMarks:
        return _PositionMarks(self._parts.marks())

    def streams(self) -> "StreamParts":
        return self._all_streams().restore(self.states())

    def _all_streams(self) -> "StreamParts":
        if self._made is None:
            self._made = self._make_streams()
        return self._made

    def declared(self) -> Sequence[Declares]:
        return self._parts.parts

    def states(self) -> list[State]:
        return self._parts.states()

    def restore(self, states: Sequence[State]) -> MixParts:
        return self if self._parts.restore(states) else self._all_streams().restore(states)

    def start(self) -> None:
        """Does nothing: whether threads pay is not known at first."""

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


class StreamParts(MixParts):
    """Parts that are any streams, each with a place of its own."""

    def __init__(
        self,
        inputs: Sequence[Stream],
        together: Callable[[Sequence[Cursor]], EvaluateTogether],
    ) -> None:
        self._cursors = Cursors(inputs)
        self.eager = self._cursors.eager
        self._log = _Log(self._cursors)
        self._foresight = Foresight(self._cursors, together(self._cursors), time.perf_counter)

    def read(self, which: Keys) -> Portion:
        rows, parts = self._prepared(which)
        size = len(rows)
        counts = np.bincount(which[:size], minlength=len(self._cursors))
        if self._log.is_long:
            self._begin_log()
        log = self._log
        marks = _StreamMarks(log, len(log), parts)
        if not size:
            return Portion(rows, 0, counts, marks)
        self._foresight.look_at(rows[0])
        numbers = list(parts)
        for part, count in zip(numbers, counts.take(numbers).tolist(), strict=True):
            if count:
                log.add(part, parts[part], count)
                self._cursors[part].advance(count)
        return Portion(rows, size, counts, marks)

    def _prepared(self, which: Keys) -> tuple[list[Any], dict[int, Marks]]:
        """The elements of parts in turn, up to a part that has none, and the marks of the parts."""
        order, runs = sorted_runs(which)
        places = order.tolist()
        end = len(which)
        rows: list[Any] = [None] * end
        parts: dict[int, Marks] = {}
        cursors = self._cursors
        wanted = [(part, stop - start) for part, start, stop in runs]
        missing = [(part, count) for part, count in wanted if cursors[part].ready < count]
        if missing:
            self._foresight.prepare(missing)
        for part, start, stop in runs:
            cursor = cursors[part]
            count = stop - start
            if cursor.ready < count and cursor.prepared < count:
                count = cursor.prepared
                end = min(end, places[start + count])
            mine, parts[part] = cursor.show(count)
            if count == 1:
                rows[places[start]] = mine[0]
                continue
            for place, row in zip(places[start : start + count], mine, strict=True):
                rows[place] = row
        return rows[:end], parts

    def fails(self, part: int) -> bool:
        return self._cursors[part].fails

    def take_failure(self, part: int) -> tuple[Failure | None, PartMarks]:
        """Takes the failed element."""
        log, moves = self._log, len(self._log)
        log.settle([part])
        taken = self._cursors[part].take(1)
        log.add(part, taken.marks, 1)
        return taken.failure, _StreamMarks(log, moves, {part: taken.marks})

    def marks(self) -> PartMarks:
        return _StreamMarks(self._log, len(self._log), {})

    def streams(self) -> "StreamParts":
        return self

    def declared(self) -> Sequence[Declares]:
        return self._cursors.streams

    def states(self) -> list[State]:
        return self._cursors.states()

    def restore(self, states: Sequence[State]) -> "StreamParts":
        self._begin_log()
        self._cursors.restore(states)
        return self

    def _begin_log(self) -> None:
        """Begins another log; marks made so far use the one before."""
        self._log.settle(range(len(self._cursors)))
        self._log = _Log(self._cursors)

    def start(self) -> None:
        self._cursors.start()

    def close(self) -> None:
        self._cursors.close()


class _Log:
    """A log of where the parts of a mixture were at each time, for states.

    Most of a thousand parts stay where they are while a few give their elements. So the log records
    the parts that moved.
    """

    def __init__(self, cursors: Sequence[Cursor]) -> None:
        self._cursors = cursors
        # Where parts were at first. Parts that are not in it have not moved since.
        self._first: dict[int, tuple[Marks, int]] = {}
        self._moves: list[tuple[int, Marks, int]] = []

    def __len__(self) -> int:
        return len(self._moves)

    @property
    def is_long(self) -> bool:
        return len(self._moves) > 4 * len(self._cursors)

    def add(self, part: int, marks: Marks, count: int) -> None:
        """Notes that a part gives `count` of the elements between these states."""
        self._first.setdefault(part, (marks, 0))
        self._moves.append((part, marks, count))

    def settle(self, parts: Iterable[int]) -> None:
        """Records where parts are, before they are moved without a log."""
        for part in parts:
            if part not in self._first:
                self._first[part] = self._cursors[part].mark()[:2]

    def at(self, length: int) -> list[tuple[Marks, int]]:
        """Where the parts were after the first `length` moves."""
        places = dict(self._first)
        for part, marks, count in self._moves[:length]:
            places[part] = marks, count
        return [
            places[part] if part in places else self._untouched(part)
            for part in range(len(self._cursors))
        ]

    def _untouched(self, part: int) -> tuple[Marks, int]:
        # Another thread may pull meanwhile; it calls `settle` or `add` before it moves a part.
        place = self._cursors[part].mark()[:2]
        return self._first.get(part, place)


@plain
class _StreamMarks(PartMarks):
    log: _Log
    # The number of moves before these elements, and the marks of the parts that give them.
    moves: int
    parts: dict[int, Marks]

    def at(self, counts: Counts) -> list[State]:
        places = self.log.at(self.moves)
        for part, marks in self.parts.items():
            places[part] = marks, int(counts[part])
        return [marks.at(count) for marks, count in places]
