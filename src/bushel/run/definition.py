"""The definition of a pipeline: its element at a position, slowly; only tests run it.

This is the definition, short enough to be read in one sitting. It is slow: one element at a time,
nothing cached, nothing prefetched. `run/inline.py` does the same for blocks of positions, fast. It
and all other engines are right if their elements equal the ones computed here.
"""

from typing import Any

from bushel.core.block import Block
from bushel.core.node import (
    Choice,
    Drop,
    Each,
    Expand,
    Fold,
    Guard,
    Node,
    Order,
    Place,
    Source,
    Zip,
    failed,
)
from bushel.core.positions import Positions, group_span, run_of
from bushel.errors import PlanError


def element(node: Node, position: int) -> Any:
    """The element at a position; None if it was dropped. Raises if it fails.

    >>> from bushel.order.slice import SliceNode
    >>> from bushel.sources.memory import RangeNode
    >>> element(SliceNode(RangeNode(range(10)), 1, 10, 3), 2)
    7
    """
    here = run_of(position, position + 1)
    if isinstance(node, Source):
        return _only(node.fetch(node.keys(here), here))
    if isinstance(node, Order):
        return element(node.input, int(node.locate(here)[0]))
    if isinstance(node, Choice):
        which, where = node.locate(here)
        return element(node.inputs[int(which[0])], int(where[0]))
    if isinstance(node, Zip):
        return tuple(element(part, position) for part in node.inputs)
    if isinstance(node, Each):
        return _only(node.apply(Block([element(node.input, position)], here)))
    if isinstance(node, Drop):
        return _kept(node, element(node.input, position), here)
    if isinstance(node, Expand):
        return _one_of_several(node, position)
    if isinstance(node, Fold):
        return _folded(node, position)
    if isinstance(node, Guard):
        return _guarded(node, position)
    if isinstance(node, Place):
        return element(node.input, position)
    raise PlanError(f"`{node.label}` cannot be read by position.")


def _only(block: Block) -> Any:
    """The one element of a block; raises its error if it failed."""
    if block.failure is not None:
        raise block.failure.release()
    return block.rows()[0]


def _kept(node: Drop, value: Any, here: Positions) -> Any:
    if value is None:
        return None
    keep, failure = node.keep([value], here)
    if failure is not None:
        raise failure.release()
    return value if keep[0] else None


def _one_of_several(node: Expand, position: int) -> Any:
    """Each element has `fan_out` places; unused places are None."""
    before, place = divmod(position, node.fan_out)
    value = element(node.input, before)
    if value is None:
        return None
    sequences, failure = node.expand([value], run_of(before, before + 1))
    if failure is not None:
        raise failure.release()
    (made,) = sequences
    if len(made) > node.fan_out:
        error = PlanError(
            f"`{node.label}` made {len(made)} elements of one, more than its max_fan_out of "
            f"{node.fan_out}."
        )
        raise failed(error, node, position).release()
    return made[place] if place < len(made) else None


def _folded(node: Fold, position: int) -> Any:
    """Group k of an epoch is made of the positions k * n to (k + 1) * n of that epoch."""
    if not node.one_per_group:
        raise PlanError(f"`{node.label}` is a step of streams; it has no random access.")
    start, stop = group_span(position, node.group_size, node.input.length(), node.length())
    group = [element(node.input, place) for place in range(start, stop)]
    try:
        (made,) = node.fold(group, position)
    except Exception as error:
        raise failed(error, node, position).release() from None
    return made


def _guarded(node: Guard, position: int) -> Any:
    try:
        return element(node.input, position)
    except Exception as error:
        if not node.catches(error):
            raise
        bad = error
    try:
        return node.stand_in(bad)
    except Exception as own:
        raise failed(own, node, position).release() from None
