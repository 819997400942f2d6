"""The step that changes the size of batches."""

from typing import Any

import numpy as np

from bushel.batch.pack import fields
from bushel.block import first_leaf
from bushel.errors import BatchError, StateError
from bushel.frozen import frozen
from bushel.node import Machine, Node, Regroup
from bushel.tree import Path, leaves_with_paths, map_leaves, show_path


@frozen
class RebatchNode(Regroup):
    """Joins and cuts batches along their first axis."""

    input: Node
    batch_size: int
    drop_remainder: bool

    def machine(self) -> Machine:
        return _Rebatcher(self)

    def describe(self) -> str:
        drop = ", drop_remainder=True" if self.drop_remainder else ""
        return f"rebatch({self.batch_size}{drop})"


class _Rebatcher(Machine):
    def __init__(self, node: RebatchNode) -> None:
        self._node = node
        self._missing = node.batch_size
        self._start = 0
        self._pieces: list[Any] = []

    def begin(self, carried: Any) -> None:
        self._start, self.carried = carried or 0, None
        self._pieces, self._missing, self.complete = [], self._node.batch_size, False

    def add(self, element: Any) -> bool:
        size = len(first_leaf(element))
        if not size:
            raise BatchError("`rebatch` got a batch of no elements, which it cannot count with.")
        start, self._start = self._start, 0
        if start > size:
            raise StateError(
                f"this state is behind row {start} of a batch that has {size}: it belongs to other "
                "data."
            )
        stop = min(size, start + self._missing)
        if stop > start:
            if self._pieces:
                _check_same(self._pieces[0], element)
            self._pieces.append(_part(element, start, stop, size))
            self._missing -= stop - start
        if stop < size:
            self.carried = stop
            return False
        self.complete = not self._missing
        return True

    def end(self, made_before: int) -> list[Any]:
        if not self._pieces or (self._missing and self._node.drop_remainder):
            return []
        return [_joined(self._pieces)]

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        return {"parent": parent, "batch_idx": carried or 0}

    def read(self, state: Any) -> tuple[Any, Any, int, int]:
        parent, used = fields(state, "parent", "batch_idx")
        return parent, used, 0, 0


def _part(batch: Any, start: int, stop: int, size: int) -> Any:
    if not start and stop == size:
        return batch
    return map_leaves(lambda leaf: leaf[start:stop], batch)


def _joined(pieces: list[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    # By their paths: dicts may have their keys in another order.
    tables = [dict(leaves_with_paths(piece)) for piece in pieces]
    joined = iter([np.concatenate([table[path] for table in tables]) for path in tables[0]])
    return map_leaves(lambda _: next(joined), pieces[0])


def _check_same(first: Any, batch: Any) -> None:
    one, other = dict(leaves_with_paths(first)), dict(leaves_with_paths(batch))
    if one.keys() != other.keys():
        raise BatchError(
            "`rebatch` joins batches of one structure, and these differ: one has "
            f"{_names(one)}, another one {_names(other)}."
        )


def _names(table: dict[Path, Any]) -> str:
    return ", ".join(map(show_path, table))
