"""For statistics: the number, first position and bytes of the records of a timed call."""

from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.block import Block
from bushel.core.sizes import bytes_of
from bushel.core.stream import Chunk

# In the long run elements are measured in one of so many turns that are timed.
_MEASURED_EVERY = 64
# What elements tell of themselves may be no size at all, and sums are sent as 64-bit integers.
_MOST_BYTES = 1 << 40
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


def by_row(_: Sequence[Any], row: Any) -> tuple[int, int]:
    """For calls that make an element on demand, or `NO_ROW`."""
    return int(row is not NO_ROW), -1


# In place of an element where there is none.
NO_ROW = object()


def bytes_of_one(made: Any) -> int | None:
    """The bytes of an element in the result of a call; None if it has none."""
    if isinstance(made, Chunk):
        made = made.block
    try:
        if isinstance(made, Block):
            made = made.part(0, 1).rows() if len(made) else []
        elif isinstance(made, tuple) and len(made) == 1:
            made = list(made)  # Of one group.
        elif isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], list):
            made = made[0]  # With a failure beside it.
        if not isinstance(made, list) or not made:
            return None
        return min(max(0, bytes_of(made[0])), _MOST_BYTES)
    except Exception:
        return None  # It is read only now, and cannot be.


def is_measured(timed: int) -> bool:
    """Whether elements are measured in a turn, by how many were timed with it.

    Not in the first one, as iterators may be short: in the second, the fourth, the eighth.

    >>> [timed for timed in range(300) if is_measured(timed)]
    [2, 4, 8, 16, 32, 64, 128, 192, 256]
    """
    return timed > 1 and (not timed & (timed - 1) or not timed % _MEASURED_EVERY)
