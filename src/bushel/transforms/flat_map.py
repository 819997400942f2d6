"""Flat maps: make several elements of one."""

from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.block import Failure
from bushel.core.frozen import frozen
from bushel.core.naming import name_of
from bushel.core.node import Expand, Node
from bushel.core.positions import Positions
from bushel.transforms.function import collect


@frozen
class FlatMapNode(Expand):
    """Replaces each element by all elements of a sequence made of it.

    In a random-access dataset each element takes `max_fan_out` places, and those it does
    not fill read as None.
    """

    input: Node
    function: Callable[[Any], Sequence[Any]]
    transform: Any

    @property
    def fan_out(self) -> int:
        return int(self.transform.max_fan_out)

    def expand(
        self, rows: Sequence[Any], positions: Positions
    ) -> tuple[list[Sequence[Any]], Failure | None]:
        function = self.function
        return collect(self, lambda rows, _: map(list, map(function, rows)), rows, positions)

    def describe(self) -> str:
        return "flat_map"

    @property
    def label(self) -> str:
        return f"flat_map({name_of(self.transform)})"


def flat_map_step(parent: Node, transform: Any) -> Node:
    """The step of a flat map."""
    if not hasattr(transform, "flat_map"):
        raise TypeError(
            f"a flat map takes a `FlatMap` object, and got {type(transform).__name__}: "
            f"{transform!r}. Subclass it and define `flat_map`."
        )
    return FlatMapNode(parent, transform.flat_map, transform)
