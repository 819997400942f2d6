"""What a stream of positions has evaluated: ranges of them, by whoever has the time."""

from collections.abc import Iterator
from typing import Any

from bushel.core.block import Block, join
from bushel.core.node import Guard, Node
from bushel.on_error.bad_records import BadRecord, taking_notes
from bushel.on_error.by_element import by_element, each_once, paths_to_guards
from bushel.run.inline import compile_node
from bushel.run.step_times import StepTimes


class Work:
    """Evaluates a range of positions. Holds no stream, so that threads hold none either."""

    def __init__(self, node: Node, times: StepTimes | None = None) -> None:
        """With `times`, the steps count what they do."""
        self.guards: list[Guard] = []
        evaluator = compile_node(node, self.guards, times)
        self._paths = paths_to_guards(node, self.guards)
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
            del block  # While the user works, nothing is kept but what the user has.
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
        # Once more, element by element, to know which one each of them belongs to.
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
