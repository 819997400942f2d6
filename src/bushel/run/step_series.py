"""Evaluates a long chain of steps by position, in one loop instead of nested calls."""

from collections.abc import Sequence

from bushel.core.block import Block
from bushel.core.node import Drop, Each, Node, Order, Place
from bushel.core.positions import Positions
from bushel.run.evaluator import Evaluator, dropped, labelled


def is_of_series(step: Node) -> bool:
    """Whether a step can be one of a series."""
    return isinstance(step, (Each, Order, Drop, Place))


class Series(Evaluator):
    """Steps one after the other: positions pass through them up to the input, elements down."""

    __slots__ = ("_input", "_steps")

    def __init__(self, steps: Sequence[Node], input: Evaluator) -> None:
        self._input = input
        self._steps = [step for step in steps if not isinstance(step, Place)]

    def at(self, positions: Positions) -> Block:
        asked: list[Positions] = []
        for step in reversed(self._steps):
            if isinstance(step, Order):
                asked.append(positions)
                positions = step.locate(positions)
        block = self._input.at(positions)
        for step in self._steps:
            if isinstance(step, Order):
                block = labelled(block, asked.pop())
            elif isinstance(step, Drop):
                block = dropped(step, block)
            elif isinstance(step, Each):
                block = step.apply(block)
        return block
