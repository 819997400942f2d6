"""How thoroughly tests look.

A few examples by default, the same each time: `USUAL` of a property that is quick, fewer where
each of them costs more, more where that is little. `BUSHEL_EXAMPLES=100` asks for so many of a
quick one and for as many times more of the others, other ones each time; for what is `slow`; and
for the variants that are one of a kind otherwise. `make test-all` does. `make fuzz` runs the files
called `test_fuzz_*` like that, with a seed that repeats what they tried: `BUSHEL_SEED`.
"""

import functools
import os
import random
from collections.abc import Iterable

import pytest

THOROUGH = "BUSHEL_EXAMPLES" in os.environ
# How many examples of a property that is quick are tried by default.
USUAL = 20

# What takes seconds, and guards little that others do not: whole programs, frameworks, clusters.
slow = pytest.mark.skipif(not THOROUGH, reason="takes long; `make test-all` runs it")


def examples(count: int) -> int:
    """How many examples of a property are tried, where so many are by default."""
    if not THOROUGH:
        return count
    return max(1, count * int(os.environ["BUSHEL_EXAMPLES"]) // USUAL)


def usually(variants: Iterable[str], *usual: str) -> list[str]:
    """The variants of a test that are tried: by default those that take ways of their own."""
    found = list(variants)
    assert set(usual) <= set(found), f"no variants: {set(usual) - set(found)}"
    return found if THOROUGH else [name for name in found if name in usual]


def rare_examples(count: int) -> int:
    """The same where each of them starts processes, and all pipelines are tried, not some."""
    return max(count, examples(USUAL) // 50)


@functools.cache
def fuzz_seed() -> int:
    """What chooses the examples: the same each time, unless many are asked for."""
    if "BUSHEL_SEED" in os.environ:
        return int(os.environ["BUSHEL_SEED"])
    return random.SystemRandom().randrange(10**9) if THOROUGH else 0
