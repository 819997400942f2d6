"""`where` and `when` by replay: runs a pipeline over tagged elements, where functions decide."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.closing import Closing
from bushel.core.cursor import Cursor
from bushel.core.node import Node, walk
from bushel.core.state import State
from bushel.core.state_fields import check_state
from bushel.errors import StateRangeError, add_note
from bushel.order.repeat import EpochsNode, StreamRepeatNode
from bushel.provenance.records import Records, SourceRecords, joined, sources_of
from bushel.provenance.tags import TagOfOneRow, records_in
from bushel.provenance.traced import Tracing
from bushel.provenance.walk import Trail, Walk
from bushel.run.build import build_stream

# Steps that are replayed together, on the way to a requested step.
_AT_ONCE = 256


class Replay(Closing):
    """A pipeline that is run again, from its beginning or a state."""

    def __init__(self, node: Node, believes: bool) -> None:
        self._trace = Tracing(believes)
        self._stream = build_stream(self._trace.of(node))
        self._cursor = Cursor(self._stream)
        # An epoch of a stream is no epoch of the dataset that it reads.
        self._knows_epochs = not any(
            isinstance(step, (StreamRepeatNode, EpochsNode)) for step in walk(node)
        )
        self._sources = sources_of(node)
        # The number of steps since the start, and whether nothing was run yet.
        self.step = 0
        self._at_start = True

    @property
    def reads(self) -> bool:
        """Whether it reads data and calls functions of the user's."""
        return self._trace.reads

    def index_in(self, state: State) -> int | None:
        """The number of the step after a state; None if only a replay can tell."""
        check_state(self._stream, state)
        if self._trace.drops:
            return None
        try:
            return self._stream.index_in(state)
        except NotImplementedError:
            return None

    def go_to(self, state: State) -> None:
        """Restores a state of the pipeline."""
        check_state(self._stream, state)
        self._cursor.restore(state)
        self._at_start = False

    def pass_over(self, count: int) -> None:
        """Advances by `count` steps, or to the end."""
        began = self.step
        if self._at_start and count and not self._trace.drops:
            try:
                self._cursor.restore(self._stream.state_for(count))
                self.step = count
            except StateRangeError:
                return
            except NotImplementedError:
                pass
        while self.step - began < count and self.take(min(_AT_ONCE, count - self.step + began)):
            pass

    def take(self, count: int) -> list[Any]:
        """The tags of the next steps; fewer at the end."""
        self._at_start = False
        taken = self._cursor.take(count)
        if taken.failure is not None:
            error = taken.failure.release()
            add_note(
                error,
                f"bushel: this is step {self.step + len(taken.block)} of a run from its start.",
            )
            raise error
        self.step += len(taken.block)
        return [row.tag for row in taken.block.rows()]

    def records(self, tags: Sequence[Any]) -> Records:
        """The records of steps."""
        found: dict[tuple[int, bool], list[tuple[int, int, Any, int, int]]] = {}
        for owner, tag in enumerate(tags):
            for row, of in records_in(tag):
                one = of if isinstance(of, TagOfOneRow) else TagOfOneRow(of, -1, -1)
                number, place = one.whole
                some = found.setdefault((number, one.row >= 0), [])
                some.append((owner, row, place, one.row, one.rows))
        walk_down = Walk()
        pieces: list[SourceRecords] = []
        for (number, of_one_row), some in found.items():
            origin = self._trace.origins[number]
            owners, rows, places, picks, widths = zip(*some, strict=True)
            at = np.array(owners, dtype=np.int64), np.array(rows, dtype=np.int64)
            if origin.by_key:
                whole = all(isinstance(key, (int, np.integer)) for key in places)
                keys = np.array(places, dtype=np.int64 if whole else object)
                pieces.append(SourceRecords(origin.node, *at, keys, None, None, None))
                continue
            walk_down.pieces = []
            trail = Trail(np.array(places, dtype=np.int64), *at)
            if of_one_row:
                trail.picks, trail.widths = np.array(picks), np.array(widths)
            walk_down.down(origin.node, trail)
            for piece in walk_down.pieces:
                if origin.lane is not None:
                    piece.lanes = np.full(len(piece.owners), origin.lane)
                if not self._knows_epochs:
                    piece.epochs = None
                pieces.append(piece)
        return joined(pieces, self._sources)

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()
