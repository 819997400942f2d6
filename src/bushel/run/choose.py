"""An order over several inputs, evaluated by position."""

from collections.abc import Sequence

from bushel.block import Block, join
from bushel.node import Choice, Guard, failed, walk
from bushel.order.pattern import sorted_runs
from bushel.positions import Positions
from bushel.run.evaluator import Evaluator, labelled
from bushel.run.many import Compile, Many, at_each, compile_many

# Inputs that give so many elements each, on the average, are asked one after the other. They
# can then look ahead, and what a call costs no longer matters.
_ENOUGH_EACH = 32


class Choose(Evaluator):
    """An order over several inputs."""

    __slots__ = ("_compile", "_inputs", "_many", "_may_join", "_node")

    def __init__(self, node: Choice, inputs: Sequence[Evaluator], compile: Compile) -> None:
        self._node, self._inputs, self._compile = node, inputs, compile
        self._many: Many | None = None
        # What a guard passes over is counted by the number that the guard has among all.
        self._may_join = not any(isinstance(step, Guard) for step in walk(node))

    def at(self, positions: Positions) -> Block:
        try:
            which, located = self._node.locate(positions)
        except Exception as error:
            # A selection map of the user's own. One by one, to fail where it failed.
            if len(positions) == 1:
                return Block([], positions[:0], failed(error, self._node, int(positions[0])))
            return self._one_by_one(positions)
        if not len(positions):
            return Block([], positions)
        if len(positions) == 1:
            # By somebody who indexes: nothing to put in order or together.
            return labelled(self._inputs[int(which[0])].at(located), positions)
        groups = sorted_runs(which)
        if not self._may_join or len(positions) >= _ENOUGH_EACH * len(groups[1]):
            return labelled(at_each(self._inputs, groups, located), positions)
        if self._many is None:
            self._many = compile_many(self._node.inputs, self._compile)
        return labelled(self._many.at(which, located), positions)

    def _one_by_one(self, positions: Positions) -> Block:
        blocks: list[Block] = []
        for index in range(len(positions)):
            blocks.append(self.at(positions[index : index + 1]))
            if blocks[-1].failure is not None:
                break
        return join(blocks)
