"""For statistics: how many records a timed call is about, and the position of the first."""

from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.block import Block

# Given arguments and result of a call, returns the number of records in it, and the position of the
# first.
Sized = Callable[[Sequence[Any], Any], tuple[int, int]]


def by_positions(argument: int) -> Sized:
    """For calls in which one argument has the positions."""

    def sized(args: Sequence[Any], _: Any) -> tuple[int, int]:
        positions = args[argument]
        return len(positions), int(positions[0]) if len(positions) else -1

    return sized


def by_block(argument: int) -> Sized:
    """For calls in which one argument is the block."""

    def sized(args: Sequence[Any], _: Any) -> tuple[int, int]:
        block: Block = args[argument]
        return len(block), int(block.positions[0]) if len(block.positions) else -1

    return sized


def by_number(argument: int) -> Sized:
    """For calls with one element, in which one argument is its position."""
    return lambda args, _: (1, args[argument])


def by_count(argument: int) -> Sized:
    """For calls in which one argument is the number of records."""
    return lambda args, _: (args[argument], -1)


def unsized(_: Sequence[Any], __: Any) -> tuple[int, int]:
    """For calls that involve no record."""
    return 0, -1
