"""Nodes of streams that are gone over again, cut short, remembered, or taken in turn."""

from collections.abc import Callable
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.node import ONE_LANE, Node, Pass, refuse_length


@frozen
class StreamRepeatNode(Pass):
    """Goes over a stream again and again."""

    input: Node
    epochs: int | None

    def describe(self) -> str:
        return f"repeat({self.epochs or ''})"


@frozen
class LimitNode(Pass):
    """Ends a stream after so many elements."""

    input: Node
    count: int

    def describe(self) -> str:
        return f"limit({self.count})"


@frozen
class CacheNode(Pass):
    """Remembers the elements of a stream, in memory or in a file."""

    input: Node
    path: str | None = None
    max_bytes: int | None = None
    lane: tuple[int, int] = ONE_LANE

    @property
    def file(self) -> str | None:
        """The file; each lane has its own."""
        lane, lanes = self.lane
        return f"{self.path}.{lane}-of-{lanes}" if self.path and lanes > 1 else self.path

    def describe(self) -> str:
        return "cache()"

    @property
    def label(self) -> str:
        return "cache()" if self.file is None else f"cache({self.file!r})"


@frozen
class InterleaveNode(Node):
    """Takes elements of several streams in turn; opens the next when one ends."""

    # What dataset number i is, and what opens it; None where there is none at this number.
    part: Callable[[int], Node | None]
    open: Callable[[int], Any]
    count: Callable[[], int]
    cycle_length: int
    name: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def length(self) -> int:
        return refuse_length(self)

    def describe(self) -> str:
        return self.name
