"""`filter`: drops elements."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import truth
from typing import Any

from bushel.core.block import Failure
from bushel.core.frozen import frozen
from bushel.core.naming import name_of
from bushel.core.node import Drop, Node
from bushel.core.positions import Positions
from bushel.transforms.base import Filter
from bushel.transforms.function import collect, function_of, identity_of


@frozen
class FilterNode(Drop):
    """Keeps the elements for which a function is true.

    In a random-access dataset the length stays and a dropped element reads as None; in a
    stream the others move up.
    """

    input: Node
    function: Callable[[Any], Any]
    transform: Any
    called_with = ("element",)

    def keep(self, rows: Sequence[Any], positions: Positions) -> tuple[list[bool], Failure | None]:
        return collect(self, self.results, rows, positions)

    def results(self, rows: Iterable[Any], positions: Positions) -> Iterable[bool]:
        # Whatever it answers counts by its truth, which may fail in its turn.
        return map(truth, map(self.function, rows))

    @property
    def likeness(self) -> Hashable:
        return FilterNode, identity_of(self.function)

    def describe(self) -> str:
        return "filter"

    @property
    def label(self) -> str:
        return f"filter({name_of(self.transform)})"


def filter_step(parent: Node, transform: Any) -> Node:
    """The step of `filter`."""
    return FilterNode(parent, function_of(transform, Filter, "filter", "filter"), transform)
