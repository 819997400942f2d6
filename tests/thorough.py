"""How thoroughly tests look.

A few examples by default, the same each time. `BUSHEL_EXAMPLES=100` asks for so many of each
property, other ones each time, and for the variants that are one of a kind otherwise; `make
test-all` does. `make fuzz` runs the files called `test_fuzz_*` like that, with a seed that
repeats what they tried: `BUSHEL_SEED`.
"""

import functools
import os
import random

THOROUGH = "BUSHEL_EXAMPLES" in os.environ


def examples(count: int) -> int:
    """How many examples of a property are tried, where usually so many are."""
    return int(os.environ.get("BUSHEL_EXAMPLES", count))


def rare_examples(count: int) -> int:
    """The same where each of them starts processes."""
    return max(count, examples(0) // 50)


@functools.cache
def fuzz_seed() -> int:
    """What chooses the examples: the same each time, unless many are asked for."""
    if "BUSHEL_SEED" in os.environ:
        return int(os.environ["BUSHEL_SEED"])
    return random.SystemRandom().randrange(10**9) if THOROUGH else 0
