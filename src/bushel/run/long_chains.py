"""The overhead of a step, and the block size that long chains of steps need."""

import math

from bushel.core.node import Fold, Node, Order, Source, chain_of
from bushel.run.step_streams import STEPS_FOR_ANOTHER

# What a step costs for a block, beside its work, a few times over.
_SECONDS_OF_A_STEP, _SECONDS_OF_AN_ORDER = 20e-6, 200e-6


def least_block(node: Node) -> int:
    """How many elements a source, or a long chain, wants to be asked for at once, at the least."""
    *steps, first = chain_of(node)
    records = math.prod(step.group_size for step in steps if isinstance(step, Fold))
    wanted = first.at_a_time if isinstance(first, Source) else 1
    # What a step costs beside its work, it costs for each block: a thousand steps are worth
    # larger ones.
    least = len(steps) // STEPS_FOR_ANOTHER
    if least:
        least = int(seconds_beside_work(node) / _SECONDS_OF_A_STEP) // STEPS_FOR_ANOTHER
    return max(1, wanted // records, least)


def seconds_beside_work(node: Node) -> float:
    """What a block should take at the least, so that a long chain is about its work.

    Else one element of thousands of steps takes longer than a block should, and each comes alone.
    """
    *steps, _ = chain_of(node)
    orders = sum(isinstance(step, Order) for step in steps)
    return len(steps) * _SECONDS_OF_A_STEP + orders * _SECONDS_OF_AN_ORDER
