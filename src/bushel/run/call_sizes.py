"""The number of records in a timed call, and the position of the first."""

from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.block import Block

# Tells of arguments, and of what was made of them, how many records they are about, and where the
# first of them is.
Sized = Callable[[Sequence[Any], Any], tuple[int, int]]


def by_positions(argument: int) -> Sized:
    """Arguments of which one has the positions."""

    def sized(args: Sequence[Any], _: Any) -> tuple[int, int]:
        positions = args[argument]
        return len(positions), int(positions[0]) if len(positions) else -1

    return sized


def by_block(argument: int) -> Sized:
    """Arguments of which one is the block."""

    def sized(args: Sequence[Any], _: Any) -> tuple[int, int]:
        block: Block = args[argument]
        return len(block), int(block.positions[0]) if len(block.positions) else -1

    return sized


def by_number(argument: int) -> Sized:
    """Arguments of one element, of which one is its position."""
    return lambda args, _: (1, args[argument])


def by_count(argument: int) -> Sized:
    """Arguments of which one says how many there are."""
    return lambda args, _: (args[argument], -1)


def unsized(_: Sequence[Any], __: Any) -> tuple[int, int]:
    """Arguments that are about no record."""
    return 0, -1
