"""`MapDataset`: random access to element i, over any number of epochs; most of its methods.

Each method builds one node and returns a new dataset; nothing is read or computed until an
element is asked for.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from bushel.batch.batch import batch_by_position
from bushel.core.arguments import whole
from bushel.core.block import Block
from bushel.core.node import Node
from bushel.core.options import ReadOptions, check_read_options
from bushel.core.places import CustomMapNode, SeedNode, ToStreamNode
from bushel.core.positions import Positions, positions_of
from bushel.dataset.base import Dataset, S, T, shown
from bushel.dataset.parts import Parts
from bushel.dataset.seeds import check_seed, default_seed
from bushel.dataset.steps import random_map_step
from bushel.dataset.stream import IterDataset, StreamNodeDataset
from bushel.errors import EmptyDatasetError, PlanError
from bushel.lanes.deal import deal_step
from bushel.order.concatenate import concatenate_by_position
from bushel.order.mix import SelectNode, mix_by_position
from bushel.order.repeat import repeat_by_position
from bushel.order.shuffle import ShuffleNode
from bushel.order.slice import slice_of
from bushel.sharding import ShardOptions
from bushel.sources.base import RandomAccessDataSource
from bushel.sources.memory import RangeNode, source_node
from bushel.transforms import base as transforms
from bushel.transforms.filter import filter_step
from bushel.transforms.flat_map import flat_map_step
from bushel.transforms.map import map_batches_step, map_step, map_with_index_step

if TYPE_CHECKING:
    from bushel.deliver.iterator import DatasetIterator


class _MapDatasetMeta(ABCMeta):
    """The ways to begin a random-access dataset.

    They belong to the class and not to datasets: `MapDataset.range(5)` makes one, and
    `ds.range(5)`, which would forget `ds`, does not exist.
    """

    @overload
    def source(cls, source: Mapping[str, Any]) -> MapDataset[dict[str, Any]]: ...
    @overload
    def source(cls, source: Sequence[T] | RandomAccessDataSource[T]) -> MapDataset[T]: ...
    @overload
    def source(cls, source: Any) -> MapDataset[Any]: ...
    def source(cls, source: Any) -> Any:
        """Reads from anything with `__len__` and `__getitem__`, or from columns.

        An array, or a dict or tuple of equally long arrays, is read by columns: record i
        consists of the i-th entries. Memory maps are not copied.

        >>> images, labels = np.zeros((3, 28, 28)), np.array([7, 8, 9])
        >>> MapDataset.source({"image": images, "label": labels})[1]["label"]
        np.int64(8)
        """
        return MapNodeDataset(source_node(source))

    def range(cls, start: int, stop: int | None = None, step: int = 1) -> MapDataset[int]:
        """The integers of a range, with the arguments of the builtin.

        >>> list(MapDataset.range(2, 8, 3))
        [2, 5]
        """
        if stop is None:
            start, stop = 0, start
        return MapNodeDataset(RangeNode(range(start, stop, step)))

    def concatenate(cls, datasets: Sequence[MapDataset[T]]) -> MapDataset[T]:
        """One dataset after the other; an epoch of the whole is an epoch of each.

        >>> list(MapDataset.concatenate([MapDataset.range(2), MapDataset.range(3)]))
        [0, 1, 0, 1, 2]
        """
        datasets = check_parts(datasets, "concatenate")
        return MapNodeDataset(concatenate_by_position(tuple(map(map_node, datasets))), datasets)

    def mix(
        cls, datasets: Sequence[MapDataset[T]], weights: Sequence[float] | None = None
    ) -> MapDataset[T]:
        """Elements of several datasets in fixed proportions, spread evenly.

        >>> evens, odds = MapDataset.range(0, 10, 2), MapDataset.range(1, 10, 2)
        >>> list(MapDataset.mix([evens, odds], [2, 1]))
        [0, 2, 1, 4, 6, 3, 8]
        """
        datasets = check_parts(datasets, "mix")
        return MapNodeDataset(mix_by_position(tuple(map(map_node, datasets)), weights), datasets)

    def select_from_datasets(
        cls, datasets: Sequence[MapDataset[T]], selection_map: Any
    ) -> MapDataset[T]:
        """Elements of several datasets, by a map from position to (dataset, position)."""
        if selection_map is None:
            return cls.mix(datasets)
        datasets = check_parts(datasets, "select_from_datasets")
        node = SelectNode(tuple(map(map_node, datasets)), selection_map)
        return MapNodeDataset(node, datasets)


class MapDataset(Parts[T], Dataset[T], metaclass=_MapDatasetMeta):
    """Dataset with random access to element i, over any number of epochs.

    Lazy and immutable. Positions beyond the length belong to later epochs, in which random
    steps differ; an element that a filter dropped reads as None. Your own subclasses
    define `__len__` and `__getitem__`, and have the dataset that they read from in
    `self._parent`.

    >>> ds = MapDataset.range(6).seed(1).shuffle().map(lambda x: 10 * x).batch(2)
    >>> ds[0]
    array([10, 50])
    >>> len(ds), [batch.tolist() for batch in ds]
    (3, [[10, 50], [20, 30], [0, 40]])
    """

    _kind = "a MapDataset"
    _unwritten_steps = 1
    _way_to_other = "`{0}` is for streams (`IterDataset`): write `ds.to_iter_dataset().{0}(...)`."

    @classmethod
    def _other_kind(cls) -> type:
        return IterDataset

    @abstractmethod
    def __len__(self) -> int:
        """Number of elements in one epoch (dropped ones count)."""

    @overload
    def __getitem__(self, index: slice) -> MapDataset[T]: ...
    @overload
    def __getitem__(self, index: int) -> T | Any: ...
    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """Element at a position (None if dropped); for a slice, a dataset."""

    def __iter__(self) -> DatasetIterator[T]:
        """Iterates over one epoch, like `to_iter_dataset()`."""
        return self.to_iter_dataset().__iter__()

    def slice(self, sl: slice) -> MapDataset[T]:
        """Keeps the elements of a slice; `ds[a:b:c]` for short.

        >>> list(MapDataset.range(10).slice(slice(1, None, 3)))
        [1, 4, 7]
        """
        return self._then(slice_of(map_node(self), sl, sequential=False))

    def shuffle(self, seed: int | None = None) -> MapDataset[T]:
        """Puts all elements in a random order, a new one in each epoch.

        The order is computed, not stored, so it takes no memory at any length.

        >>> list(MapDataset.range(6).shuffle(seed=3))
        [4, 3, 0, 1, 2, 5]
        """
        parent = map_node(self)
        if seed is None:
            seed = default_seed((parent,), "shuffle")
        seed = check_seed(seed, "shuffle")
        return self._then(ShuffleNode(parent, seed))

    def repeat(
        self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True
    ) -> MapDataset[T]:
        """Repeats the dataset, for ever by default.

        Random steps differ from epoch to epoch, unless `reseed_each_epoch=False`.

        >>> list(MapDataset.range(3).shuffle(seed=1).repeat(2))
        [1, 2, 0, 0, 2, 1]
        """
        return self._then(repeat_by_position(map_node(self), num_epochs, reseed_each_epoch))

    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[T]], S] | None = None,
    ) -> MapDataset[S]:
        """Groups neighbours, stacking leaves on a new first axis.

        The last batch may be shorter, unless `drop_remainder`. `batch_fn` gets the list of
        elements and returns the batch, in place of stacking.

        >>> list(MapDataset.range(5).batch(2))
        [array([0, 1]), array([2, 3]), array([4])]
        """
        return self._then(batch_by_position(map_node(self), batch_size, drop_remainder, batch_fn))

    def filter(self, transform: transforms.Filter | Callable[[T], object]) -> MapDataset[T]:
        """Drops elements for which a function is false: they read as None.

        The length does not change. In a stream, or in a `for` loop, they are absent.

        >>> even = MapDataset.range(4).filter(lambda x: x % 2 == 0)
        >>> even[1], list(even)
        (None, [0, 2])
        """
        return self._then(filter_step(map_node(self), transform))

    def map(self, transform: transforms.Map | Callable[[T], S]) -> MapDataset[S]:
        """Applies a function, or a `transforms.Map`, to each element.

        >>> MapDataset.range(3).map(lambda x: x + 0.5)[2]
        2.5
        """
        return self._then(map_step(map_node(self), transform))

    def map_with_index(
        self, transform: transforms.MapWithIndex | Callable[[int, T], S]
    ) -> MapDataset[S]:
        """Applies a function to the position and the element.

        >>> MapDataset.range(10, 13).map_with_index(lambda i, x: (i, x))[1]
        (1, 11)
        """
        return self._then(map_with_index_step(map_node(self), transform))

    def map_batches(
        self, transform: transforms.MapBatches | Callable[[Any], Any]
    ) -> MapDataset[Any]:
        """Applies a function to whole blocks of elements at once, given as columns.

        The function gets a tree of arrays with a common leading axis and returns one of the
        same length. bushel chooses the number of elements, which changes from call to call, so
        the function must be element-wise: row i of the result may depend on row i only.

        >>> MapDataset.range(6).map_batches(lambda x: x * x)[5]
        np.int64(25)
        """
        return self._then(map_batches_step(map_node(self), transform))

    def random_map(
        self,
        transform: transforms.RandomMap | Callable[[T, np.random.Generator], S],
        *,
        seed: int | None = None,
    ) -> MapDataset[S]:
        """Applies a function to each element and the element's own random generator.

        The generator depends only on the seed and the position. It may be used during the call
        only.

        >>> noisy = MapDataset.range(3).random_map(lambda x, rng: x + rng.random(), seed=1)
        >>> noisy[1] == noisy[1]
        True
        """
        return self._then(random_map_step(map_node(self), transform, seed))

    def seed(self, seed: int) -> MapDataset[T]:
        """Gives random steps downstream a seed; each derives its own seed from it.

        >>> MapDataset.range(5).seed(1).shuffle()[0]
        1
        """
        return self._then(SeedNode(map_node(self), seed))

    def to_iter_dataset(
        self, read_options: ReadOptions | None = None, *, allow_nones: bool = False
    ) -> IterDataset[T]:
        """Makes a stream of the dataset: one epoch, in order, dropped elements left out.

        `allow_nones` keeps them as None. See `ReadOptions` for threads.
        """
        options = check_read_options(read_options)
        return StreamNodeDataset(ToStreamNode(map_node(self), options, allow_nones), self)

    def lanes(
        self,
        count: int,
        *,
        shard_options: ShardOptions | None = None,
        read_options: ReadOptions | None = None,
        remainder: str = "drop",
        agree: Callable[[int], int] | None = None,
        agree_timeout_s: float = 1800.0,
    ) -> IterDataset[T]:
        """Distributes the elements over `count` independent streams, and these over the hosts.

        The steps that follow, up to `batch`, run in each lane separately: filters, flat maps,
        window shuffles, mixtures of streams with the same lanes. `batch(n)` then takes the next
        n / count elements of lane 0, of lane 1, and so on, for a global batch of n rows. So
        the records of step k depend on the pipeline alone: a job saved on 4 hosts can be resumed
        on 2 or 8, and every host takes the same number of steps.

        Element n of lane l has number n * count + l for `map_with_index` and `random_map`.

        If an element fails, its whole step is lost: the host that has it raises the error in the
        place of its part of the batch, and all lanes go on with the next step, as if this one had
        been delivered. (`batch` of a `MapDataset` does the same; a stream without lanes goes on
        right after the element.)

        >>> ds = MapDataset.range(16).lanes(4).filter(lambda x: x % 3).batch(4)
        >>> [batch.tolist() for batch in ds]
        [[4, 1, 2, 7], [8, 5, 10, 11]]

        Args:
          count: the number of lanes: a multiple of every number of hosts that the job may run on.
            It is part of the pipeline; another number is another stream.
          shard_options: the number of this host, and the number of hosts. By default those of
            this process in a JAX or `torch.distributed` job, or of this worker of Ray Train.
          read_options: threads and buffer of all lanes of this host together.
          remainder: what to do when lanes end at different steps. "drop" ends before the first
            step for which some lane has too few elements. "pad" goes on until all lanes have
            ended: elements become pairs of the element and True, or of zeros and False in place
            of a missing element, so that a batch is `(batch, mask)`.
          agree: how hosts agree on the last step, where it depends on the data (a
            filter over finite data): a function that gets an integer and returns the least of
            all hosts' integers. By default processes of a JAX or `torch.distributed` job, and
            workers of Ray Train, do so by themselves. All hosts call it before the same steps,
            with any number of workers; if a thread prefetches them, that thread calls it.
          agree_timeout_s: how long this process waits for other processes of the job before it
            raises an `AgreementError`. They may be busy for long before their first step, with
            reading or compiling. After some seconds, the hosts that it waits for are logged.
        """
        node = deal_step(
            map_node(self), count, shard_options, read_options, remainder, agree, agree_timeout_s
        )
        return StreamNodeDataset(node, self)

    def _flat_map(self, transform: Any) -> MapDataset[Any]:
        return self._then(flat_map_step(map_node(self), transform))

    def _own_node(self) -> Node:
        return map_node(self)

    def _stream_node(self) -> Node:
        return ToStreamNode(map_node(self), ReadOptions(), False)

    def _then(self, node: Node) -> MapDataset[Any]:
        return MapNodeDataset(node, self)


class MapNodeDataset(MapDataset[T]):
    """A random-access dataset that is a node; all of bushel's own are."""

    def __init__(self, node: Node, parents: Any = ()) -> None:
        super().__init__(parents)
        self._node = node
        self._evaluate: Callable[[Positions], Block] | None = None

    def __len__(self) -> int:
        return self._node.length()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        rows = self.__getitems__((whole(index, "a position"),))
        return rows[0]

    def __getitems__(self, indices: Sequence[int]) -> list[T | None]:
        """Elements at many positions, evaluated as one block."""
        positions = positions_of(indices)
        if not self._node.length() and len(positions):
            raise EmptyDatasetError("this dataset is empty: it has no element at any position.")
        if self._evaluate is None:
            from bushel.run.inline import compile_node

            self._evaluate = compile_node(self._node).at
        block = self._evaluate(positions)
        if block.failure is not None:
            from bushel.deliver.failed_record import note_record  # Only for those that fail.

            note_record(block.failure.error, self._node)
            error = block.failure.release()
            # A frame on the traceback must not refer to the exception: that would be a cycle.
            del block
            try:
                raise error
            finally:
                del error
        return block.rows()

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restricts a source to a slice of its records; the dataset itself is changed.

        Sequentially, `slice(k, None, n)` means part k of n.
        """
        if self._node.inputs:
            raise PlanError(
                f"`set_slice` is for what `MapDataset.source(...)` returns, and this is {self!r}. "
                "Write `ds[start:stop:step]`."
            )
        self._node = slice_of(self._node, sl, sequential_slice)
        self._evaluate = None

    def __getstate__(self) -> dict[str, Any]:
        # What was worked out from the node is worked out again where it is needed.
        return {**self.__dict__, "_evaluate": None}

    def __repr__(self) -> str:
        return f"MapDataset({shown(self._node)})"


# What Python's own messages say.
MapNodeDataset.__name__ = "MapDataset"


def map_node(ds: Any) -> Node:
    """The node of a random-access dataset, be it bushel's or a user's own."""
    if isinstance(ds, MapNodeDataset) and type(ds).__getitem__ is MapNodeDataset.__getitem__:
        return ds._node
    if not isinstance(ds, MapDataset):
        raise TypeError(f"this takes a `MapDataset`, and got a {type(ds).__name__}.")
    parents = tuple(map_node(parent) for parent in getattr(ds, "_parents", ()))
    return CustomMapNode(ds, parents)


def check_parts(datasets: Any, operation: str) -> list[Any]:
    """Returns the random-access datasets that an operation was given."""
    parts: list[Any] = list(datasets)
    for number, dataset in enumerate(parts):
        if not isinstance(dataset, MapDataset):
            raise TypeError(
                f"`{operation}` takes `MapDataset`s, and item {number} is a "
                f"{type(dataset).__name__}."
            )
    return parts
