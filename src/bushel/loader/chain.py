"""Makes the nodes of a `DataLoader` from its arguments; refuses operations that cannot work."""

import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from bushel.batch.batch import BatchNode
from bushel.checkpoint.signed import Pipeline
from bushel.core.node import Each, Node
from bushel.core.places import ToStreamNode, WorkersNode
from bushel.core.positions import Positions
from bushel.core.rng import KeyedGenerators
from bushel.errors import PlanError, SourceError
from bushel.loader import operations as legacy
from bushel.loader.operation_step import OperationNode
from bushel.loader.recipe import Recipe
from bushel.on_error.policy import guarded
from bushel.order.sampled import (
    ColumnRows,
    GlobalIndexNode,
    RecordMapWithIndexNode,
    RecordRandomMapNode,
    SampledNode,
    SamplerOrder,
)
from bushel.samplers import IndexSampler, SequentialSampler
from bushel.sources.memory import ColumnsNode, source_node
from bushel.transforms import base as transforms
from bushel.transforms.filter import FilterNode
from bushel.transforms.flat_map import FlatMapNode
from bushel.transforms.map import MapBatchesNode, MapNode


def check_operations(operations: Sequence[Any]) -> None:
    """Refuses operations that would certainly fail later, before anything is read."""
    expanded = False
    for operation in operations:
        if isinstance(operation, type):
            raise TypeError(
                f"operations must be objects, and one is the class {operation.__name__}: write "
                f"`{operation.__name__}(...)`."
            )
        if _is_random(operation):
            if expanded:
                raise PlanError(
                    f"{type(operation).__name__} cannot follow a FlatMap in a DataLoader: the "
                    "new elements have no random generators. Put it first, or use "
                    "`MapDataset`."
                )
        elif isinstance(operation, transforms.FlatMap):
            expanded = not isinstance(operation, transforms.Map) or expanded
        elif not isinstance(operation, _KNOWN) and not callable(operation):
            raise TypeError(
                "operations must be objects of the classes in `bushel.transforms` or "
                f"functions from Records to Records, and one is {operation!r}."
            )


class Chain:
    """The nodes of a loader, and what its states say about them."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def node(self) -> Node:
        """Makes the chain: operations that depend on the position alone are read by position."""
        operations = list(self._recipe.operations)
        node = self._records()
        # A record's generator continues from one random map to the next.
        randomness: Any = KeyedGenerators(self._seed) if self._seed is not None else _NoGenerators()
        while operations and isinstance(step := self._step(node, operations[0], randomness), Each):
            node = step
            operations.pop(0)
        node = ToStreamNode(node, self._recipe.read_options, allow_nones=True)
        # After all operations on single records.
        if self._recipe.on_error.policy != "raise":
            while operations and not isinstance(operations[0], _IN_BATCHES):
                if _is_own(operations[0]):
                    break
                node = self._step(node, operations.pop(0), randomness)
            node = guarded(node, self._recipe.on_error)
        for operation in operations:
            node = self._step(node, operation, randomness)
        return WorkersNode(node, self._recipe.worker_options, None, self._recipe.workers)

    def _step(self, input: Node, operation: Any, randomness: Any) -> Node:
        # Beside a user's own operation, which sees changes of the metadata, the older operations
        # run in their own form.
        if not (self._has_own_operations and isinstance(operation, _OVER_RECORDS)):
            step = _step(input, operation, randomness, self._seed)
            if step is not None:
                return step
        return OperationNode(input, operation)

    @property
    def _has_own_operations(self) -> bool:
        return any(map(_is_own, self._recipe.operations))

    @property
    def _seed(self) -> int | None:
        seed = getattr(self._recipe.sampler, "_seed", None)
        return seed if isinstance(seed, int) else None

    def _records(self) -> Node:
        shards, count = (
            self._recipe.shard_options,
            self._num_steps() // self._recipe.shard_options.shard_count,
        )
        index, stride = shards.shard_index, shards.shard_count
        if not self._knows_keys or self._needs_metadata:
            by_block = self._has_known_sampler
            return SampledNode(self._rows(), self._recipe.sampler, index, stride, count, by_block)
        order = SamplerOrder(
            source_node(self._recipe.data_source), self._recipe.sampler, index, stride, count
        )
        return GlobalIndexNode(order, index, stride)

    @property
    def _knows_keys(self) -> bool:
        """Whether the keys come from bushel, and are positions in the source."""
        return self._has_known_sampler and hasattr(self._recipe.data_source, "__len__")

    @property
    def _has_known_sampler(self) -> bool:
        return type(self._recipe.sampler) in (IndexSampler, SequentialSampler)

    @property
    def _needs_metadata(self) -> bool:
        return self._has_own_operations or sum(map(_is_random, self._recipe.operations)) > 1

    def _rows(self) -> Any:
        """The source as records by key, one at a time."""
        try:
            node = source_node(self._recipe.data_source)
        except SourceError:
            if self._knows_keys:
                raise
            # The meaning of a sampler's keys is up to the source.
            return self._recipe.data_source
        return ColumnRows(node) if isinstance(node, ColumnsNode) else self._recipe.data_source

    def _num_steps(self) -> int:
        if hasattr(self._recipe.sampler, "__len__"):
            return len(self._recipe.sampler)
        return _count_steps(self._recipe.sampler)

    def describe_shard(self) -> str:
        return (
            f"{self._recipe.shard_options.shard_index} of {self._recipe.shard_options.shard_count}"
        )

    def describe_operations(self) -> Pipeline:
        described: Pipeline = [_describe(operation) for operation in self._recipe.operations]
        if self._recipe.on_error.policy != "raise":
            described.append(f"on_error({self._recipe.on_error.policy!r})")
        return described


class _NoGenerators:
    """The generators of a sampler without a seed."""

    def results(
        self, function: Callable[..., Any], rows: Iterable[Any], positions: Positions
    ) -> Iterable[Any]:
        return map(function, rows, repeat(None))


def _step(input: Node, operation: Any, randomness: Any, seed: int | None) -> Node | None:
    """The node of an operation, or None for a function over Records."""
    if isinstance(operation, transforms.Map):
        return MapNode(input, operation.map, operation, skips_none=False)
    if isinstance(operation, transforms.RandomMap):
        return RecordRandomMapNode(
            input, operation.random_map, operation, randomness, seed, skips_none=False
        )
    if isinstance(operation, transforms.TfRandomMap):
        return RecordRandomMapNode(
            input, operation.np_random_map, operation, randomness, seed, skips_none=False
        )
    if isinstance(operation, transforms.MapWithIndex):
        return RecordMapWithIndexNode(input, operation.map_with_index, operation, skips_none=False)
    if isinstance(operation, transforms.FlatMap):
        return FlatMapNode(input, operation.flat_map, operation)
    if isinstance(operation, transforms.Filter):
        return FilterNode(input, operation.filter, operation)
    if isinstance(operation, transforms.MapBatches):
        return MapBatchesNode(input, operation.map_batches, operation)
    if isinstance(operation, _IN_BATCHES):
        size = operator.index(operation.batch_size)
        return BatchNode(input, size, operation.drop_remainder, operation.batch_fn)
    if isinstance(operation, legacy.MapOperation):
        return MapNode(input, operation.map_function, operation.map_function, skips_none=False)
    if isinstance(operation, legacy.RandomMapOperation):
        function = operation.random_map_function
        return RecordRandomMapNode(input, function, function, randomness, seed, skips_none=False)
    if isinstance(operation, legacy.FilterOperation):
        return FilterNode(input, operation.condition_function, operation.condition_function)
    return None


_IN_BATCHES = (transforms.Batch, legacy.BatchOperation)
_OVER_RECORDS = (legacy.MapOperation, legacy.RandomMapOperation, legacy.FilterOperation)
_RANDOM = (transforms.RandomMap, transforms.TfRandomMap, legacy.RandomMapOperation)
_KNOWN = (
    *_RANDOM,
    transforms.Map,
    transforms.MapWithIndex,
    transforms.FlatMap,
    transforms.Filter,
    transforms.MapBatches,
    transforms.Batch,
    legacy.BatchOperation,
    legacy.MapOperation,
    legacy.FilterOperation,
)


def _is_random(operation: Any) -> bool:
    return isinstance(operation, _RANDOM) and not isinstance(operation, transforms.Map)


def _is_own(operation: Any) -> bool:
    return not isinstance(operation, _KNOWN)


def _describe(operation: Any) -> str:
    if isinstance(operation, _IN_BATCHES):
        drop = ", drop_remainder=True" if operation.drop_remainder else ""
        return f"Batch({operation.batch_size}{drop})"
    return getattr(operation, "__name__", None) or type(operation).__name__


def _count_steps(sampler: Any) -> int:
    """The length of a sampler that has none: the first step that raises IndexError."""
    low, high = 0, sys.maxsize
    while low < high:
        middle = (low + high) // 2
        try:
            sampler[middle]
        except IndexError:
            high = middle
        else:
            low = middle + 1
    return low
