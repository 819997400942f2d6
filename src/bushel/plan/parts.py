"""Nodes of parts: the first elements passed over, elements numbered, none of them missing."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from bushel.core.block import Block
from bushel.core.frozen import frozen
from bushel.core.node import (
    ONE_LANE,
    Each,
    Fold,
    Node,
    OneByOne,
    Order,
    Pass,
    Place,
    failed,
    leaves_out,
)
from bushel.core.positions import Positions
from bushel.errors import PlanError
from bushel.order.windows import StreamWindowsNode
from bushel.plan.places import ToStreamNode
from bushel.transforms.function import any_none, apply_to_rows


@frozen
class SkipNode(Pass):
    """Passes over the first elements of a stream."""

    input: Node
    count: int

    def describe(self) -> str:
        return f"skip({self.count})"


@frozen
class EnumerateNode(OneByOne):
    """Makes pairs of the position, counted from `start`, and the element."""

    input: Node
    start: int
    lane: tuple[int, int] = ONE_LANE
    uses_positions = True

    def apply(self, block: Block) -> Block:
        return apply_to_rows(self, self.results, block)

    def results(self, rows: Iterable[Any], positions: Positions) -> Iterable[Any]:
        start = self.start
        return zip([start + position for position in positions.tolist()], rows, strict=True)

    def describe(self) -> str:
        return f"enumerate({self.start or ''})"


class Wary(Order):
    """An order that may find out that positions cannot be read."""

    __slots__ = ()

    @abstractmethod
    def refused(self, positions: Positions) -> tuple[int, str] | None:
        """Which of these positions is the first that cannot, and why."""


@frozen
class PresentNode(Each):
    """Vouches that no element is missing, whatever steps before it may have left out."""

    input: Node
    # What to say of one that is.
    otherwise: str

    def apply(self, block: Block) -> Block:
        rows = block.values
        refused = None
        if isinstance(self.input, Wary):
            refused = self.input.refused(block.positions)
        if refused is None and isinstance(rows, list) and any_none(rows):
            refused = next(i for i, row in enumerate(rows) if row is None), self.otherwise
        if refused is None:
            return block
        index, text = refused
        cut = block.part(0, index)
        cut.failure = failed(PlanError(text), self.input, int(block.positions[index]))
        return cut

    def describe(self) -> str:
        return ""


def droppers(node: Node) -> Iterable[Node]:
    """The steps that may leave elements out of a dataset, up to where none is missing again."""
    level = [node]
    while level:
        yield from filter(leaves_out, level)
        level = [
            parent
            for child in level
            if not isinstance(child, PresentNode)
            for parent in child.inputs
        ]


def is_by_position(node: Node) -> bool:
    """Whether element n of a stream is made of known positions of a random-access dataset."""
    while not isinstance(node, ToStreamNode):
        one_each = isinstance(node, (Each, Place, SkipNode, StreamWindowsNode))
        if not one_each and not (isinstance(node, Fold) and node.one_per_group):
            return False
        (node,) = node.inputs
    return node.allow_nones or not any(droppers(node.input))
