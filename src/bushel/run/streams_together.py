"""Evaluates the next elements of a mixture's parts or of lanes at once, for those by position."""

import time
from collections.abc import Sequence

import numpy as np

from bushel.core.block import Block
from bushel.core.cursor import Cursor
from bushel.core.positions import Keys, Positions, run_of
from bushel.core.step import FEWEST_TOGETHER
from bushel.core.stream import Stream
from bushel.run.inline import compile_node
from bushel.run.many import Many, compile_many
from bushel.run.mixtures_together import MixturesTogether
from bushel.run.positional import PositionalStream
from bushel.run.shared_threads import SharedThreads
from bushel.run.thread_time import Stopwatch


class Together:
    """Evaluates the next elements of many streams, together if they are streams of positions."""

    def __init__(self, cursors: Sequence[Cursor]) -> None:
        self._bases = [cursor.stream.base for cursor in cursors]
        self._many: Many | None = None
        self._mixtures = MixturesTogether(self._bases)

    def evaluate(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Evaluates the next positions of streams, given as (number of the stream, count)."""
        if len(wanted) < FEWEST_TOGETHER:
            return
        self._mixtures.evaluate(wanted)
        which: list[int] = []
        spans: list[tuple[int, int]] = []
        bases: list[PositionalStream] = []
        for number, count in wanted:
            base = self._bases[number]
            if isinstance(base, PositionalStream) and (span := base.upcoming(count)) is not None:
                which.append(number)
                spans.append(span)
                bases.append(base)
        if len(bases) < FEWEST_TOGETHER:
            return
        sizes = [stop - start for start, stop in spans]
        positions = np.concatenate([run_of(*span) for span in spans])
        # Once for all streams that share their threads, as a note takes longer than an element.
        counts: dict[SharedThreads, int] = {}
        for base, size in zip(bases, sizes, strict=True):
            if base.threads is not None:
                counts[base.threads] = counts.get(base.threads, 0) + size
        for threads in counts:
            threads.asked(time.perf_counter())
        stopwatch = Stopwatch()
        block = self._all().at(np.repeat(which, sizes), positions)
        spent = stopwatch.read()
        for threads, count in counts.items():
            threads.choice.learn_work(count, spent.times(count / len(positions)))
            threads.delivered(count, time.perf_counter())
        start = 0
        for base, size in zip(bases, sizes, strict=True):
            # A failed element is evaluated again, at this stream's turn.
            if start + size <= len(block):
                base.give(block.part(start, start + size))
            start += size

    def _all(self) -> Many:
        if self._many is None:
            nodes = [base.node for base in self._bases if isinstance(base, PositionalStream)]
            many = compile_many(nodes, compile_node)
            self._many = many if len(nodes) == len(self._bases) else _Some(many, self._bases)
        return self._many


class _Some(Many):
    """The same if only some of the streams are streams of positions."""

    def __init__(self, many: Many, bases: Sequence[Stream]) -> None:
        self._many = many
        positional = [isinstance(base, PositionalStream) for base in bases]
        self._numbers = np.cumsum(positional) - 1

    def at(self, which: Keys, positions: Positions) -> Block:
        return self._many.at(self._numbers.take(which), positions)
