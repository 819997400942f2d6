"""Grain's dataset classes for streams: repeat, limit, cache, interleave, `multithread_prefetch`."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

from bushel.cache.cache import cache_step
from bushel.core.arguments import whole
from bushel.core.cursor import Cursor
from bushel.core.node import Node
from bushel.core.places import OptionsNode, PrefetchNode
from bushel.core.tuned_options import MOST_BUFFERED, AutotuneParameter, buffer_bounds, is_tuned
from bushel.dataset import IterDataset, MapDataset, StreamNodeDataset, stream_node
from bushel.dataset.steps import interleave_step
from bushel.deliver.iterator import DatasetIterator
from bushel.errors import ClosedError, PlanError
from bushel.grain.source_parts import copies_of
from bushel.order.repeat import repeat_step
from bushel.order.take import LimitNode
from bushel.run.background import BackgroundStream
from bushel.run.build import options_of
from bushel.run.custom_iterator import CustomStream

T = TypeVar("T")


class RepeatIterDataset(StreamNodeDataset[T]):
    """Iterates over a stream `num_epochs` times, or for ever; each time is the same.

    >>> stream = MapDataset.range(3).to_iter_dataset()
    >>> list(RepeatIterDataset(stream, 2))
    [0, 1, 2, 0, 1, 2]
    """

    def __init__(self, parent: IterDataset[T], num_epochs: int | None = None) -> None:
        super().__init__(repeat_step(stream_node(parent), num_epochs), parent)


class LimitIterDataset(StreamNodeDataset[T]):
    """Stops after `count` elements.

    >>> list(LimitIterDataset(MapDataset.range(9).to_iter_dataset(), 2))
    [0, 1]
    """

    def __init__(self, parent: IterDataset[T], count: int) -> None:
        if whole(count, "count") <= 0:
            raise PlanError(f"`count` must be positive, and is {count}.")
        super().__init__(LimitNode(stream_node(parent), count), parent)


class CacheIterDataset(StreamNodeDataset[T]):
    """Its iterator caches its elements, so that going back computes nothing again.

    They are kept in memory, by each iterator for itself. Together with `RepeatIterDataset`
    only the first epoch is computed.
    """

    def __init__(self, parent: IterDataset[T]) -> None:
        super().__init__(cache_step(stream_node(parent), None, None), parent)


class InterleaveIterDataset(StreamNodeDataset[T]):
    """Takes elements of `cycle_length` datasets in turn, and opens the next when one ends.

    >>> parts = [MapDataset.range(start, start + 3) for start in (0, 10, 20)]
    >>> list(InterleaveIterDataset(parts, cycle_length=2))
    [0, 10, 1, 11, 2, 12, 20, 21, 22]

    Args:
      datasets: a sequence of datasets, or a random-access dataset of datasets.
      cycle_length: how many of them are open at a time.
      num_make_iter_threads: accepted for programs written for Grain, as are the next two; the
        datasets read ahead by themselves.
      make_iter_buffer_size: see there.
      iter_buffer_size: see there.
    """

    def __init__(
        self,
        datasets: "Sequence[IterDataset[T] | MapDataset[T]] | MapDataset[Any]",
        *,
        cycle_length: int,
        num_make_iter_threads: int = 1,
        make_iter_buffer_size: int = 1,
        iter_buffer_size: int = 1,
    ) -> None:
        for name, value in (
            ("num_make_iter_threads", num_make_iter_threads),
            ("make_iter_buffer_size", make_iter_buffer_size),
            ("iter_buffer_size", iter_buffer_size),
        ):
            if whole(value, name) < 0:
                raise PlanError(f"`{name}` must not be negative, and is {value}.")
        if not hasattr(datasets, "__len__") or not hasattr(datasets, "__getitem__"):
            raise TypeError(
                "`datasets` must be a sequence of datasets, or a dataset of them, and is a "
                f"{type(datasets).__name__}. Write `list(...)` around it."
            )
        for part in datasets if isinstance(datasets, (list, tuple)) else ():
            if not isinstance(part, (IterDataset, MapDataset)):
                raise TypeError(f"`datasets` has a {type(part).__name__} in it: {part!r:.100}.")
        self._datasets = datasets
        if is_tuned(cycle_length):
            raise PlanError(
                f"`cycle_length` cannot be {cycle_length!r}: it decides in which order elements "
                "come, which must not change while the pipeline runs. Write a number; how far "
                "each of the datasets is read ahead is found out anyway."
            )
        self._cycle_length = whole(cycle_length, "cycle_length")
        super().__init__(self._make_node())

    def _make_node(self) -> Node:
        return interleave_step(_DatasetNodes(self._datasets), self._cycle_length)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restricts it to a slice of its datasets."""
        self._datasets = self._datasets[sl]
        self._node = self._make_node()


class _DatasetNodes:
    """The nodes of datasets, each made when it is needed."""

    def __init__(self, datasets: Any) -> None:
        self._datasets = datasets

    def __len__(self) -> int:
        return len(self._datasets)

    def __getitem__(self, number: int) -> Node | None:
        dataset = self._datasets[number]
        return None if dataset is None else stream_node(dataset)

    def listed(self) -> list[Node]:
        datasets = self._datasets if isinstance(self._datasets, (list, tuple)) else ()
        return [stream_node(dataset) for dataset in datasets]


def multithread_prefetch(
    ds: IterDataset[T], num_threads: int, buffer_size: int, sequential_slice: bool = False
) -> IterDataset[T]:
    """Reads a stream with several threads, each of which has a part of the source.

    As in Grain, the elements of the parts come in turn: with two threads those of the
    positions 0, 2, 4, ... and of 1, 3, 5, ... alternate, each as the pipeline makes them of its
    part alone. `ReadOptions` read with threads and leave the stream as it is.

    Args:
      ds: the stream, read from a random-access dataset.
      num_threads: how many parts; 0 returns the stream as it is.
      buffer_size: how many elements each thread may be ahead.
      sequential_slice: gives each thread neighbouring positions.
    """
    threads, size = whole(num_threads, "num_threads"), whole(buffer_size, "buffer_size")
    if threads < 0 or size < 0:
        raise PlanError(
            f"`num_threads` and `buffer_size` must not be negative, and are {threads} and {size}."
        )
    if not threads:
        return ds
    nodes = copies_of(stream_node(ds), threads, sequential_slice)
    parts = [
        StreamNodeDataset[T](PrefetchNode(node, buffer_bounds(size, "buffer_size", size)), ds)
        for node in nodes
    ]
    made: IterDataset[T] = InterleaveIterDataset(parts, cycle_length=threads)
    # Options attached earlier apply to later steps, too.
    options = options_of(stream_node(ds))
    if not options._user_set_fields:
        return made
    return StreamNodeDataset(OptionsNode(stream_node(made), options), made)


class ThreadPrefetchDatasetIterator(DatasetIterator[T]):
    """Keeps a buffer filled from any iterator with `get_state` and `set_state`, in a thread."""

    def __init__(
        self,
        parent: Iterator[T],
        prefetch_buffer_size: int | Literal["auto"] | AutotuneParameter,
    ) -> None:
        super().__init__()
        size = buffer_bounds(prefetch_buffer_size, "prefetch_buffer_size", MOST_BUFFERED)
        self._size = size
        self._stream = BackgroundStream(CustomStream(parent), size)
        self._cursor = Cursor(self._stream)
        self._closed = False
        # Held by a thread that takes an element or restores a state.
        self._lock = threading.RLock()

    def __next__(self) -> T:
        with self._lock:
            if self._closed:
                raise ClosedError("this iterator was closed and cannot go on. Make another one.")
            taken = self._cursor.take(1)
            if taken.failure is not None:
                raise taken.failure.release()
            for row in taken.block.rows():
                element: T = row
                return element
            raise StopIteration

    def get_state(self) -> Any:
        """The parent's state as of the last element handed out."""
        with self._lock:
            return self._cursor.state()["iterator"]

    def set_state(self, state: Any) -> None:
        """Restores the parent, and forgets what was read ahead."""
        with self._lock:
            self._cursor.restore({"iterator": state, "skip": 0})

    def start_prefetch(self) -> None:
        self._stream.start()

    def close(self) -> None:
        """Stops the thread."""
        self._closed = True
        self._stream.close()

    def __str__(self) -> str:
        return f"ThreadPrefetchDatasetIterator(prefetch_buffer_size={self._size})"
