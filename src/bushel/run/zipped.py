"""Evaluates a `Zip` by position: one element from each of several datasets."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Columns
from bushel.core.node import Guard, Zip, walk
from bushel.core.positions import Positions, run_of
from bushel.core.tree import map_leaves
from bushel.run.call_sizes import by_positions
from bushel.run.choose import Inputs, is_better_each
from bushel.run.evaluator import Evaluator
from bushel.run.many import Compile
from bushel.run.step_times import StepTimes


def _every(count: int, first: int, tree: Any) -> Any:
    return map_leaves(lambda leaf: leaf[first::count], tree)


class Zipped(Evaluator):
    """Makes tuples of one element from each input."""

    __slots__ = ("_ask_all", "_inputs", "_may_join")

    def __init__(
        self,
        node: Zip,
        inputs: Sequence[Evaluator],
        compile: Compile,
        times: StepTimes | None = None,
    ) -> None:
        self._inputs = inputs
        # What a guard passes over is counted by the number that the guard has among all.
        self._may_join = not any(isinstance(step, Guard) for step in walk(node))
        self._ask_all = Inputs(node.inputs, compile, inputs, self._may_join, times).all_at
        if times is not None:
            times.look_at(node, self, "_ask_all", by_positions(1))

    def at(self, positions: Positions) -> Block:
        return self._together(positions) or self._zipped(
            [input.at(positions) for input in self._inputs]
        )

    def run(self, start: int, stop: int) -> Block:
        return self._together(run_of(start, stop)) or self._zipped(
            [input.run(start, stop) for input in self._inputs]
        )

    def _together(self, positions: Positions) -> Block | None:
        """The elements of many inputs, together; None if that is not better, or if one fails."""
        count, size = len(self._inputs), len(positions)
        if not self._may_join or not size or is_better_each(count, count * size):
            return None
        which = np.tile(np.arange(count), size)
        block = self._ask_all(which, positions.repeat(count))
        if block.failure is not None:
            return None  # Whose it is, and what comes before it, is told by each.
        values = block.values
        if type(values) is Columns:
            tree = values.gather()
            trees = tuple(_every(count, first, tree) for first in range(count))
            return Block(Columns(trees, None, size), positions)
        rows = block.rows()
        made = [tuple(rows[first : first + count]) for first in range(0, size * count, count)]
        return Block(made, positions)

    def _zipped(self, blocks: list[Block]) -> Block:
        end = min(map(len, blocks))
        positions = blocks[0].positions[:end]
        failure = next((b.failure for b in blocks if b.failure is not None and len(b) == end), None)
        if failure is None and all(type(block.values) is Columns for block in blocks):
            trees = tuple(block.values.gather() for block in blocks)  # type: ignore[union-attr]
            return Block(Columns(trees, None, end), positions)
        rows = list(zip(*(block.rows() for block in blocks), strict=False))
        return Block(rows, positions, failure)
