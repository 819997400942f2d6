"""`ElasticIterator`: batches of a random-access dataset for any number of hosts."""

import threading
from typing import Any

from bushel.checkpoint.signed import describe_pipeline, sign, verify
from bushel.core.arguments import whole
from bushel.core.options import MultiprocessingOptions, ReadOptions
from bushel.core.places import droppers
from bushel.core.state_fields import Fields, Whole
from bushel.dataset import IterDataset, MapDataset, map_node
from bushel.deliver.iterator import DatasetIterator
from bushel.errors import ClosedError, PlanError
from bushel.sharding import ShardOptions


class ElasticIterator(IterDataset[Any]):
    """One host's part of the batches of a dataset; its state fits any number of hosts.

    Of each global batch, host i of n gets the elements i, i + n, i + 2 n and so on. The state
    is the number of elements that all hosts together have had. `MapDataset.lanes` does that
    too for pipelines that filter, flatten, mix or shuffle windows, and ends on all hosts at the
    same step.

    >>> ds = MapDataset.range(100)
    >>> saved = ElasticIterator(ds, 4, ShardOptions(0, 2))
    >>> next(saved), saved.get_state()["global_next_index"]
    (array([0, 2]), 4)
    >>> other = ElasticIterator(ds, 4, ShardOptions(3, 4))
    >>> other.set_state(saved.get_state())
    >>> next(other)
    array([7])
    """

    def __init__(
        self,
        ds: MapDataset[Any],
        global_batch_size: int,
        shard_options: ShardOptions,
        *,
        read_options: ReadOptions = ReadOptions(),  # noqa: B008  (immutable)
        multiprocessing_options: MultiprocessingOptions | None = None,
    ) -> None:
        super().__init__(ds)
        size, shards = whole(global_batch_size, "global_batch_size"), shard_options.shard_count
        if size <= 0:
            raise PlanError(f"`global_batch_size` must be positive, and is {size}.")
        if size % shards:
            raise PlanError(
                f"`ElasticIterator` gives each of {shards} shards the same part of a batch, so "
                f"`global_batch_size` must be a multiple of {shards}, and is {size}."
            )
        for step in droppers(map_node(ds)):
            raise PlanError(
                f"`ElasticIterator` does not support `{step.label}`: it may leave elements "
                "out, so the state of one host would tell nothing of the others. "
                "`ds.lanes(...)` does: filter after it."
            )
        self._iterator = _ElasticDatasetIterator(
            ds, size, shard_options, read_options, multiprocessing_options
        )

    def __iter__(self) -> DatasetIterator[Any]:
        """The one iterator of this object."""
        return self._iterator

    def __next__(self) -> Any:
        return next(self._iterator)

    def get_state(self) -> dict[str, Any]:
        """The position of all hosts."""
        return self._iterator.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a position, which any number of hosts may have had."""
        self._iterator.set_state(state)

    def start_prefetch(self) -> None:
        """Starts prefetching, if it prefetches, before the first element is asked for."""
        self._iterator.start_prefetch()

    def close(self) -> None:
        """Stops all threads and worker processes; may be called more than once."""
        self._iterator.close()


class _ElasticDatasetIterator(DatasetIterator[Any]):
    def __init__(
        self,
        ds: MapDataset[Any],
        size: int,
        shard: ShardOptions,
        read_options: ReadOptions,
        multiprocessing_options: MultiprocessingOptions | None,
    ) -> None:
        super().__init__()
        self._ds, self._size, self._shard = ds, size, shard
        self._read_options, self._workers = read_options, multiprocessing_options
        self._pipeline = describe_pipeline(map_node(ds))
        self._closed = False
        # Held by a thread that takes an element or restores a state.
        self._lock = threading.RLock()
        self._begin(0)

    def _begin(self, position: int) -> None:
        """Reads from this element of all hosts on."""
        self._first, self._taken = position, 0
        index, count = self._shard.shard_index, self._shard.shard_count
        mine = self._ds[position + index :: count]
        stream = mine.batch(self._size // count, drop_remainder=True)
        read = stream.to_iter_dataset(self._read_options).mp_prefetch(self._workers)
        self._elements = iter(read)

    def __next__(self) -> Any:
        with self._lock:
            if self._closed:
                raise ClosedError("this iterator was closed and cannot go on. Make another one.")
            element = next(self._elements)
            self._taken += 1
            return element

    def get_state(self) -> dict[str, Any]:
        with self._lock:
            position = self._first + self._taken * self._size
        return sign({"global_next_index": position}, self._pipeline)

    def set_state(self, state: dict[str, Any]) -> None:
        bare = verify(state, self._pipeline)
        Fields(global_next_index=Whole(len(self._ds))).check(bare)
        position = bare["global_next_index"]
        with self._lock:
            self._elements.close()
            self._begin(position)

    def start_prefetch(self) -> None:
        self._elements.start_prefetch()

    def close(self) -> None:
        self._closed = True
        self._elements.close()
