"""DataLoader: source, sampler and operations; Grain's older face, built as a chain."""

import json
import operator
import sys
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from bushel.batch.batch import BatchNode
from bushel.checkpoint.differences import differing_fields, differing_steps
from bushel.checkpoint.state import VERSION, Pipeline, check_depth, is_pipeline
from bushel.core.machine import available_cores
from bushel.core.node import Each, Node
from bushel.core.options import MultiprocessingOptions, OnError, ReadOptions
from bushel.core.places import ToStreamNode, WorkersNode
from bushel.core.rng import KeyedGenerators
from bushel.core.state import State, copy_state, innermost_index
from bushel.deliver.iterator import StreamIterator, load_from, save_into
from bushel.deliver.open import open_stream
from bushel.errors import PlanError, SourceError, StateError, StateRangeError
from bushel.loader import operations as legacy
from bushel.loader.operation import OperationNode
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
from bushel.sharding import NoSharding, ShardOptions
from bushel.sources.memory import ColumnsNode, source_node
from bushel.transforms import base as transforms
from bushel.transforms.filter import FilterNode
from bushel.transforms.flat_map import FlatMapNode
from bushel.transforms.map import MapBatchesNode, MapNode

if TYPE_CHECKING:
    # Nothing in the arguments of a loader says what its elements are (see dataset.py).
    import typing_extensions

    T = typing_extensions.TypeVar("T", default=Any)
else:
    T = TypeVar("T")


class DataLoader(Generic[T]):
    """Reads records in a sampler's order and applies operations to them.

    >>> from bushel.sources import RangeDataSource
    >>> loader = DataLoader(
    ...     data_source=RangeDataSource(0, 6, 1),
    ...     sampler=IndexSampler(6, shuffle=True, seed=0, num_epochs=1),
    ...     operations=[transforms.Batch(4)],
    ... )
    >>> [batch.tolist() for batch in loader]
    [[0, 4, 1, 2], [5, 3]]

    Args:
      operations: objects of the classes in `bushel.transforms`, or functions from an
        iterator of Records to another.
      worker_count: worker processes; the stream does not depend on it, and neither do its
        states. 0 is none, and None is one less than the CPUs that this process may use.
      worker_buffer_size: blocks that each worker may have waiting beside the one it is at.
      shard_options: which steps of the sampler this loader takes; the sampler's by default.
      read_options: how many threads may read ahead, in each worker.
      hang_timeout: seconds without progress after which a worker is said to hang (see
        `MultiprocessingOptions`).
      on_hang: "wait" for it, "replace" it, or "raise".
      on_error: what becomes of records that cannot be read, or for which an operation before
        the first batch fails; they are raised by default.
    """

    def __init__(
        self,
        *,
        data_source: Any,
        sampler: Any,
        operations: Sequence[Any] = (),
        worker_count: int | None = 0,
        worker_buffer_size: int = 1,
        shard_options: ShardOptions | None = None,
        read_options: ReadOptions | None = None,
        enable_profiling: bool = False,
        hang_timeout: float | None = None,
        on_hang: str = "wait",
        on_error: OnError | None = None,
    ) -> None:
        worker_count = _count_workers(worker_count)
        if not hasattr(data_source, "__getitem__"):
            raise SourceError(
                f"`data_source` needs `__getitem__`, and {type(data_source).__name__} has none."
            )
        if not hasattr(sampler, "__getitem__"):
            raise TypeError(
                f"`sampler` needs `__getitem__(step)`, and {type(sampler).__name__} has none."
            )
        if shard_options is None:
            shard_options = getattr(sampler, "_shard_options", None)
        if shard_options is None:
            raise PlanError(
                f"DataLoader does not know which part of the data to read: pass `shard_options` "
                f"(`NoSharding()` for all of it), since {type(sampler).__name__} has none."
            )
        if not isinstance(shard_options, ShardOptions):
            raise TypeError(f"shard_options must be `ShardOptions`, and is {shard_options!r}.")
        if read_options is not None and not isinstance(read_options, ReadOptions):
            raise TypeError(f"read_options must be `ReadOptions`, and is {read_options!r}.")
        if not isinstance(operations, Iterable):
            raise TypeError(f"operations must be a list, and is {operations!r}: write `[...]`.")
        if on_error is not None and not isinstance(on_error, OnError):
            raise TypeError(
                f"`on_error` must be `OnError('skip')` or the like, and is {on_error!r}."
            )
        self._on_error = on_error or OnError("raise")
        self._data_source = data_source
        self._sampler = sampler
        self._operations = tuple(operations)
        self._shard_options = shard_options
        self._read_options = read_options or ReadOptions()
        if operator.index(worker_buffer_size) < 0:
            raise PlanError(
                f"worker_buffer_size must not be negative, and is {worker_buffer_size}."
            )
        self._worker_options = MultiprocessingOptions(
            worker_count, worker_buffer_size, enable_profiling, hang_timeout, on_hang
        )
        self._check_operations()
        # Where the worker processes stay between two passes.
        self._home: list[Any] = []
        if self._worker_options.num_workers:
            from bushel.workers.home import Home  # Only for those who want them.

            self._home.append(Home.of_a_new_dataset())

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """The worker count and buffer that the loader was built with."""
        return self._worker_options

    def __iter__(self) -> "DataLoaderIterator[T]":
        """Starts a pass of its own."""
        return DataLoaderIterator(self, None)

    def _check_operations(self) -> None:
        """Refuses what can be known to fail before anything is read."""
        expanded = False
        for operation in self._operations:
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

    def _node(self) -> Node:
        """Describes the chain: what can be said of a position alone is read by position."""
        operations = list(self._operations)
        node = self._records()
        # A generator of one record goes on from one random map to the next.
        randomness: Any = KeyedGenerators(self._seed) if self._seed is not None else _Nothing()
        while operations and isinstance(step := self._step(node, operations[0], randomness), Each):
            node = step
            operations.pop(0)
        node = ToStreamNode(node, self._read_options, allow_nones=True)
        # Behind all that works on single records.
        if self._on_error.policy != "raise":
            while operations and not isinstance(operations[0], _IN_BATCHES):
                if _is_own(operations[0]):
                    break
                node = self._step(node, operations.pop(0), randomness)
            node = guarded(node, self._on_error)
        for operation in operations:
            node = self._step(node, operation, randomness)
        return WorkersNode(node, self._worker_options, None, self._home)

    def _step(self, input: Node, operation: Any, randomness: Any) -> Node:
        # Beside an operation of the user's own, which sees what they do to the metadata, the
        # older operations run as what they are.
        if not (self._has_own_operations and isinstance(operation, _OVER_RECORDS)):
            step = _step(input, operation, randomness, self._seed)
            if step is not None:
                return step
        return OperationNode(input, operation)

    @property
    def _has_own_operations(self) -> bool:
        return any(map(_is_own, self._operations))

    @property
    def _seed(self) -> int | None:
        seed = getattr(self._sampler, "_seed", None)
        return seed if isinstance(seed, int) else None

    def _records(self) -> Node:
        shards, count = self._shard_options, self._num_steps() // self._shard_options.shard_count
        index, stride = shards.shard_index, shards.shard_count
        if not self._knows_keys or self._needs_metadata:
            by_block = self._has_known_sampler
            return SampledNode(self._rows(), self._sampler, index, stride, count, by_block)
        order = SamplerOrder(source_node(self._data_source), self._sampler, index, stride, count)
        return GlobalIndexNode(order, index, stride)

    @property
    def _knows_keys(self) -> bool:
        """Whether the keys are bushel's own, and positions in the source."""
        return self._has_known_sampler and hasattr(self._data_source, "__len__")

    @property
    def _has_known_sampler(self) -> bool:
        return type(self._sampler) in (IndexSampler, SequentialSampler)

    @property
    def _needs_metadata(self) -> bool:
        return self._has_own_operations or sum(map(_is_random, self._operations)) > 1

    def _rows(self) -> Any:
        """The source, as something that gives one record for each key."""
        try:
            node = source_node(self._data_source)
        except SourceError:
            if self._knows_keys:
                raise
            # What a sampler's keys mean to the source is between the two.
            return self._data_source
        return ColumnRows(node) if isinstance(node, ColumnsNode) else self._data_source

    def _num_steps(self) -> int:
        if hasattr(self._sampler, "__len__"):
            return len(self._sampler)
        return _count_steps(self._sampler)

    def _describe_shard(self) -> str:
        return f"{self._shard_options.shard_index} of {self._shard_options.shard_count}"

    def _describe_operations(self) -> Pipeline:
        described: Pipeline = [_describe(operation) for operation in self._operations]
        if self._on_error.policy != "raise":
            described.append(f"on_error({self._on_error.policy!r})")
        return described


class DataLoaderIterator(Generic[T]):
    """Iterator over a loader; its state is JSON in bytes."""

    def __init__(
        self, data_loader: DataLoader[T], state: bytes | None, validate_state: bool = True
    ) -> None:
        self._data_loader = data_loader
        stream = open_stream(data_loader._node())
        self._iterator: StreamIterator[T] = StreamIterator(stream, [])
        if state is not None:
            self._restore(_decode(state), validate_state)

    def __iter__(self) -> "DataLoaderIterator[T]":
        return self

    def __next__(self) -> T:
        return next(self._iterator)

    def get_state(self) -> bytes:
        """The position, with what identifies sampler, source and operations, as JSON."""
        return json.dumps(self.state_dict(), indent=4).encode()

    def state_dict(self) -> dict[str, Any]:
        """The same as a dict, under the name that torch's stateful loaders give it."""
        loader = self._data_loader
        shards = loader._shard_options
        state = self._iterator._state()
        taken = innermost_index(state)
        last_seen = shards.shard_index + (taken - 1) * shards.shard_count
        return {
            "version": 2,
            "last_seen_indices": {"0": last_seen},
            "last_worker_index": -1,
            "worker_count": 0,
            "sampler": repr(loader._sampler),
            "data_source": _show_source(loader._data_source),
            "bushel": {
                "version": VERSION,
                "shard": loader._describe_shard(),
                "operations": loader._describe_operations(),
                "state": copy_state(state),
            },
        }

    def set_state(self, state: bytes) -> None:
        """Goes to a saved position, after checking that it belongs to this loader."""
        self._restore(_decode(state), True)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to a position that `state_dict` returned."""
        if not isinstance(state, dict):
            raise StateError(
                f"`load_state_dict` takes the dict of `state_dict()`, and got a "
                f"{type(state).__name__}; for what `get_state()` returned, there is `set_state`."
            )
        check_depth(state)
        self._restore(copy_state(state), True)

    async def save(self, directory: Any) -> Awaitable[None]:
        """Takes the state, and returns what writes it into a folder, as Orbax asks for it."""
        return save_into(directory, self.state_dict())

    async def load(self, directory: Any) -> Awaitable[None]:
        """Reads the state from a folder that `save` or a `CheckpointHandler` wrote."""
        return load_from(directory, self.load_state_dict)

    def _restore(self, saved: dict[str, Any], validate: bool) -> None:
        if validate:
            self._validate(saved)
        self._iterator._go_to(self._position_in(saved))

    def _validate(self, saved: dict[str, Any]) -> None:
        loader = self._data_loader
        current = {
            "sampler": repr(loader._sampler),
            "data_source": _show_source(loader._data_source),
        }
        if saved.get("worker_count", 0) != 0:
            # Grain's workers each read every n-th record: there is no one place to go to.
            raise StateError(
                f"this state was saved by Grain with worker_count={saved['worker_count']!r}, which "
                "reads in another order. States that bushel saved fit any number of workers."
            )
        signature = saved.get("bushel", {})
        if not isinstance(signature, dict):
            raise StateError(f"the 'bushel' entry of this state is damaged: {signature!r:.200}.")
        if "pipeline" in signature:
            raise StateError("this state was saved by a dataset's iterator, not by a DataLoader.")
        differences = [
            _difference(name, saved.get(name), now)
            for name, now in current.items()
            if saved.get(name) != now
        ]
        if "bushel" in saved:
            differences += self._differences(signature)
        if differences:
            raise StateError("\n".join(differences))

    def _differences(self, signature: dict[str, Any]) -> Iterator[str]:
        """What differs among the things that Grain's states do not mention."""
        if signature.get("version") != VERSION:
            raise StateError(
                f"this state has version {signature.get('version')!r}; this release of bushel "
                f"reads version {VERSION}."
            )
        shard = self._data_loader._describe_shard()
        if signature.get("shard") != shard:
            yield (
                f"this state belongs to shard {signature.get('shard')}, and this DataLoader reads "
                f"shard {shard}."
            )
        before, now = signature.get("operations"), self._data_loader._describe_operations()
        if not is_pipeline(before):
            raise StateError(f"this state is damaged: its operations are {before!r:.200}.")
        if before != now:
            different = differing_steps(before, now, "operation")
            yield f"this state belongs to other operations: {different}."

    def _position_in(self, saved: dict[str, Any]) -> State:
        signature = saved.get("bushel")
        if isinstance(signature, dict):
            position = signature.get("state")
            if not isinstance(position, dict):
                raise StateError(f"this state is damaged: its position is {position!r}.")
            return position
        # Written by Grain: the index of the last record that was read.
        shards = self._data_loader._shard_options
        try:
            last_seen = operator.index(saved["last_seen_indices"]["0"])
        except (KeyError, TypeError) as error:
            raise StateError(f"this state has no position: {saved!r:.200}.") from error
        taken, rest = divmod(last_seen - shards.shard_index, shards.shard_count)
        if rest or taken < -1:
            raise StateRangeError(
                f"this state is at step {last_seen}, which is no step of shard "
                f"{shards.shard_index} of {shards.shard_count}."
            )
        return {"next_index": taken + 1}

    def start_prefetch(self) -> None:
        """Begins background work, if there is any, before the first element is asked for."""
        self._iterator.start_prefetch()

    def close(self) -> None:
        """Stops all threads and worker processes; may be called more than once."""
        self._iterator.close()

    def __enter__(self) -> "DataLoaderIterator[T]":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return f"PyGrainDatasetIterator(state={self.get_state().decode()})"


def load(
    source: Any,
    *,
    num_epochs: int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    shard_options: ShardOptions = NoSharding(),  # noqa: B008  (immutable)
    transformations: Sequence[Any] = (),
    batch_size: int | None = None,
    drop_remainder: bool = False,
    worker_count: int | None = 0,
    read_options: ReadOptions | None = None,
) -> DataLoader[Any]:
    """Makes a DataLoader over a whole source in one call.

    >>> next(iter(load([5, 6, 7], batch_size=2)))
    array([5, 6])
    """
    operations = list(transformations)
    if batch_size is not None:
        operations.append(transforms.Batch(batch_size, drop_remainder))
    sampler = IndexSampler(
        num_records=source_node(source).length(),
        shard_options=shard_options,
        shuffle=shuffle,
        num_epochs=num_epochs,
        seed=seed,
    )
    return DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        worker_count=worker_count,
        shard_options=shard_options,
        read_options=read_options,
    )


class _Nothing:
    """The generators of a sampler without a seed."""

    def each(self, positions: Iterable[int]) -> Iterator[None]:
        return (None for _ in positions)


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


def _show_source(source: Any) -> str:
    # Not the contents: a list of a million records would be in every checkpoint.
    if isinstance(source, (list, tuple, np.ndarray)):
        return str(type(source))
    if isinstance(source, dict) and all(isinstance(name, str) for name in source):
        return f"dict with keys {sorted(source)}"
    return repr(source)


def _decode(state: Any) -> dict[str, Any]:
    if not isinstance(state, (bytes, bytearray)):
        raise StateError(
            f"a DataLoader's state is bytes, as `get_state()` returned it, and this is a "
            f"{type(state).__name__}."
        )
    from bushel.checkpoint.files import decode

    return decode(bytes(state), "this state")


def _difference(name: str, before: Any, now: str) -> str:
    fields = differing_fields(before, now) if isinstance(before, str) else None
    if fields is not None:
        return f"this state belongs to another {name}: {fields}."
    hint = ""
    if " at 0x" in now:
        hint = f"\nGive the {name}'s class a `__repr__` that is the same in every run."
    return (
        f"this state belongs to another {name}.\nIn the state: {before}\n"
        f"In this DataLoader: {now}{hint}"
    )


def _count_workers(worker_count: int | None) -> int:
    if worker_count is None:
        # One is left for the training itself.
        return max(1, available_cores() - 1)
    if operator.index(worker_count) < 0:
        raise PlanError(f"worker_count must not be negative, and is {worker_count}.")
    return operator.index(worker_count)


def _count_steps(sampler: Any) -> int:
    """Finds the length of a sampler that has none: the first step that raises IndexError."""
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
