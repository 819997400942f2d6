"""The interface of evaluators by position: a block at given positions, or at a range."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from bushel.core.block import Block
from bushel.core.node import Drop
from bushel.core.positions import Positions, run_of
from bushel.transforms.function import any_none


class Evaluator(ABC):
    """Gives the elements of a node: at any positions, or for a run of neighbours.

    A run is what streams ask for. It means the same as `at` for the positions of the run and
    is spared the checks that arbitrary positions need. Any number of threads may share one.
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
        """Whether elements had better be made one by one, by `on_demand`.

        What `run` makes at a time lies in memory at a time. Where elements are batches, that
        is worth avoiding: the memory of one that the user is done with serves the next, still
        in the cache.
        """
        return False

    def on_demand(self, start: int, stop: int) -> Iterator[Any] | None:
        """The elements from `start` up to `stop` or before, each made when it is taken.

        None where there is not one of them that could be made like that.
        """
        return None

    @property
    def reads_later(self) -> bool:
        """Whether `run` only notes keys, and values are read when somebody needs them."""
        return False


def labelled(block: Block, positions: Positions) -> Block:
    """Gives a block the positions of the output; fewer where it ended early."""
    return block.at(positions if len(block) == len(positions) else positions[: len(block)])


def dropped(node: Drop, block: Block) -> Block:
    """Puts None in the place of each element that a step leaves out."""
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
