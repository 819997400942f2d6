"""Evaluates a `Choice` by position: an order over several inputs, such as a mixture."""

from collections.abc import Sequence

import numpy as np

from bushel.core.block import Block, join
from bushel.core.node import Choice, Guard, Node, failed, walk
from bushel.core.positions import Keys, Positions, sorted_runs
from bushel.run.call_sizes import by_positions
from bushel.run.evaluator import Evaluator, labelled
from bushel.run.many import Compile, Compiled, Many, at_each, compile_many
from bushel.run.step_times import StepTimes

# To ask an input costs some 12 microseconds where it can look ahead, for elements that follow each
# other, and else 40. To evaluate all of them together costs about 150, and 0.3 for each element
# more. So it is for blocks with many inputs, and few elements of each.
_AN_INPUT, _AN_INPUT_ANYWHERE = 12.0, 40.0
_TOGETHER, _AN_ELEMENT_TOGETHER = 150.0, 0.3


class Choose(Evaluator):
    """An order over several inputs."""

    __slots__ = ("_ask", "_node")

    def __init__(
        self,
        node: Choice,
        inputs: Sequence[Evaluator],
        compile: Compile,
        times: StepTimes | None = None,
    ) -> None:
        # What a guard passes over is counted by the number that the guard has among all.
        may_join = not any(isinstance(step, Guard) for step in walk(node))
        self._node, self._ask = node, Inputs(node.inputs, compile, inputs, may_join, times).at
        if times is not None:
            times.look_at(node, self, "_ask", by_positions(1))

    def at(self, positions: Positions) -> Block:
        try:
            which, located = self._node.locate(positions)
        except Exception as error:  # A selection map of the user's own.
            return self._where_it_failed(positions, error)
        if not len(positions):
            return Block([], positions)
        follow = int(positions[-1]) - int(positions[0]) == len(positions) - 1
        try:
            return labelled(self._ask(which, located, follow), positions)
        except ZeroDivisionError as error:  # The map chose an input that is empty.
            return self._where_it_failed(positions, error)

    def _where_it_failed(self, positions: Positions, error: Exception) -> Block:
        """The elements up to the first that fails, which are asked for one by one."""
        if len(positions) == 1:
            return Block([], positions[:0], failed(error, self._node, int(positions[0])))
        return self._one_by_one(positions)

    def _one_by_one(self, positions: Positions) -> Block:
        blocks: list[Block] = []
        for index in range(len(positions)):
            blocks.append(self.at(positions[index : index + 1]))
            if blocks[-1].failure is not None:
                break
        return join(blocks)


class Inputs:
    """Several datasets that are asked for elements of any of them: together, or one by one."""

    __slots__ = ("_compile", "_compiled", "_many", "_may_join", "_nodes", "_times")

    def __init__(
        self,
        nodes: Sequence[Node],
        compile: Compile,
        compiled: Sequence[Evaluator] | None = None,
        may_join: bool = True,
        times: StepTimes | None = None,
    ) -> None:
        self._times = times
        self._nodes, self._compile, self._may_join = nodes, compile, may_join
        self._compiled = Compiled(nodes, compile) if compiled is None else compiled
        self._many: Many | None = None

    def at(self, which: Keys, positions: Positions, follow: bool = True) -> Block:
        """Elements of these inputs, at these positions in them, up to the first that fails.

        `follow` says that those of one input probably follow each other.
        """
        if len(positions) == 1:
            # By somebody who indexes: nothing to put in order or together.
            return self._compiled[int(which[0])].at(positions)
        groups = sorted_runs(which)
        if not self._may_join or is_better_each(len(groups[1]), len(positions), follow):
            return at_each(self._compiled, groups, positions)
        return self.all_at(which, positions)

    def get_ready(self, which: Keys) -> None:
        """Does what is done once, for blocks of elements of these inputs."""
        if self._many is None and self._may_join and len(which) > 1:
            inputs = np.count_nonzero(np.bincount(which))
            if not is_better_each(int(inputs), len(which)):
                self._all()

    def all_at(self, which: Keys, positions: Positions) -> Block:
        """The same, and those of all inputs together."""
        return self._all().at(which, positions)

    def _all(self) -> Many:
        if self._many is None:
            self._many = compile_many(self._nodes, self._compile)
            if self._times is not None:
                self._times.together(self._nodes)
        return self._many


def is_better_each(inputs: int, elements: int, follow: bool = True) -> bool:
    """Whether `inputs` inputs had better be asked one after the other."""
    each = inputs * (_AN_INPUT if follow else _AN_INPUT_ANYWHERE)
    return each < _TOGETHER + _AN_ELEMENT_TOGETHER * elements
