"""Derives the seed of a step from `ds.seed(...)`; the errors of a missing or invalid seed."""

import operator
from typing import Any

from bushel.core.arguments import whole
from bushel.core.derived_seed import derived_seed
from bushel.core.node import Node
from bushel.core.places import SeedNode
from bushel.errors import PlanError


def _check(seed: Any) -> int:
    if isinstance(seed, str) or operator.index(seed) < 0:
        raise PlanError(f"`ds.seed` takes an integer that is not negative, and got {seed!r}.")
    return operator.index(seed)


def default_seed(inputs: tuple[Node, ...], operation: str) -> int:
    """Derives the seed of a random step from the seeds upstream of it.

    Breadth first from the step (depth 0), each branch up to its first `seed`: so every step
    has a seed of its own, and none depends on what follows.
    """
    entropy: list[int] = []
    level = list(inputs)
    depth = 1
    while level:
        above: list[Node] = []
        for node in level:
            if isinstance(node, SeedNode) and node.seed is not None:
                entropy += [_check(node.seed), depth]
            else:
                above.extend(node.inputs)
        level = above
        depth += 1
    if not entropy:
        raise PlanError(
            f"`{operation}` requires a seed. Call `ds.seed(seed)` before it, or write "
            f"`{operation}(..., seed=seed)`."
        )
    return derived_seed(entropy)


def check_seed(seed: Any, operation: str) -> int:
    """Returns a seed that fits in 32 bits."""
    number = whole(seed, "seed")
    if not 0 <= number < 2**32:
        raise PlanError(
            f"`{operation}`: the seed must be an integer between 0 and 2**32-1 (got {number})."
        )
    return number


def check_large_seed(seed: Any, operation: str) -> None:
    """Refuses a seed that is negative; it may have any number of bits."""
    if whole(seed, "seed") < 0:
        raise PlanError(f"`{operation}` needs a seed that is not negative, and got {seed}.")
