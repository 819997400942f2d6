"""`bucket_by_length`: batches of elements of similar lengths.

Elements go into buckets by their length, and a full bucket becomes a batch. The elements in the
buckets are not part of a state, but are read again. Therefore all buckets are emptied after a fixed
number of elements, the window.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from bushel.batch.length_of import Length, LengthOf, check_length
from bushel.batch.pad import Padding, padding_of, with_lengths
from bushel.batch.regroup import Machine, Regroup
from bushel.core.arguments import positive, whole
from bushel.core.frozen import frozen
from bushel.core.node import Node
from bushel.core.state import State
from bushel.core.state_fields import Fields, Inner, Whole, given_by
from bushel.core.stream import Stream
from bushel.errors import BatchError, PlanError


@frozen
class BucketNode(Regroup):
    """Batches elements of similar lengths, in the order in which their buckets are full."""

    input: Node
    # The greatest length in each bucket, except perhaps the last, which may have no bound.
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
    """One window is a group."""

    makes_batches = True

    def __init__(self, node: BucketNode) -> None:
        self._node = node
        # The lengths and elements of the window.
        self._added: list[tuple[int, Any]] = []
        # By number in the window: the elements in the buckets, and the batches in order, each with
        # its bucket.
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


def bucket_step(
    parent: Node,
    boundaries: Sequence[int],
    batch_sizes: Sequence[int] | int | None,
    max_tokens: int | None,
    length: Length,
    pad_to_multiple_of: int,
    pad_to_boundary: bool,
    padding: Any,
    window: int,
    drop_remainder: bool,
    lengths_as: str | None,
) -> Node:
    """Makes the step of `bucket_by_length`, which explains it."""
    edges = tuple(whole(edge, "a boundary") for edge in boundaries)
    if not edges or edges[0] < 0 or any(b <= a for a, b in pairwise(edges)):
        raise PlanError(
            "`bucket_by_length`: boundaries must be increasing numbers, at least one, and are "
            f"{list(edges)}."
        )
    pads = padding_of(padding, whole(pad_to_multiple_of, "pad_to_multiple_of"), "bucket_by_length")
    if (batch_sizes is None) == (max_tokens is None):
        raise PlanError(
            "`bucket_by_length` takes either `batch_sizes` or `max_tokens`, and got "
            f"batch_sizes={batch_sizes!r} and max_tokens={max_tokens!r}."
        )
    if max_tokens is not None:
        sizes = tuple(whole(max_tokens, "max_tokens") // max(1, pads.up(edge)) for edge in edges)
        if not all(size > 0 for size in sizes):
            raise PlanError(
                f"`bucket_by_length`: max_tokens={max_tokens} holds not even one element of "
                f"{pads.up(edges[-1])}, to which the last bucket may be padded."
            )
    else:
        sizes = _sizes(batch_sizes, len(edges))
    return BucketNode(
        parent,
        edges,
        sizes,
        LengthOf(check_length(length, "bucket_by_length"), "bucket_by_length"),
        pads,
        bool(pad_to_boundary),
        positive("bucket_by_length", "window", window),
        bool(drop_remainder),
        lengths_as,
    )


def _sizes(batch_sizes: Any, buckets: int) -> tuple[int, ...]:
    if isinstance(batch_sizes, Sequence):
        sizes = tuple(whole(size, "a batch size") for size in batch_sizes)
    else:
        sizes = (whole(batch_sizes, "batch_sizes"),) * buckets
    if len(sizes) not in (buckets, buckets + 1) or not all(size > 0 for size in sizes):
        raise PlanError(
            f"`bucket_by_length`: with {buckets} boundaries there are {buckets} positive "
            f"batch_sizes, or one more for what is longer, and not {list(sizes)}."
        )
    return sizes
