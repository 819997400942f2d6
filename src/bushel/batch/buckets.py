"""The step that batches elements of like lengths.

Elements go into buckets by their length, and a bucket that is full becomes a batch. What is in
the buckets is no part of a state: it is read again, and so all buckets are emptied after a
number of elements that is fixed beforehand, the window.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from bushel.batch.length_of import LengthOf
from bushel.batch.pad import Padding, with_lengths
from bushel.batch.regroup import Machine, Regroup
from bushel.core.frozen import frozen
from bushel.core.node import Node
from bushel.core.state import State
from bushel.core.state_fields import Fields, Inner, Whole, given_by
from bushel.core.stream import Stream
from bushel.errors import BatchError


@frozen
class BucketNode(Regroup):
    """Batches elements of like lengths, in the order in which their buckets are full."""

    input: Node
    # The greatest length in each bucket but perhaps the last, which may be without bound.
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    length_of: LengthOf
    padding: Padding
    pads_to_boundary: bool
    window: int
    drop_remainder: bool
    lengths_as: str | None

    def machine(self) -> Machine:
        return _Buckets(self)

    def describe(self) -> str:
        multiple = self.padding.multiple
        pads = f", pad_to_multiple_of={multiple}" if multiple > 1 else ""
        edge = ", pad_to_boundary=True" if self.pads_to_boundary else ""
        drop = ", drop_remainder=True" if self.drop_remainder else ""
        return (
            f"bucket_by_length({list(self.boundaries)}, {list(self.sizes)}"
            f"{self.length_of.describe()}{pads}{edge}, window={self.window}{drop})"
        )


class _Buckets(Machine):
    """A window is a group."""

    makes_batches = True

    def __init__(self, node: BucketNode) -> None:
        self._node = node
        # The lengths and elements of the window.
        self._added: list[tuple[int, Any]] = []
        # By their numbers in the window: what is in the buckets, and batches in order, each with
        # the bucket that it was.
        self._open: list[list[int]] = []
        self._full: list[tuple[int, list[int]]] = []

    def begin(self, carried: Any) -> None:
        self._open, self._full = [[] for _ in self._node.sizes], []
        self._added, self.complete = [], False

    def add(self, element: Any) -> bool:
        node = self._node
        length = node.length_of(element)
        number = bisect_left(node.boundaries, length)
        if number == len(node.sizes):
            raise BatchError(
                f"an element of length {length} belongs to no bucket: the last boundary is "
                f"{node.boundaries[-1]}. Add a boundary (or, with `batch_sizes`, one more size for "
                "what is longer), or cut or filter such elements before."
            )
        bucket = self._open[number]
        bucket.append(len(self._added))
        self._added.append((length, element))
        if len(bucket) == node.sizes[number]:
            self._full.append((number, bucket))
            self._open[number] = []
        self.complete = len(self._added) == node.window
        return True

    def end(self, made_before: int) -> list[Any]:
        return [self._batch(number, bucket) for number, bucket in self._batches()]

    def members(self, count: int) -> Iterable[Sequence[int]]:
        return [bucket for _, bucket in self._batches()]

    def _batches(self) -> list[tuple[int, list[int]]]:
        if self._node.drop_remainder:
            return self._full
        return self._full + [(at, bucket) for at, bucket in enumerate(self._open) if bucket]

    def _batch(self, number: int, bucket: list[int]) -> Any:
        node = self._node
        least = 0
        if node.pads_to_boundary and number < len(node.boundaries):
            least = node.padding.up(node.boundaries[number])
        lengths, elements = zip(*map(self._added.__getitem__, bucket), strict=True)
        batch = node.padding.batch(list(elements), least)
        return with_lengths(batch, list(lengths), node.lengths_as, "bucket_by_length")

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        return {"parent": parent, "next_batch": used, "batches": made_before}

    def fields(self, input: Stream) -> Fields:
        return Fields(
            parent=Inner(input),
            next_batch=Whole(self._node.window),
            batches=Whole(within=given_by(input)),
        )

    def read(self, state: State) -> tuple[Any, Any, int, int]:
        return state["parent"], None, state["next_batch"], state["batches"]
