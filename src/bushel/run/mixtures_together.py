"""Evaluates the next elements of many mixtures at once, as in lanes that have one each.

A mixture whose parts are read by position knows whose turn it is, and how many elements of each
part were taken. So each of the next elements of a thousand mixtures has a part, and a position in
it:

    lane      0       1               before: parts 0 and 1 of lane 0, 2 and 3 of lane 1
    turns     0 1 0   1 0 0
    which     0 1 0   3 2 2           evaluated in one go
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys, Positions, occurrences
from bushel.core.step import FEWEST_TOGETHER
from bushel.core.stream import Stream
from bushel.order.stream_mix import MixStream
from bushel.run.inline import compile_node
from bushel.run.many import Many, compile_many
from bushel.run.side_by_side import PartsSideBySide
from bushel.run.thread_time import Stopwatch


class MixturesTogether:
    """Evaluates the next elements of those streams that are mixtures by position."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._mixtures: dict[int, MixStream] = {}
        self._parts: dict[int, PartsSideBySide] = {}
        for number, stream in enumerate(streams):
            parts = stream.side_by_side if isinstance(stream, MixStream) else None
            if isinstance(stream, MixStream) and isinstance(parts, PartsSideBySide):
                self._mixtures[number], self._parts[number] = stream, parts
        # The parts of all mixtures are numbered, one mixture after the other.
        all_parts = list(self._parts.values())
        counts = [len(parts.parts) for parts in all_parts]
        self._firsts = dict(zip(self._parts, np.cumsum([0, *counts]).tolist(), strict=False))
        if all_parts:
            self._lengths = np.concatenate([parts.lengths for parts in all_parts])
            self._restarts = np.repeat([parts.restarts for parts in all_parts], counts)
        self._made: Many | None = None

    def evaluate(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Evaluates the next elements of streams, given as (number of the stream, count)."""
        turns: dict[int, Keys] = {}
        for number, count in wanted if len(self._mixtures) >= FEWEST_TOGETHER else ():
            mixture = self._mixtures.get(number)
            which = None if mixture is None else mixture.upcoming(count)
            if which is not None and len(which):
                turns[number] = which
        self._evaluate(turns)

    def _evaluate(self, turns: dict[int, Keys]) -> None:
        if len(turns) < FEWEST_TOGETHER:
            return
        numbers, sizes = list(turns), [len(which) for which in turns.values()]
        firsts = np.repeat([self._firsts[number] for number in numbers], sizes)
        which = np.concatenate(list(turns.values())) + firsts
        positions, beyond = self._positions(which)
        if beyond.any():
            # A mixture in which a part ends is read by itself.
            ended = np.repeat(numbers, sizes)[beyond].tolist()
            self._evaluate({number: turns[number] for number in turns.keys() - set(ended)})
            return
        many = self._many()
        stopwatch = Stopwatch()
        block = many.at(which, positions)
        seconds_each = stopwatch.read().seconds / len(which)
        start = 0
        for number, size in zip(numbers, sizes, strict=True):
            # A failed element is evaluated again, at this mixture's turn.
            if start + size <= len(block):
                self._parts[number].give(block.part(start, start + size), size * seconds_each)
            start += size

    def _positions(self, which: Keys) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """The next positions of these parts, in turn, and which of them are beyond the end."""
        taken = np.concatenate([parts.taken for parts in self._parts.values()])
        positions, lengths = taken.take(which) + occurrences(which), self._lengths.take(which)
        beyond = positions >= lengths
        if not beyond.any():
            return positions, beyond
        restarts = self._restarts.take(which)
        return np.where(restarts, positions % np.maximum(lengths, 1), positions), beyond & ~restarts

    def _many(self) -> Many:
        if self._made is None:
            parts = chain.from_iterable(parts.parts for parts in self._parts.values())
            self._made = compile_many([part.node for part in parts], compile_node)
        return self._made
