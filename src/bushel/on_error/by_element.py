"""Finds the element of a block that each bad record belongs to.

A guard notes the positions of bad records. If only orders, batches and element-wise steps come
after it, these follow from the positions of the block, and the block need not be evaluated again to
find their elements.
"""

from collections.abc import Sequence

import numpy as np

from bushel.core.node import Drop, Each, Fold, Guard, Node, Order, Place
from bushel.core.positions import Positions, group_span, run_of
from bushel.on_error.bad_records import BadRecord

# The orders and batches between a node and a guard upstream of it, the last one first.
Path = Sequence[Order | Fold]


def paths_to_guards(node: Node, guards: Sequence[Guard]) -> list[Path] | None:
    """The paths to the guards, by number; None if they are not all in one chain."""
    paths: list[Path] = []
    way: list[Order | Fold] = []
    while isinstance(node, (Each, Drop, Guard, Place, Order, Fold)):
        if isinstance(node, Guard):
            paths.insert(0, tuple(way))
        elif isinstance(node, (Order, Fold)):
            way.append(node)
        node = node.inputs[0]
    return paths if len(paths) == len(guards) else None


def by_element(
    notes: Sequence[BadRecord], paths: Sequence[Path], start: int, stop: int
) -> list[tuple[int, BadRecord]]:
    """The bad records of a block, in the order of its elements, with their places in it."""
    noted = each_once(notes)
    bad: list[tuple[int, BadRecord]] = []
    for guard in sorted({record.guard for record in noted.values()}):
        indices, positions = np.arange(stop - start), run_of(start, stop)
        for step in paths[guard]:
            if isinstance(step, Order):
                positions = step.locate(positions)
            else:
                indices, positions = _members(step, indices, positions)
        found = (noted.get((guard, position)) for position in positions.tolist())
        bad += [
            (int(index), record) for index, record in zip(indices, found, strict=True) if record
        ]
    # Bad records of an inner guard come before those of an outer one.
    return sorted(bad, key=lambda entry: entry[0])


def each_once(notes: Sequence[BadRecord]) -> dict[tuple[int, int], BadRecord]:
    """The bad records without repetitions, which come of evaluating a position again."""
    return {(record.guard, record.position): record for record in notes}


def _members(step: Fold, indices: Positions, positions: Positions) -> tuple[Positions, Positions]:
    """The positions that batches are made of, each with the index of its batch."""
    length, groups = step.input.length(), step.length()
    spans = [group_span(number, step.group_size, length, groups) for number in positions.tolist()]
    runs = [run_of(*span) for span in spans]
    return np.repeat(indices, [len(run) for run in runs]), np.concatenate([positions[:0], *runs])
