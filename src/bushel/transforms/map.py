"""`map`, `map_with_index`, `random_map` and `map_batches`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol

import numpy as np

from bushel.core.block import Block, Columns, is_stackable, is_stackable_array, join
from bushel.core.frozen import frozen
from bushel.core.naming import name_of
from bushel.core.node import ONE_LANE, Columnwise, Node, OneByOne, failed
from bushel.core.positions import Positions
from bushel.core.stack import stack
from bushel.core.tree import leaves_with_paths, map_leaves, show_path
from bushel.errors import BatchError
from bushel.transforms.base import Map, MapBatches, MapWithIndex
from bushel.transforms.function import any_none, apply_to_rows, function_of, identity_of


@frozen
class MapNode(OneByOne):
    """Applies a function to each element."""

    input: Node
    function: Callable[[Any], Any]
    transform: Any
    skips_none: bool = True
    called_with = ("element",)

    def apply(self, block: Block) -> Block:
        return apply_to_rows(self, self.results, block, self.skips_none)

    def results(self, rows: Iterable[Any], positions: Positions) -> Iterable[Any]:
        return map(self.function, rows)

    @property
    def likeness(self) -> Hashable:
        return MapNode, identity_of(self.function), self.skips_none

    def describe(self) -> str:
        return "map"

    @property
    def label(self) -> str:
        return f"map({name_of(self.transform)})"


@frozen
class MapWithIndexNode(OneByOne):
    """Applies a function to the position and the element."""

    input: Node
    function: Callable[[int, Any], Any]
    transform: Any
    skips_none: bool = True
    lane: tuple[int, int] = ONE_LANE
    uses_positions = True
    called_with = ("index", "element")

    def apply(self, block: Block) -> Block:
        return apply_to_rows(self, self.results, block, self.skips_none)

    def results(self, rows: Iterable[Any], positions: Positions) -> Iterable[Any]:
        return map(self.function, positions.tolist(), rows)

    @property
    def likeness(self) -> Hashable:
        return MapWithIndexNode, identity_of(self.function), self.skips_none

    def describe(self) -> str:
        return "map_with_index"

    @property
    def label(self) -> str:
        return f"map_with_index({name_of(self.transform)})"


class Randomness(Protocol):
    """Where the generators of a block's elements come from."""

    def results(
        self, function: Callable[..., Any], rows: Iterable[Any], positions: Positions
    ) -> Iterable[Any]: ...


@frozen
class RandomMapNode(OneByOne):
    """Applies a function to the element and a generator that belongs to its position."""

    input: Node
    function: Callable[[Any, np.random.Generator], Any]
    transform: Any
    randomness: Randomness
    seed: int | None
    skips_none: bool = True
    called_with = ("element", "rng")
    lane: tuple[int, int] = ONE_LANE
    uses_positions = True
    counter = "index_for_rng"

    def apply(self, block: Block) -> Block:
        metadata = block.metadata
        if metadata is None:
            return apply_to_rows(self, self.results, block, self.skips_none)
        # The records brought their own generators, which go on where the last random map
        # left them.
        generators = [record.rng for record in metadata]
        return apply_to_rows(
            self, lambda rows, _: map(self.function, rows, generators), block, self.skips_none
        )

    def results(self, rows: Iterable[Any], positions: Positions) -> Iterable[Any]:
        return self.randomness.results(self.function, rows, positions)

    def describe(self) -> str:
        return f"random_map(seed={self.seed})"

    @property
    def label(self) -> str:
        return f"random_map({name_of(self.transform)}, seed={self.seed})"


@frozen
class MapBatchesNode(Columnwise):
    """Applies a function to the columns of a whole block."""

    input: Node
    function: Callable[[Any], Any]
    transform: Any
    called_with = ("columns",)

    def apply(self, block: Block) -> Block:
        values = block.values
        if not len(block):
            return block
        if isinstance(values, list) and any_none(values):
            return self._apply_around_nones(block)
        try:
            columns = stack(values) if isinstance(values, list) else values.gather()
            values = self.change(columns, len(block))
        except Exception as error:
            if len(block) == 1:
                return Block([], block.positions[:0], failed(error, self, int(block.positions[0])))
            return self._apply_by_halves(block)
        return Block(values, block.positions, block.failure, block.metadata)

    def change(self, columns: Any, size: int) -> Columns | list[Any]:
        """Calls the function and checks what it returns."""
        changed = self.function(columns)
        if _is_plain_table(changed, size):
            return Columns(changed, None, size)
        made = Columns(_owned(changed, size, self), None, size)
        return made if is_stackable(made.tree) else made.rows()

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
        if type(leaf) is not np.ndarray or leaf.base is not None or not is_stackable_array(leaf):
            return False
        if not leaf.ndim or len(leaf) != size:
            return False
    return len(set(map(id, columns.values()))) == len(columns)


def _owned(columns: Any, size: int, node: Node) -> Any:
    """Checks what a function made of columns, and copies what it does not own.

    A view of something else, or one array in two places, would let a user who changes a
    batch change more than that.
    """
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


def map_step(parent: Node, transform: Any) -> Node:
    """The step of `map`."""
    return MapNode(parent, function_of(transform, Map, "map", "map"), transform)


def map_with_index_step(parent: Node, transform: Any) -> Node:
    """The step of `map_with_index`."""
    function = function_of(transform, MapWithIndex, "map_with_index", "map_with_index")
    return MapWithIndexNode(parent, function, transform)


def map_batches_step(parent: Node, transform: Any) -> Node:
    """The step of `map_batches`."""
    function = function_of(transform, MapBatches, "map_batches", "map_batches")
    return MapBatchesNode(parent, function, transform)
