"""An order over several inputs, evaluated by position."""

from collections.abc import Sequence

from bushel.core.block import Block, join
from bushel.core.node import Choice, Guard, failed, walk
from bushel.core.positions import Positions, sorted_runs
from bushel.run.evaluator import Evaluator, labelled
from bushel.run.many import Compile, Many, at_each, compile_many

# To ask an input costs some 12 microseconds where it can look ahead, for elements that follow each
# other, and else 40. To evaluate all of them together costs about 150, and 0.8 for each element
# more. So it is for blocks with many inputs, and few elements of each.
_AN_INPUT, _AN_INPUT_ANYWHERE = 12.0, 40.0
_TOGETHER, _AN_ELEMENT_TOGETHER = 150.0, 0.8


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
        if not self._may_join or _is_better_each(len(groups[1]), positions):
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


def _is_better_each(inputs: int, positions: Positions) -> bool:
    """Whether so many inputs had better be asked one after the other."""
    follow = int(positions[-1]) - int(positions[0]) == len(positions) - 1
    each = inputs * (_AN_INPUT if follow else _AN_INPUT_ANYWHERE)
    return each < _TOGETHER + _AN_ELEMENT_TOGETHER * len(positions)
