"""Seeds that random steps derive from `ds.seed(...)` upstream."""

import operator
from typing import Any

from bushel.core.node import Node
from bushel.core.places import SeedNode
from bushel.core.rng import derived_seed
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
