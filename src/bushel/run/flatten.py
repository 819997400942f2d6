"""Evaluates an `Expand` by position: several elements made from each."""

from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.block import Block, Failure
from bushel.core.node import Expand, failed
from bushel.core.positions import Positions, run_of
from bushel.errors import PlanError
from bushel.on_error.bad_records import pass_on, taking_notes
from bushel.run.call_sizes import by_positions
from bushel.run.evaluator import Evaluator
from bushel.run.step_times import StepTimes


class Flatten(Evaluator):
    """Gives each element `fan_out` places; unused places are None."""

    __slots__ = ("_expand", "_guarded", "_input", "_node", "_rest")

    def __init__(
        self, node: Expand, input: Evaluator, guarded: bool, times: StepTimes | None
    ) -> None:
        """`guarded` says that the input may have bad records."""
        self._node, self._input, self._guarded = node, input, guarded
        self._expand = node.expand
        if times is not None:
            times.look_at(node, self, "_expand", by_positions(1))
        # The position after the last run, and the remaining results of the element there.
        self._rest: tuple[int, list[Any]] = (0, [])

    def run(self, start: int, stop: int) -> Block:
        # A run may be shorter than the results of one element, which is then made once for several
        # runs.
        behind, rest = self._rest
        size = stop - start
        rows = rest[:size] if behind == start else []
        rest = rest[len(rows) :]
        failure: Failure | None = None
        if len(rows) < size:
            fan_out = self._node.fan_out
            block = self.at(run_of(start + len(rows), -(-stop // fan_out) * fan_out))
            made = [*rows, *block.rows()]
            rows, rest = made[:size], made[size:]
            failure = block.failure if len(rows) < size else None
        self._rest = (stop, rest if failure is None else [])
        return Block(rows, run_of(start, start + len(rows)), failure)

    def at(self, positions: Positions) -> Block:
        node, fan_out = self._node, self._node.fan_out
        # Not `np.divmod`, which has no positions beyond 64 bits.
        inner, places = positions // fan_out, positions % fan_out
        # Each element once, in the order of the request: a failed element must not hide those
        # before it.
        distinct, first_places, which = np.unique(inner, return_index=True, return_inverse=True)
        order = first_places.argsort()
        ranks = order.argsort()
        which = ranks.take(which)
        if self._guarded:
            counted = np.isin(distinct, inner[places == 0])
            block = self._noted_once(distinct.take(order), counted.take(order))
        else:
            block = self._input.at(distinct.take(order))
        rows = block.rows()
        present = [index for index, row in enumerate(rows) if row is not None]
        sequences, failure = self._expand([rows[i] for i in present], block.positions[present])
        made: dict[int, Any] = dict(zip(present, sequences, strict=False))
        end_of_input = len(rows) if failure is None else present[len(sequences)]
        failure = failure or block.failure
        out: list[Any] = []
        for parent, place in zip(which, places.tolist(), strict=True):
            if parent >= end_of_input:
                return Block(out, positions[: len(out)], failure)
            sequence = made.get(parent, ())
            if len(sequence) > fan_out:
                error = PlanError(
                    f"`{node.label}` made {len(sequence)} elements of one, more than its "
                    f"max_fan_out of {fan_out}."
                )
                failure = failed(error, node, int(positions[len(out)]))
                return Block(out, positions[: len(out)], failure)
            out.append(sequence[place] if place < len(sequence) else None)
        return Block(out, positions)

    def _noted_once(self, positions: Positions, counted: npt.NDArray[np.bool_]) -> Block:
        """Elements of the input; notes each bad record whose first place is asked for.

        An element may be made again for each of its places, and is counted at the first of them
        only, wherever a stream was cut, and in whichever thread or worker the others are made.
        """
        with taking_notes() as notes:
            block = self._input.at(positions)
        if notes and not counted.all():
            with taking_notes() as notes:
                self._input.at(positions[counted])
        pass_on(notes)
        return block
