"""Filters: elements that are left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bushel.block import Failure
from bushel.naming import name_of
from bushel.node import Drop, Node
from bushel.positions import Positions
from bushel.transforms.function import collect


@dataclass(frozen=True, slots=True)
class FilterNode(Drop):
    """Keeps the elements for which a function is true.

    In a random-access dataset the length stays and a dropped element reads as None; in a
    stream the others move up.
    """

    input: Node
    function: Callable[[Any], Any]
    transform: Any

    def keep(self, rows: Sequence[Any], positions: Positions) -> tuple[list[bool], Failure | None]:
        function = self.function
        return collect(self, lambda rows, _: map(bool, map(function, rows)), rows, positions)

    def describe(self) -> str:
        return "filter"

    @property
    def label(self) -> str:
        return f"filter({name_of(self.transform)})"
