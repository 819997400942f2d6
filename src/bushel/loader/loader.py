"""`DataLoader` and `load`: their arguments and checks; `loader/chain.py` makes the nodes."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from bushel.core.arguments import explains, whole
from bushel.core.machine import available_cores
from bushel.core.naming import name_of, source_name
from bushel.core.node import Node
from bushel.core.options import (
    DatasetOptions,
    MultiprocessingOptions,
    OnError,
    ReadOptions,
    WorkersKey,
)
from bushel.core.ray_options import RayOptions
from bushel.core.tuned_options import AutotuneParameter, is_tuned
from bushel.errors import PlanError, SourceError
from bushel.loader.recipe import Recipe
from bushel.samplers import IndexSampler
from bushel.sharding import NoSharding, ShardOptions
from bushel.sources.memory import source_node
from bushel.transforms import base as transforms

if TYPE_CHECKING:
    # The arguments of a loader do not tell the type of its elements (see dataset/base.py).
    import typing_extensions

    from bushel.loader.iterator import DataLoaderIterator
    from bushel.watch.explanation import Explanation

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
        states. 0 is none, and None is one less than the CPUs that this process may use. "auto"
        has more or fewer while it runs (see `MultiprocessingOptions`).
      worker_buffer_size: blocks that each worker may have waiting beside the one it is at, or
        "auto".
      shard_options: which steps of the sampler this loader takes; the sampler's by default.
      read_options: how many threads may read ahead, in each worker.
      hang_timeout: seconds without progress after which a worker is said to hang (see
        `MultiprocessingOptions`).
      on_hang: "wait" for it, "replace" it, or "raise".
      on_error: what becomes of records that cannot be read, or for which an operation before
        the first batch fails; they are raised by default.
      worker_options: `RayOptions(...)` for workers on a Ray cluster, or `MultiprocessingOptions`;
        they say all that there is to say of workers.
    """

    @explains(
        instead=dict.fromkeys(("workers", "num_workers"), "worker_count")
        | {"source": "data_source", "dataset": "data_source", "transforms": "operations"},
        missing={
            "sampler": "it decides the order of the records and the number of epochs. Write "
            "`sampler=IndexSampler(len(source), shuffle=True, seed=0)`; or use `load(source)`."
        },
    )
    def __init__(
        self,
        *,
        data_source: Any,
        sampler: Any,
        operations: Sequence[Any] = (),
        worker_count: int | Literal["auto"] | AutotuneParameter | None = 0,
        worker_buffer_size: int | Literal["auto"] | AutotuneParameter = 1,
        shard_options: ShardOptions | None = None,
        read_options: ReadOptions | None = None,
        enable_profiling: bool = False,
        hang_timeout: float | None = None,
        on_hang: str = "wait",
        on_error: OnError | None = None,
        worker_options: RayOptions | MultiprocessingOptions | None = None,
    ) -> None:
        if worker_options is None:
            worker_count = _count_workers(worker_count)
        else:
            said = worker_count, worker_buffer_size, enable_profiling, hang_timeout, on_hang
            _check_options(worker_options, said)
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
        if not is_tuned(worker_buffer_size) and whole(worker_buffer_size, "worker_buffer_size") < 0:
            raise PlanError(
                f"worker_buffer_size must not be negative, and is {worker_buffer_size}."
            )
        key = WorkersKey()
        if worker_options is None:
            worker_options = MultiprocessingOptions(
                worker_count or 0, worker_buffer_size, enable_profiling, hang_timeout, on_hang
            )
        if worker_options.num_workers and isinstance(worker_options, MultiprocessingOptions):
            from bushel.deliver.early_workers import key_of_workers

            key = key_of_workers()
        self._recipe = Recipe(
            data_source,
            sampler,
            tuple(operations),
            shard_options,
            read_options or ReadOptions(),
            worker_options,
            on_error or OnError("raise"),
            key,
        )
        from bushel.loader.chain import check_operations

        check_operations(self._recipe.operations)

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """The worker count and buffer that the loader was built with."""
        options = self._recipe.worker_options
        if isinstance(options, RayOptions):
            return MultiprocessingOptions(options.num_workers, options.per_worker_buffer_size)
        return options

    # Grain's names for the arguments of a loader, which Keras and others read.
    @property
    def _multiprocessing_options(self) -> MultiprocessingOptions:
        return self.multiprocessing_options

    @property
    def _data_source(self) -> Any:
        return self._recipe.data_source

    @property
    def _sampler(self) -> Any:
        return self._recipe.sampler

    @property
    def _operations(self) -> tuple[Any, ...]:
        return self._recipe.operations

    @property
    def _shard_options(self) -> ShardOptions:
        return self._recipe.shard_options

    @property
    def _read_options(self) -> ReadOptions:
        return self._recipe.read_options

    def explain(self) -> "Explanation":
        """Tells the steps, where each of them runs, and what to write instead; reads nothing.

        A sampler without a length is asked where it ends.
        """
        from bushel.watch.explain import explain_made_by

        return explain_made_by("DataLoader", self._stream_node)

    def _stream_node(self) -> Node:
        """The stream over which it iterates."""
        from bushel.loader.chain import Chain

        return Chain(self._recipe).node()

    def _iterate_with(self, options: DatasetOptions) -> "DataLoaderIterator[T]":
        """Makes an iterator with options for which a loader has no arguments."""
        from bushel.loader.iterator import DataLoaderIterator

        return DataLoaderIterator(self, None, options=options)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def __repr__(self) -> str:
        recipe = self._recipe
        fields = {
            "data_source": source_name(recipe.data_source),
            "sampler": repr(recipe.sampler),
            "operations": f"[{', '.join(map(_shown, recipe.operations))}]",
            "worker_count": repr(recipe.worker_options.num_workers),
        }
        return f"DataLoader({', '.join(f'{name}={text}' for name, text in fields.items())})"

    def __iter__(self) -> "DataLoaderIterator[T]":
        """Starts a new pass."""
        from bushel.loader.iterator import DataLoaderIterator

        return DataLoaderIterator(self, None)


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
    worker_count: int | Literal["auto"] | AutotuneParameter | None = 0,
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


def _shown(operation: Any) -> str:
    if isinstance(operation, transforms.Batch):
        return f"Batch({operation.batch_size})"
    return name_of(operation)


def _check_options(options: Any, said: tuple[Any, ...]) -> None:
    """Refuses invalid options of workers, and options that contradict other arguments."""
    if not isinstance(options, (RayOptions, MultiprocessingOptions)):
        raise TypeError(
            "`worker_options` must be `RayOptions` or `MultiprocessingOptions`, and is "
            f"{options!r:.100}."
        )
    if said != (0, 1, False, None, "wait"):
        raise PlanError(
            "`worker_options` has all options of workers: leave out `worker_count`, "
            "`worker_buffer_size`, `enable_profiling`, `hang_timeout` and `on_hang`."
        )


def _count_workers(worker_count: Any) -> Any:
    if is_tuned(worker_count):
        return worker_count
    if worker_count is None:
        # One is left for the training itself.
        return max(1, available_cores() - 1)
    if whole(worker_count, "worker_count") < 0:
        raise PlanError(f"worker_count must not be negative, and is {worker_count}.")
    return whole(worker_count, "worker_count")
