"""Applies the maps and filters of many streams to their elements in one call for all."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block
from bushel.core.node import Drop, Each, Node
from bushel.core.positions import Keys, sorted_runs
from bushel.run.many import put_together


class StepsTogether:
    """The steps after the reading of many streams: changes of elements, and filters."""

    def __init__(self, steps: Sequence[Sequence[Node]], allow_nones: bool) -> None:
        self._allow_nones = allow_nones
        longest = max(map(len, steps))
        # For each place in the chains: the distinct steps, and for each stream the number of its
        # step; -1 for a stream whose chain has ended.
        self._places: list[tuple[list[Any], Keys]] = []
        for place in range(longest):
            numbers: dict[Hashable, int] = {}
            distinct: list[Node] = []
            number_of: list[int] = []
            for chain in steps:
                if place >= len(chain):
                    number_of.append(-1)
                    continue
                number = numbers.setdefault(chain[place].likeness, len(distinct))
                if number == len(distinct):
                    distinct.append(chain[place])
                number_of.append(number)
            self._places.append((distinct, np.array(number_of, dtype=np.int64)))

    def apply(self, which: Keys, block: Block) -> tuple[Keys, Block] | None:
        """The elements that are left, and the stream of each; None if one fails."""
        if not self._allow_nones and isinstance(block.values, list):
            which, block = _kept(which, block, [row is not None for row in block.values])
        for steps, number_of in self._places:
            numbers = number_of.take(which)
            if len(steps) == 1 and (not len(numbers) or int(numbers.min()) >= 0):
                done = _done(steps[0], block)
                if done is None:
                    return None
                block, kept = done
            else:
                order, runs = sorted_runs(numbers)
                pieces: list[tuple[Keys, Block]] = []
                kept_of_all: list[Any] = [True] * len(block)
                for number, start, stop in runs:
                    mine = order[start:stop]
                    done = (block.select(mine), None)
                    if number >= 0:
                        done = _done(steps[number], block.select(mine))
                    if done is None:
                        return None
                    pieces.append((mine, done[0]))
                    for place, keeps in zip(mine.tolist(), done[1] or (), strict=False):
                        kept_of_all[place] = keeps
                block, kept = put_together(pieces, block.positions), kept_of_all
            if kept is not None:
                which, block = _kept(which, block, kept)
        return which, block


def _done(step: Each | Drop, block: Block) -> tuple[Block, Sequence[bool] | None] | None:
    """The new elements of a step, and which of them remain; None if it fails."""
    if isinstance(step, Drop):
        kept, failure = step.keep(block.rows(), block.positions)
        return None if failure is not None else (block, kept)
    changed = step.apply(block)
    return None if changed.failure is not None else (changed, None)


def _kept(which: Keys, block: Block, kept: Sequence[bool]) -> tuple[Keys, Block]:
    indices = np.flatnonzero(np.frombuffer(bytes(kept), dtype=bool))
    if len(indices) == len(block):
        return which, block
    return which.take(indices), block.select(indices, kept)
