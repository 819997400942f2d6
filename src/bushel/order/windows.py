"""Sliding windows: neighbours that overlap, by arithmetic or from a stream."""

from bushel.core.frozen import frozen
from bushel.core.node import Node, Order, refuse_length
from bushel.core.positions import Positions, join_epochs, split_epochs


def count_windows(length: int, size: int, stride: int, drop_remainder: bool) -> tuple[int, int]:
    """How many whole windows there are, and how many elements a last, shorter one has.

    A shorter one is there for elements at the end that are in no whole window.

    >>> count_windows(10, 4, 3, drop_remainder=False), count_windows(11, 4, 3, False)
    ((3, 0), (3, 2))
    """
    whole = (length - size) // stride + 1 if length >= size else 0
    seen = (whole - 1) * stride + size if whole else 0
    start = whole * stride
    return whole, 0 if drop_remainder or seen >= length else max(0, length - start)


@frozen
class OverlapNode(Order):
    """Lays out the elements of each window one after the other, for a batch to join.

    Windows lie within one epoch.

    >>> import numpy as np
    >>> from bushel.sources.memory import RangeNode
    >>> OverlapNode(RangeNode(range(6)), 3, 2, drop_remainder=True).locate(np.arange(8))
    array([0, 1, 2, 2, 3, 4, 6, 7])
    """

    input: Node
    size: int
    stride: int
    drop_remainder: bool

    def length(self) -> int:
        length = self.input.length()
        whole, rest = count_windows(length, self.size, self.stride, self.drop_remainder)
        return whole * self.size + rest

    def locate(self, positions: Positions) -> Positions:
        epochs, offsets = split_epochs(positions, self.length())
        windows, places = offsets // self.size, offsets % self.size
        return join_epochs(windows * self.stride + places, epochs, self.input.length())

    def describe(self) -> str:
        return describe_windows(self.size, self.stride, self.drop_remainder)


@frozen
class StreamWindowsNode(Node):
    """Joins the elements of each window over a stream."""

    input: Node
    size: int
    stride: int
    drop_remainder: bool

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def length(self) -> int:
        return refuse_length(self)

    def describe(self) -> str:
        return describe_windows(self.size, self.stride, self.drop_remainder)


def describe_windows(size: int, stride: int, drop_remainder: bool) -> str:
    """Shows windows as one would write them.

    >>> describe_windows(4, 1, True), describe_windows(4, 2, False)
    ('windows(4)', 'windows(4, stride=2, drop_remainder=False)')
    """
    every = "" if stride == 1 else f", stride={stride}"
    keep = "" if drop_remainder else ", drop_remainder=False"
    return f"windows({size}{every}{keep})"
