"""Several streams as one: one after the other, or in turn (`IterDataset.mix`: in proportion)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar, cast

from bushel.errors import PlanError
from bushel.fluent.chain import Chain
from bushel.node import Node
from bushel.order.mix import ConcatenateNode
from bushel.plan.passes import InterleaveNode

T = TypeVar("T")
C = TypeVar("C", bound=Chain)


class StreamMixing(Chain, Generic[T]):
    """Methods that join a stream with others."""

    def concat(self, *others: Chain) -> Self:
        """This stream, and then the others, one after the other.

        For a list of streams there is `IterDataset.concatenate`.

        >>> import bushel
        >>> odd = bushel.MapDataset.range(5).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.concat(bushel.MapDataset.range(10, 12), odd))
        [1, 3, 10, 11, 1, 3]
        """
        parts = _parts_of(self, others, "concat")
        return _joined(self, others, ConcatenateNode(tuple(parts)))

    def interleave(self, *others: Chain, cycle_length: int | None = None) -> Self:
        """Elements of this stream and the others in turn, one of each.

        With `cycle_length` only so many are open at a time, and the next one takes the place of
        one that ends. Otherwise all are, and those that end drop out.

        >>> import bushel
        >>> low, high = bushel.MapDataset.range(3), bushel.MapDataset.range(10, 15)
        >>> list(low.to_iter_dataset().interleave(high))
        [0, 10, 1, 11, 2, 12, 13, 14]
        """
        parts = _parts_of(self, others, "interleave")
        cycle = len(parts) if cycle_length is None else operator.index(cycle_length)
        if cycle <= 0:
            raise PlanError(f"`cycle_length` must be positive, and is {cycle}.")
        name = f"interleave({len(parts)} datasets, cycle_length={cycle})"
        opener = _Opener(parts)
        node = InterleaveNode(opener.part, opener.open, opener.count, cycle, name)
        return _joined(self, others, node)


class _Opener:
    """The streams to interleave, which are opened when it is their turn."""

    def __init__(self, parts: Sequence[Node]) -> None:
        self._parts = parts

    def count(self) -> int:
        return len(self._parts)

    def part(self, number: int) -> Node:
        return self._parts[number]

    def open(self, number: int) -> Any:
        from bushel.deliver.open import open_stream

        return open_stream(self._parts[number])


def _parts_of(first: Chain, others: Sequence[Any], method: str) -> list[Node]:
    parts = [first._own_node()]
    for number, other in enumerate(others, start=1):
        if not isinstance(other, Chain):
            raise TypeError(
                f"`{method}` takes datasets, and argument {number} is a {type(other).__name__}: "
                f"{other!r:.100}. For a list of them, write `{method}(*datasets)`."
            )
        # A random-access dataset as the stream that it is when one iterates over it.
        stream = other.to_iter_dataset() if hasattr(other, "to_iter_dataset") else other
        parts.append(stream._own_node())
    return parts


def _joined(first: C, others: Sequence[Chain], node: Node) -> C:
    joined = first._then(node)
    joined._parents = (first, *others)
    return cast(C, joined)
