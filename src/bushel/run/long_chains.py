"""The overhead of each step, by which long chains of steps get larger blocks."""

import math

from bushel.core.node import Fold, Node, Order, Source, chain_of
from bushel.run.step_streams import STEPS_FOR_ANOTHER

# Several times what a step costs per block, besides its work.
_SECONDS_OF_A_STEP, _SECONDS_OF_AN_ORDER = 20e-6, 200e-6


def least_block(node: Node) -> int:
    """The least number of elements of an efficient request to a source, or through a long chain."""
    *steps, first = chain_of(node)
    records = math.prod(step.group_size for step in steps if isinstance(step, Fold))
    wanted = first.at_a_time if isinstance(first, Source) else 1
    # A step has a cost per block besides its work, so a thousand steps are worth larger blocks.
    least = len(steps) // STEPS_FOR_ANOTHER
    if least:
        least = int(seconds_beside_work(node) / _SECONDS_OF_A_STEP) // STEPS_FOR_ANOTHER
    return max(1, wanted // records, least)


def seconds_beside_work(node: Node) -> float:
    """Seconds that a block should take at least, so that most of them are work of the chain.

    Otherwise one element of thousands of steps would take longer than a block should, and each
    would be a block of its own.
    """
    *steps, _ = chain_of(node)
    orders = sum(isinstance(step, Order) for step in steps)
    return len(steps) * _SECONDS_OF_A_STEP + orders * _SECONDS_OF_AN_ORDER
