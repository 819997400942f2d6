"""`enumerate`: pairs of the position and the element."""

from collections.abc import Iterable
from typing import Any

from bushel.core.block import Block
from bushel.core.frozen import frozen
from bushel.core.node import ONE_LANE, Node, OneByOne
from bushel.core.positions import Positions
from bushel.transforms.function import apply_to_rows


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
