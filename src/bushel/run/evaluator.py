"""The interface of evaluators by position: a block at given positions, or at a range."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from bushel.core.block import Block
from bushel.core.node import Drop
from bushel.core.positions import Positions, run_of
from bushel.transforms.function import any_none


class Evaluator(ABC):
    """Evaluates a node: at any positions, or at a range of positions.

    Streams ask for ranges. `run` returns the same as `at` for the positions of the range, without
    the checks that arbitrary positions need. Any number of threads may share an evaluator.
    """

    __slots__ = ()

    @abstractmethod
    def at(self, positions: Positions) -> Block:
        """The elements at these positions, up to the first that fails."""

    def run(self, start: int, stop: int) -> Block:
        """The elements from position `start` up to `stop`, up to the first that fails."""
        return self.at(run_of(start, stop))

    @property
    def prefers_on_demand(self) -> bool:
        """Whether elements are better made one by one, by `on_demand`.

        All elements that `run` makes are in memory at the same time. If elements are batches, this
        is worth avoiding: the memory of a batch that the user is done with serves the next one,
        while it is still in the cache.
        """
        return False

    def on_demand(self, start: int, stop: int) -> Iterator[Any] | None:
        """The elements from `start` up to `stop` or earlier, each made when it is taken.

        None if not even the first can be made like that.
        """
        return None

    @property
    def reads_later(self) -> bool:
        """Whether `run` only notes keys, so that values are read when they are used."""
        return False


def labelled(block: Block, positions: Positions) -> Block:
    """Gives a block the positions of the output, fewer if the block ended early."""
    return block.at(positions if len(block) == len(positions) else positions[: len(block)])


def dropped(node: Drop, block: Block) -> Block:
    """Puts None in the place of each element that a step drops."""
    rows = block.rows()
    if isinstance(block.values, list) and any_none(rows):
        present = [index for index, row in enumerate(rows) if row is not None]
        kept, failure = node.keep([rows[i] for i in present], block.positions[present])
        out: list[Any] = [None] * (len(rows) if failure is None else present[len(kept)])
        for index, keep in zip(present, kept, strict=False):
            if keep:
                out[index] = rows[index]
    else:
        kept, failure = node.keep(rows, block.positions)
        out = [row if keep else None for row, keep in zip(rows, kept, strict=False)]
    return Block(out, block.positions[: len(out)], failure or block.failure)
