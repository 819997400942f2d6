"""`PresentNode`, the error if an element is missing; orders over datasets that may have gaps."""

from abc import abstractmethod

from bushel.core.block import Block
from bushel.core.frozen import frozen
from bushel.core.node import Each, Node, Order, failed
from bushel.core.positions import Positions
from bushel.errors import PlanError
from bushel.transforms.function import any_none


class Wary(Order):
    """An order that may find out that some positions cannot be read."""

    __slots__ = ()

    @abstractmethod
    def refused(self, positions: Positions) -> tuple[int, str] | None:
        """The first of these positions that cannot be read, and the reason."""


@frozen
class PresentNode(Each):
    """Guarantees that no element is missing, even if steps before it drop some."""

    input: Node
    # The error message if an element is missing after all.
    otherwise: str
    has_all = True

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
