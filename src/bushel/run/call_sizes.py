"""What calls that are timed are about: how many records, and the position of the first."""

from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.block import Block

# Tells of arguments how many records they are about, and where the first of them is.
Sized = Callable[[Sequence[Any]], tuple[int, int]]


def by_positions(argument: int) -> Sized:
    """Arguments of which one has the positions."""

    def sized(args: Sequence[Any]) -> tuple[int, int]:
        positions = args[argument]
        return len(positions), int(positions[0]) if len(positions) else -1

    return sized


def by_block(argument: int) -> Sized:
    """Arguments of which one is the block."""

    def sized(args: Sequence[Any]) -> tuple[int, int]:
        block: Block = args[argument]
        return len(block), int(block.positions[0]) if len(block.positions) else -1

    return sized


def by_number(argument: int) -> Sized:
    """Arguments of one element, of which one is its position."""
    return lambda args: (1, args[argument])


def by_count(argument: int) -> Sized:
    """Arguments of which one says how many there are."""
    return lambda args: (args[argument], -1)


def unsized(_: Sequence[Any]) -> tuple[int, int]:
    """Arguments that are about no record."""
    return 0, -1
