"""Lanes that are streams: reads several steps of every lane at once, ahead of their use."""

import time
from collections.abc import Callable, Sequence

from bushel.core.block_size import MOST_ELEMENTS, SOON_SECONDS, BlockSize
from bushel.core.cursor import Taken
from bushel.core.merged import Cursors
from bushel.core.step import FEWEST_TOGETHER, EvaluateTogether

_AHEAD = 64
# The most elements of a lane taken at once, and the seconds that they may take: with more, the
# overhead of taking them no longer matters. The seconds are more than the overhead of reading one
# element: otherwise slow reads would get few elements, and stay slow because of it.
_MOST_OF_A_LANE = 64
_SECONDS_OF_A_LANE = 0.0005
_BYTES_AT_ONCE = 1 << 22
# The most bytes that wait, of all lanes together.
_BYTES_AHEAD = 1 << 25
# The least share of a filter's input that is assumed to remain.
_LEAST_SHARE = 0.1
# The weight of earlier measurements, a step later.
_LATELY = 0.98


def steps_at_once(lanes: int, rows: int, agrees: bool) -> BlockSize:
    """The number of steps made at once, whether they are offered to other hosts or not.

    Taking from a lane costs some microseconds, however few elements: with many lanes, more than a
    step. Agreeing with other hosts costs far more.
    """
    return BlockSize(
        most=MOST_ELEMENTS if agrees else max(1, _MOST_OF_A_LANE // rows),
        most_bytes=_BYTES_AT_ONCE,
        target_seconds=max(SOON_SECONDS, _SECONDS_OF_A_LANE * lanes),
    )


class LaneReader:
    """Takes the same number of elements from each lane of a host.

    Args: cursors: a place in each lane. rows: elements of a lane in a step. at_once: steps made at
    once. evaluate: reads from many lanes side by side.
    """

    def __init__(
        self,
        cursors: Cursors,
        rows: int,
        at_once: BlockSize,
        evaluate: EvaluateTogether,
        clock: Callable[[], float],
    ) -> None:
        self.cursors, self._rows, self._at_once = cursors, rows, at_once
        # Whether lanes may be prefetched, and restored.
        self.eager = cursors.eager
        self._evaluate, self._clock = evaluate, clock
        # Recent seconds, CPU seconds, and elements taken from the lanes.
        self._spent = self._cpu_spent = self._gotten = 0.0
        self._touched = False
        # Recent elements requested from lanes, and received.
        self._asked = self._came = 1

    def put_back(self, taken: Sequence[Taken]) -> None:
        """Goes back to the state before these were taken."""
        for cursor, part in zip(self.cursors, taken, strict=True):
            cursor.put_back(part, 0)

    def take(self, steps: int, before: int) -> list[Taken]:
        """The elements of the next steps, as far as lanes have them; `before` steps were taken."""
        count, lanes, ahead = steps * self._rows, len(self.cursors), self._elements_ahead(before)
        began, cpu_began = self._clock(), time.thread_time()
        # Different numbers, so that not all lanes are read in the same step.
        further = [ahead + ahead * lane // lanes for lane in range(lanes)]
        if self.eager:
            self._read(count, further)
        taken = [
            cursor.take(count, more) for cursor, more in zip(self.cursors, further, strict=True)
        ]
        if not self._touched:
            # The first read made the evaluators of each lane, which says nothing about later ones.
            self._touched = True
            return taken
        self._spent = self._spent * _LATELY + self._clock() - began
        self._cpu_spent = self._cpu_spent * _LATELY + time.thread_time() - cpu_began
        self._gotten = self._gotten * _LATELY + count * lanes
        return taken

    def _read(self, count: int, further: Sequence[int]) -> None:
        """Reads missing elements of lanes side by side, as long as there are many such lanes."""
        cursors = self.cursors
        ready = [cursor.prepared for cursor in cursors]
        lacking = [n for n, there in enumerate(ready) if there < count]
        while len(lacking) >= FEWEST_TOGETHER:
            # Reading a lane again, because a filter dropped elements, costs more than reading more
            # at once.
            share = max(_LEAST_SHARE, min(1.0, self._came / self._asked))
            wanted = [(n, int((count - ready[n]) / share) + further[n]) for n in lacking]
            self._evaluate(wanted)
            lacking = []
            for n, want in wanted:
                goes_on, there = cursors[n].read_on(want), cursors[n].prepared
                self._asked, self._came = self._asked + want, self._came + there - ready[n]
                ready[n] = there
                if goes_on and there < count:
                    lacking.append(n)

    def _elements_ahead(self, before: int) -> int:
        """The number of elements of a lane to read beyond a step: worth the call, soon there."""
        if not self._gotten:
            return 0
        # CPU time, so that other programs make no difference; but records may wait, too.
        worth = _SECONDS_OF_A_LANE / max(self._cpu_spent, 1e-9)
        soon = SOON_SECONDS / max(self._spent, 1e-9)
        # A user who takes a few steps should not wait for many.
        ahead = min(_AHEAD, min(worth, soon) * self._gotten, before * self._rows)
        if self._at_once.bytes_each:
            ahead = min(ahead, _BYTES_AHEAD * self._rows // self._at_once.bytes_each)
        return int(ahead)
