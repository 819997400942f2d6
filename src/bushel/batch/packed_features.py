"""Removes the features that `pack` does not pack, in a step before it."""

from bushel.batch.too_long import Only
from bushel.core.block import Block
from bushel.core.frozen import frozen
from bushel.core.node import Node
from bushel.core.ragged import RaggedRows
from bushel.transforms.map import MapNode


@frozen
class OnlyNode(MapNode):
    """A map with `Only` that does not put rows together which were taken apart."""

    def apply(self, block: Block) -> Block:
        values = block.values
        kept = values.only(self.transform.names) if isinstance(values, RaggedRows) else None
        if kept is None:
            return MapNode.apply(self, block)
        return Block(kept, block.positions, block.failure, block.metadata)


def only_step(parent: Node, names: tuple[str, ...]) -> Node:
    """Keeps these features of each element, in this order."""
    only = Only(names)
    return OnlyNode(parent, only, only)
