"""Evaluates a range of positions for a stream, in any thread, and notes bad records."""

from collections.abc import Iterator
from typing import Any

from bushel.core.block import Block, join
from bushel.core.node import Guard, Node, Order, walk
from bushel.core.positions import Positions
from bushel.on_error.bad_records import BadRecord, taking_notes
from bushel.on_error.by_element import by_element, each_once, paths_to_guards
from bushel.run.evaluator import Evaluator
from bushel.run.inline import compile_node
from bushel.run.step_times import StepTimes


def _may_wait(node: Node) -> bool:
    """Whether an evaluator can be made later: nothing about it is needed before its first use."""
    # After an order, elements are never made on demand. Guards are numbered in the order in which
    # they are found.
    return isinstance(node, Order) and not any(isinstance(step, Guard) for step in walk(node))


class _Late(Evaluator):
    """An evaluator that is made at its first use, as most lanes never use theirs.

    Two threads may both make one; either is right.
    """

    __slots__ = ("_made", "_node")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._made: Evaluator | None = None

    def at(self, positions: Positions) -> Block:
        return self._evaluator().at(positions)

    def run(self, start: int, stop: int) -> Block:
        return self._evaluator().run(start, stop)

    def _evaluator(self) -> Evaluator:
        if self._made is None:
            self._made = compile_node(self._node)
        return self._made


class RangeEvaluator:
    """Evaluates a range of positions. Has no reference to a stream, so threads have none."""

    def __init__(self, node: Node, times: StepTimes | None = None) -> None:
        """With `times`, the steps count what they do."""
        self.guards: list[Guard] = []
        may_wait = times is None and _may_wait(node)
        evaluator = _Late(node) if may_wait else compile_node(node, self.guards, times)
        self._paths = paths_to_guards(node, self.guards) if self.guards else None
        self._run, self.on_demand = evaluator.run, evaluator.on_demand
        self.prefers_on_demand = evaluator.prefers_on_demand

    def __call__(self, start: int, count: int) -> Block:
        evaluate = self._guarded if self.guards else self._run
        return evaluate(start, start + count)

    def one_by_one(self, start: int, stop: int) -> Iterator[Any]:
        """The elements of a range, each evaluated when it is taken."""
        for position in range(start, stop):
            block = self._run(position, position + 1)
            if block.failure is not None:
                raise block.failure.release()
            rows = block.rows()
            del block  # While the user works, only the user holds the element.
            yield rows.pop()

    def _guarded(self, start: int, stop: int) -> Block:
        """Evaluates a range, with the bad records of each element."""
        with taking_notes() as notes:
            block = self._run(start, stop)
        if not notes:
            return block
        if self._paths is not None:
            last = min(start + len(block) + 1, stop)
            block.bad = by_element(notes, self._paths, start, last)
            return block
        # Again, element by element, to find out to which element each bad record belongs.
        blocks: list[Block] = []
        bad: list[tuple[int, BadRecord]] = []
        for index in range(stop - start):
            with taking_notes() as notes:
                blocks.append(self._run(start + index, start + index + 1))
            bad += [(index, record) for record in each_once(notes).values()]
            if blocks[-1].failure is not None:
                break
        block = join(blocks)
        block.bad = bad
        return block
