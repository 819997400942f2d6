"""Evaluation by position: the plain version of what a pipeline means.

`Evaluator.evaluate(node, positions)` gives the elements at these positions as a block.
Every other engine is right when it gives what this gives.
"""

from typing import Any

import numpy as np

from bushel.block import Block, Columns, Failure, Positions
from bushel.errors import PlanError
from bushel.node import (
    Choice,
    Drop,
    Each,
    Expand,
    Fold,
    Node,
    Order,
    Place,
    Source,
    Zip,
    failed,
)
from bushel.transforms.function import any_none

# A permutation of few positions costs mostly numpy's call overhead. When positions are read
# one after the other, this many are therefore located at a time.
_LOOK_AHEAD = 8192


class Evaluator:
    """Evaluates nodes at arrays of positions.

    `ahead=True` is for reading in order: it keeps what costly orders located beyond the
    positions asked for. The values are the same; any number of threads may share it.
    """

    def __init__(self, ahead: bool = False) -> None:
        self._ahead = ahead
        # By the id of a node that outlives this object: first position, and what it maps to.
        self._located: dict[int, tuple[int, Positions]] = {}

    def evaluate(self, node: Node, positions: Positions) -> Block:
        """Returns the elements at the positions, up to the first that fails."""
        if isinstance(node, Each):
            return node.apply(self.evaluate(node.input, positions))
        if isinstance(node, Source):
            return node.read(positions)
        if isinstance(node, Order):
            located = self._locate(node, positions)
            block = self.evaluate(node.input, located)
            return block.at(positions if len(block) == len(positions) else positions[: len(block)])
        if isinstance(node, Fold):
            return self._evaluate_fold(node, positions)
        if isinstance(node, Drop):
            return _drop(node, self.evaluate(node.input, positions))
        if isinstance(node, Choice):
            return self._evaluate_choice(node, positions)
        if isinstance(node, Zip):
            return _zip([self.evaluate(part, positions) for part in node.inputs], positions)
        if isinstance(node, Expand):
            return self._evaluate_expand(node, positions)
        if isinstance(node, Place):
            return self.evaluate(node.input, positions)
        raise PlanError(f"`{node.label}` cannot be read by position.")

    def _locate(self, node: Order, positions: Positions) -> Positions:
        count = len(positions)
        if not (self._ahead and node.costly and count):
            return node.locate(positions)
        first, last = int(positions[0]), int(positions[-1])
        if last - first != count - 1 or not (positions[1:] - positions[:-1] == 1).all():
            return node.locate(positions)
        start, kept = self._located.get(id(node), (0, positions[:0]))
        if start <= first and last < start + len(kept):
            return kept[first - start : last + 1 - start]
        # Not into the next epoch: many short ones would cost more than they save.
        length = max(1, node.length())
        epoch_end = (last // length + 1) * length
        stop = min(max(first + _LOOK_AHEAD, last + 1), epoch_end, np.iinfo(np.int64).max)
        kept = node.locate(np.arange(first, stop, dtype=np.int64))
        self._located[id(node)] = (first, kept)
        return kept[:count]

    def _evaluate_fold(self, node: Fold, positions: Positions) -> Block:
        if not node.one_per_group:
            raise PlanError(f"`{node.label}` is a step of streams; it has no random access.")
        size, length = node.group_size, node.input.length()
        epochs, groups = np.divmod(positions, node.length())
        starts = groups * size
        sizes = np.minimum(starts + size, length) - starts
        starts = starts + epochs * length
        ends = sizes.cumsum()
        total = int(ends[-1]) if len(ends) else 0
        inner = np.arange(total, dtype=np.int64)
        inner += np.repeat(starts - (ends - sizes), sizes)
        block = self.evaluate(node.input, inner)
        out: list[Any] = []
        failure: Failure | None = None
        stop = 0
        for number, position in enumerate(positions.tolist()):
            start, stop = stop, stop + int(sizes[number])
            if stop > len(block):
                failure = block.failure
                break
            try:
                out.extend(node.fold(block.part(start, stop), position))
            except Exception as error:
                failure = failed(error, node, position)
                break
        return Block(out, positions[: len(out)], failure)

    def _evaluate_choice(self, node: Choice, positions: Positions) -> Block:
        which, located = node.locate(positions)
        end = len(positions)
        failure: Failure | None = None
        parts: list[tuple[Positions, Block]] = []
        for number in np.unique(which).tolist():
            mine = (which == number).nonzero()[0]
            block = self.evaluate(node.inputs[number], located.take(mine))
            if block.failure is not None and mine[len(block)] < end:
                end, failure = int(mine[len(block)]), block.failure
            parts.append((mine, block))
        return Block(_scatter(parts, len(positions), end), positions[:end], failure)

    def _evaluate_expand(self, node: Expand, positions: Positions) -> Block:
        fan_out = node.fan_out
        inner, places = np.divmod(positions, fan_out)
        distinct, which = np.unique(inner, return_inverse=True)
        block = self.evaluate(node.input, distinct)
        rows = block.rows()
        present = [index for index, row in enumerate(rows) if row is not None]
        sequences, failure = node.expand([rows[i] for i in present], block.positions[present])
        made: dict[int, Any] = dict(zip(present, sequences, strict=False))
        end_of_input = len(rows) if failure is None else present[len(sequences)]
        failure = failure or block.failure
        out: list[Any] = []
        for parent, place in zip(which.tolist(), places.tolist(), strict=True):
            if parent >= end_of_input:
                return Block(out, positions[: len(out)], failure)
            sequence = made.get(parent, ())
            if len(sequence) > fan_out:
                error = PlanError(
                    f"`{node.label}` made {len(sequence)} elements of one, more than its "
                    f"max_fan_out of {fan_out}."
                )
                return Block(
                    out, positions[: len(out)], failed(error, node, int(positions[len(out)]))
                )
            out.append(sequence[place] if place < len(sequence) else None)
        return Block(out, positions)


def _drop(node: Drop, block: Block) -> Block:
    """Puts None in the place of each element that is left out."""
    rows = block.rows()
    present = None
    if isinstance(block.values, list) and any_none(rows):
        present = [index for index, row in enumerate(rows) if row is not None]
    if present is None:
        kept, failure = node.keep(rows, block.positions)
        out = [row if keep else None for row, keep in zip(rows, kept, strict=False)]
    else:
        kept, failure = node.keep([rows[i] for i in present], block.positions[present])
        out = [None] * (len(rows) if failure is None else present[len(kept)])
        for index, keep in zip(present, kept, strict=False):
            if keep:
                out[index] = rows[index]
    metadata = None if block.metadata is None else block.metadata[: len(out)]
    return Block(out, block.positions[: len(out)], failure or block.failure, metadata)


def _zip(blocks: list[Block], positions: Positions) -> Block:
    end = min(map(len, blocks))
    failure = next((b.failure for b in blocks if b.failure is not None and len(b) == end), None)
    if end == len(positions) and all(type(block.values) is Columns for block in blocks):
        trees = tuple(block.values.gather() for block in blocks)  # type: ignore[union-attr]
        return Block(Columns(trees, None, end), positions, failure)
    rows = list(zip(*(block.rows() for block in blocks), strict=False))
    return Block(rows, positions[:end], failure)


def _scatter(parts: list[tuple[Positions, Block]], size: int, end: int) -> list[Any] | Columns:
    """Puts the elements of several blocks in the places that belong to them."""
    if len(parts) == 1:
        values = parts[0][1].values
        return values[:end] if isinstance(values, list) else values.part(0, end)
    rows: list[Any] = [None] * size
    for places, block in parts:
        for place, row in zip(places.tolist(), block.rows(), strict=False):
            rows[place] = row
    return rows[:end]
