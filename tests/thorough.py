"""How thoroughly tests look.

A few examples by default, the same each time: `USUAL` of a property that is quick, fewer where
each of them costs more, more where that is little. `BUSHEL_EXAMPLES=100` asks for so many of a
quick one and for as many times more of the others, other ones each time; for what is `slow`; and
for all of the cases of which some are tried otherwise. `make test-all` does. `make fuzz` runs the
files called `test_fuzz_*` like that, with a seed that repeats what they tried: `BUSHEL_SEED`.

Which cases are tried by default follows from one of four rules, so that no operation, variant or
way is left out altogether. `usually` names the variants that take ways of their own. `crossed`
pairs two kinds of variants such that each meets several of the other kind. `spread` has places of
a stream, evenly spread, with both ends. `by_turns` (tests/contract/pipelines.py) has each operation
in every way, and variants of it in one way each, the next one in the next way.
"""

import functools
import os
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

One = TypeVar("One")
Other = TypeVar("Other")

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


def spread(places: Sequence[One], most: int) -> Sequence[One]:
    """The places at which something is tried: by default so many, evenly spread, both ends too."""
    if THOROUGH or len(places) <= most:
        return places
    last = len(places) - 1
    return [places[round(number * last / (most - 1))] for number in range(most)]


def crossed(one: Iterable[One], other: Iterable[Other], every: int) -> list[tuple[One, Other]]:
    """The pairs of two kinds of variants that are tried: by default one in `every`.

    On diagonals of the table of all pairs, so that each variant of either kind is among them,
    with several of the other kind, if there are at least `every` of both.
    """
    rows, columns = list(one), list(other)
    return [
        (row, column)
        for number, row in enumerate(rows)
        for place, column in enumerate(columns)
        if THOROUGH or (number + place) % every == 0
    ]


def rare_examples(count: int) -> int:
    """The same where each of them starts processes, and all pipelines are tried, not some."""
    return max(count, examples(USUAL) // 50)


@functools.cache
def fuzz_seed() -> int:
    """What chooses the examples: the same each time, unless many are asked for."""
    if "BUSHEL_SEED" in os.environ:
        return int(os.environ["BUSHEL_SEED"])
    return random.SystemRandom().randrange(10**9) if THOROUGH else 0
