"""Maps: plain, with the position, with random numbers, and of whole blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from bushel.block import Block, Columns, is_stackable, join
from bushel.errors import BatchError
from bushel.frozen import frozen
from bushel.naming import name_of
from bushel.node import Each, Node, failed
from bushel.positions import Positions
from bushel.stack import stack
from bushel.transforms.function import any_none, apply_to_rows
from bushel.tree import leaves_with_paths, map_leaves, show_path


@frozen
class MapNode(Each):
    """Applies a function to each element."""

    input: Node
    function: Callable[[Any], Any]
    transform: Any
    # Datasets pass None by: it stands for a dropped element. Loaders treat it as a value.
    skips_none: bool = True

    def apply(self, block: Block) -> Block:
        function = self.function
        return apply_to_rows(self, lambda rows, _: map(function, rows), block, self.skips_none)

    def describe(self) -> str:
        return "map"

    @property
    def label(self) -> str:
        return f"map({name_of(self.transform)})"


@frozen
class MapWithIndexNode(Each):
    """Applies a function to the position and the element."""

    input: Node
    function: Callable[[int, Any], Any]
    transform: Any
    skips_none: bool = True
    uses_positions = True

    def apply(self, block: Block) -> Block:
        function = self.function
        return apply_to_rows(
            self,
            lambda rows, positions: map(function, positions.tolist(), rows),
            block,
            self.skips_none,
        )

    def describe(self) -> str:
        return "map_with_index"

    @property
    def label(self) -> str:
        return f"map_with_index({name_of(self.transform)})"


class Randomness(Protocol):
    """Where the generators of a block's elements come from."""

    def each(self, positions: Iterable[int]) -> Iterable[Any]: ...


@frozen
class RandomMapNode(Each):
    """Applies a function to the element and a generator that belongs to its position."""

    input: Node
    function: Callable[[Any, np.random.Generator], Any]
    transform: Any
    randomness: Randomness
    seed: int | None
    skips_none: bool = True
    uses_positions = True
    counter = "index_for_rng"

    def apply(self, block: Block) -> Block:
        function, randomness, metadata = self.function, self.randomness, block.metadata

        def results(rows: Sequence[Any], positions: Positions) -> Iterable[Any]:
            if metadata is not None:
                # The records brought their own generators, which go on where the last
                # random map left them.
                return map(function, rows, [record.rng for record in metadata])
            return map(function, rows, randomness.each(positions.tolist()))

        return apply_to_rows(self, results, block, self.skips_none)

    def describe(self) -> str:
        return f"random_map(seed={self.seed})"

    @property
    def label(self) -> str:
        return f"random_map({name_of(self.transform)}, seed={self.seed})"


@frozen
class MapBatchesNode(Each):
    """Applies a function to the columns of a whole block."""

    input: Node
    function: Callable[[Any], Any]
    transform: Any

    def apply(self, block: Block) -> Block:
        values = block.values
        if not len(block):
            return block
        if isinstance(values, list) and any_none(values):
            return self._apply_around_nones(block)
        try:
            columns = stack(values) if isinstance(values, list) else values.gather()
            changed = _owned(self.function(columns), len(block), self)
        except Exception as error:
            if len(block) == 1:
                return Block([], block.positions[:0], failed(error, self, int(block.positions[0])))
            return self._apply_by_halves(block)
        made = Columns(changed, None, len(block))
        values = made if is_stackable(changed) else made.rows()
        return Block(values, block.positions, block.failure, block.metadata)

    def _apply_by_halves(self, block: Block) -> Block:
        """Finds the element that fails; the function is element-wise, so it may be cut."""
        middle = len(block) // 2
        first = self.apply(block.part(0, middle))
        if first.failure is not None:
            return first
        rest = block.part(middle, len(block))
        rest.failure = block.failure
        return join([first, self.apply(rest)])

    def _apply_around_nones(self, block: Block) -> Block:
        rows = block.rows()
        present = np.array([i for i, row in enumerate(rows) if row is not None], dtype=np.int64)
        changed = self.apply(Block([rows[i] for i in present.tolist()], block.positions[present]))
        failure = changed.failure
        end = len(rows) if failure is None else int(present[len(changed)])
        out: list[Any] = [None] * end
        for index, row in zip(present.tolist(), changed.rows(), strict=False):
            out[index] = row
        metadata = None if block.metadata is None else block.metadata[:end]
        return Block(out, block.positions[:end], failure or block.failure, metadata)

    def describe(self) -> str:
        return "map_batches"

    @property
    def label(self) -> str:
        return f"map_batches({name_of(self.transform)})"


def _is_plain_table(columns: Any, size: int) -> bool:
    """Whether this is a dict of different arrays, all of them right as they are.

    Nearly always it is, and this is much faster than the long way.
    """
    if type(columns) is not dict or not columns:
        return False
    for leaf in columns.values():
        if type(leaf) is not np.ndarray or leaf.base is not None or leaf.shape[:1] != (size,):
            return False
    return len({id(leaf) for leaf in columns.values()}) == len(columns)


def _owned(columns: Any, size: int, node: Node) -> Any:
    """Checks what a function made of columns, and copies what it does not own.

    A view of something else, or one array in two places, would let a user who changes a
    batch change more than that.
    """
    if _is_plain_table(columns, size):
        return columns
    seen: set[int] = set()
    leaves = list(leaves_with_paths(columns))
    if not leaves:
        raise BatchError(f"the function of `{node.label}` returned {columns!r}: no columns.")
    for path, leaf in leaves:
        shape = getattr(leaf, "shape", None)
        if not shape or shape[0] != size:
            what = f"shape {shape}" if shape is not None else f"a {type(leaf).__name__}"
            raise BatchError(
                f"the function of `{node.label}` got columns of {size} elements and returned "
                f"{what} at {show_path(path)}. It must return arrays with the same leading "
                "axis: one row for each row it got."
            )

    def own(leaf: Any) -> Any:
        array = np.asarray(leaf)
        if array.base is not None or array is not leaf or id(array) in seen:
            array = array.copy()
        seen.add(id(array))
        return array

    return map_leaves(own, columns)
