"""Nodes of streams that are gone over again, cut short, remembered, or taken in turn."""

from collections.abc import Callable
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.node import Node, refuse_length


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
