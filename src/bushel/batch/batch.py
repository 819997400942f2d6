"""`batch`: its node and arguments; `core/stack.py` stacks the neighbours into one element."""

from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.arguments import whole
from bushel.core.block import Columns
from bushel.core.frozen import frozen
from bushel.core.landing import Landing
from bushel.core.naming import name_of
from bushel.core.node import Fold, Node
from bushel.core.places import droppers
from bushel.core.stack import stack
from bushel.errors import PlanError


@frozen
class BatchNode(Fold):
    """Joins `batch_size` neighbours: leaves are stacked on a new first axis.

    The last batch of an epoch is shorter, unless `drop_remainder`. A `batch_fn` gets the
    list of elements instead and returns the batch.
    """

    input: Node
    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Any]], Any] | None = None

    @property
    def group_size(self) -> int:
        return self.batch_size

    @property
    def drops_short_group(self) -> bool:
        return self.drop_remainder

    def fold(self, group: list[Any] | Columns, number: int) -> Sequence[Any]:
        if self.batch_fn is not None:
            return (self.batch_fn(group if isinstance(group, list) else group.rows()),)
        return (stack(group) if isinstance(group, list) else group.gather(),)

    def landing(self, total: int) -> Landing | None:
        return Landing(self.batch_size, total) if self.batch_fn is None else None

    def describe(self) -> str:
        drop = ", drop_remainder=True" if self.drop_remainder else ""
        return f"batch({self.batch_size}{drop})"

    @property
    def label(self) -> str:
        if self.batch_fn is None:
            return self.describe()
        return f"{self.describe()[:-1]}, batch_fn={name_of(self.batch_fn)})"


def batch_step(parent: Node, batch_size: int, drop_remainder: bool, batch_fn: Any) -> Node:
    """The step of `batch`."""
    size = whole(batch_size, "batch_size")
    if size <= 0:
        raise PlanError(f"batch_size must be positive. Got {size}.")
    if batch_fn is not None and not callable(batch_fn):
        raise TypeError(f"`batch_fn` must be a function, and is {batch_fn!r}.")
    return BatchNode(parent, size, bool(drop_remainder), batch_fn)


def batch_by_position(parent: Node, batch_size: int, drop_remainder: bool, batch_fn: Any) -> Node:
    """The step of `batch` on a random-access dataset, which must know where its elements are."""
    for step in droppers(parent):
        raise PlanError(
            f"`batch({batch_size})` cannot follow `{step.label}` on a random-access "
            "dataset: it may leave elements out, so batch 0 has no known members. Call "
            "`.to_iter_dataset()` between the two; or `.compact()`, which looks once which "
            "elements are left, and stays a random-access dataset."
        )
    return batch_step(parent, batch_size, drop_remainder, batch_fn)
