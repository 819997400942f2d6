"""`unbatch`: makes each row of a batch an element again."""

from collections.abc import Sequence
from typing import Any

from bushel.batch.batch import BatchNode
from bushel.core.arguments import positive
from bushel.core.block import Failure, unstack
from bushel.core.frozen import frozen
from bushel.core.node import Drop, Each, Expand, Node, Order, Place
from bushel.core.places import droppers
from bushel.core.positions import Positions
from bushel.core.tree import leaves_with_paths, show_path
from bushel.errors import BatchError, PlanError
from bushel.order.present import PresentNode
from bushel.order.slice import SliceNode
from bushel.transforms.function import collect


@frozen
class UnbatchNode(Expand):
    """Makes an element of each row of a batch; its arrays are views of the batch's."""

    input: Node
    # The number of rows in each batch, and in the last one of an epoch; None for any number.
    size: int | None = None
    last: int | None = None

    @property
    def fan_out(self) -> int:
        return self.size or 1

    def expand(
        self, rows: Sequence[Any], positions: Positions
    ) -> tuple[list[Sequence[Any]], Failure | None]:
        return collect(
            self,
            lambda rows, positions: map(self._rows_of, rows, positions.tolist()),
            rows,
            positions,
        )

    def _rows_of(self, batch: Any, position: int) -> Sequence[Any]:
        if batch is None:
            return ()
        size = count_rows(batch)
        expected = self._size_at(position)
        if expected is not None and size != expected:
            raise BatchError(
                f"`unbatch` expects {expected} rows in the batch at position {position}, and it "
                f"has {size}. Where batches differ in size, call `.to_iter_dataset()` before "
                "`unbatch()`."
            )
        return unstack(batch, size)

    def _size_at(self, position: int) -> int | None:
        if self.size is None or self.last == self.size:
            return self.size
        batches = self.input.length()
        return self.last if position % batches == batches - 1 else self.size

    def describe(self) -> str:
        return f"unbatch({self.size or ''})"

    @property
    def label(self) -> str:
        return "unbatch()"


def count_rows(batch: Any) -> int:
    """The number of rows in a batch, which must be the same in all of its arrays.

    >>> import numpy as np
    >>> count_rows({"x": np.zeros((3, 2)), "y": np.zeros(3)})
    3
    """
    rows: int | None = None
    for path, leaf in leaves_with_paths(batch):
        shape = getattr(leaf, "shape", None)
        if not shape:
            raise BatchError(
                f"`unbatch` takes batches apart along the first axis of their arrays, and "
                f"{show_path(path)} is a {type(leaf).__name__} that has none."
            )
        if rows is not None and shape[0] != rows:
            raise BatchError(
                f"`unbatch` needs arrays with the same number of rows, but {show_path(path)} "
                f"has {shape[0]} and another one has {rows}."
            )
        rows = shape[0]
    if rows is None:
        raise BatchError(f"`unbatch` got {batch!r:.100}, in which there is no array.")
    return rows


def batch_sizes(node: Node) -> tuple[int, int] | None:
    """The number of rows in batches of a dataset, and in the last; None if unknown.

    Steps after `batch` are assumed to keep the number of rows.
    """
    in_order = True
    while not isinstance(node, BatchNode):
        if not isinstance(node, (Each, Drop, Place, Order)):
            return None
        in_order = in_order and not isinstance(node, Order)
        node = node.input
    size, rest = node.batch_size, node.input.length() % node.batch_size
    if not rest or node.drop_remainder:
        return size, size
    return (size, rest) if in_order else None


def unbatch_by_position(parent: Node, batch_size: int | None) -> Node:
    """The step of `unbatch` on a random-access dataset, where batches need a known size."""
    size, last = _sizes_of_batches(parent, batch_size)
    node: Node = UnbatchNode(parent, size, last)
    if last < size:
        node = SliceNode(node, 0, (parent.length() - 1) * size + last, 1)
    return node if any(droppers(parent)) else PresentNode(node, "`unbatch()` found no row here.")


def _sizes_of_batches(parent: Node, batch_size: int | None) -> tuple[int, int]:
    """The number of rows in batches, and in the last one."""
    if batch_size is not None:
        size = positive("unbatch", "batch_size", batch_size)
        return size, size
    known = batch_sizes(parent)
    if known is None:
        raise PlanError(
            f"`unbatch()` on a random-access dataset needs batches of one known size, and after "
            f"`{parent.label}` it is not known, or the last one is shorter and may be anywhere. "
            "Write `batch(..., drop_remainder=True)`, or `unbatch(batch_size)` where all batches "
            "have it; or call `.to_iter_dataset()` before `unbatch()`."
        )
    return known
