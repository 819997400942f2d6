"""`IterDataset`: streams, which can only be iterated, with a state; most of its methods.

Each method builds one node and returns a new dataset; nothing is read or computed until an
element is asked for.
"""

from __future__ import annotations

import os
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bushel.batch.batch import batch_step
from bushel.core.arguments import NotThere, explains, whole
from bushel.core.node import Node
from bushel.core.places import CustomStreamNode, SeedNode, ToStreamNode
from bushel.dataset.base import Dataset, S, T, shown
from bushel.dataset.in_workers import InWorkers
from bushel.dataset.lengths import Lengths
from bushel.dataset.steps import interleave_step, random_map_step, shuffle_step
from bushel.errors import PlanError
from bushel.lanes.deal import gathered
from bushel.order.concatenate import concatenate_step
from bushel.order.repeat import repeat_step
from bushel.order.slice import slice_of
from bushel.order.take import LimitNode, SkipNode, check_count
from bushel.transforms import base as transforms
from bushel.transforms.enumerate import EnumerateNode
from bushel.transforms.filter import filter_step
from bushel.transforms.flat_map import flat_map_step
from bushel.transforms.map import map_batches_step, map_step, map_with_index_step

if TYPE_CHECKING:
    from bushel.deliver.iterator import DatasetIterator
    from bushel.order.stream_mix import MixWeights


class _IterDatasetMeta(ABCMeta):
    """The ways to begin a stream from other streams."""

    def concatenate(cls, datasets: Sequence[IterDataset[T]]) -> IterDataset[T]:
        """One stream after the other.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(5).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(IterDataset.concatenate([odd, odd]))
        [1, 3, 1, 3]
        """
        parts = tuple(stream_node(dataset) for dataset in datasets)
        return StreamNodeDataset(concatenate_step(parts), list(datasets))

    def mix(
        cls,
        datasets: Sequence[IterDataset[T]] | Mapping[str, IterDataset[T]],
        weights: MixWeights | None = None,
        *,
        on_end: str = "stop",
    ) -> IterDataset[T]:
        """Elements of several streams in proportion, spread evenly, until one of them ends.

        With mappings, parts are ordered by name, and a state is restored by name: new parts
        start at their beginning. A state may be restored with other weights: the mixture
        follows the new weights from there on.

        >>> from bushel import MapDataset
        >>> ones, tens = MapDataset.range(3), MapDataset.range(10, 20)
        >>> list(IterDataset.mix([ones.to_iter_dataset(), tens.to_iter_dataset()], [1, 2]))
        [0, 10, 11, 1, 12, 13, 2, 14, 15]
        >>> list(IterDataset.mix([ones, tens], lambda step: [1, step], on_end="drop"))
        [0, 1, 10, 2, 11, 12, 13, 14, 15, 16, 17, 18, 19]

        Args:
          datasets: the parts, in a list, or by name.
          weights: in a list, or by name; or a `WeightSchedule`; or a function that gets the
            number of an element of the mixture and returns the weights for it. It must always
            return the same weights for the same number. Changing weights may be 0 for a while.
          on_end: what happens when the next element should come from a part that has ended.
            "stop" ends the mixture. "restart" starts that part again, in the same order (for
            another order each time, `repeat` the random-access dataset that it is made from).
            "drop" goes on without it, until no part has both elements and a weight.
        """
        names: tuple[str, ...] | None = None
        if isinstance(datasets, Mapping):
            names = tuple(sorted(datasets))
            datasets = [datasets[name] for name in names]
        parts = [stream_node(dataset) for dataset in datasets]
        from bushel.order.stream_mix import mix_step  # Tables of turns, and schedules.

        return StreamNodeDataset(mix_step(parts, weights, names, on_end), list(datasets))


_BUFFER_SIZE = (
    "a stream is shuffled within a buffer of so many elements. Write `shuffle(1000, seed=...)`; or "
    "shuffle the whole `MapDataset`, before `to_iter_dataset()`, which takes no memory."
)


class IterDataset(Lengths[T], InWorkers[T], Dataset[T], metaclass=_IterDatasetMeta):
    """Dataset that can only be iterated; the iterator has a state.

    Lazy and immutable. Your own subclasses define `__iter__`, which returns a
    `DatasetIterator`, and have the dataset that they read from in `self._parent`.
    """

    _kind = "an IterDataset"
    _way_to_other = (
        "`{}` is for random-access datasets (`MapDataset`): call it before `to_iter_dataset()`."
    )

    @classmethod
    def _other_kind(cls) -> type:
        from bushel.dataset.random_access import MapDataset  # It imports this module.

        return MapDataset

    # Found by `ds[0]`, and by nobody who asks whether there is such a method.
    __getitem__ = NotThere(
        "an IterDataset is a stream: its elements come one after the other, and cannot be accessed "
        "by position. Take `next(iter(ds))`, or `ds.skip(n).take(1)`; or index the "
        "`MapDataset` from which it was made."
    )

    @abstractmethod
    def __iter__(self) -> DatasetIterator[T]:
        """Makes an iterator that starts at the beginning."""

    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[T]], S] | None = None,
    ) -> IterDataset[S]:
        """Groups neighbours, as `MapDataset.batch` does.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(7).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.batch(2))
        [array([1, 3]), array([5])]

        After `MapDataset.lanes`, `batch_size` is the global batch size of all hosts, and each
        host gets its share of the rows.
        """
        size = whole(batch_size, "batch_size")
        parent = gathered(stream_node(self), size)
        return self._then(batch_step(parent, size, drop_remainder, batch_fn))

    def filter(self, transform: transforms.Filter | Callable[[T], object]) -> IterDataset[T]:
        """Drops elements for which a function is false.

        Warns, or raises, when it drops nearly all elements (see `DatasetOptions`).
        """
        return self._then(filter_step(stream_node(self), transform))

    def map(self, transform: transforms.Map | Callable[[T], S]) -> IterDataset[S]:
        """Applies a function, or a `transforms.Map`, to each element."""
        return self._then(map_step(stream_node(self), transform))

    def map_with_index(
        self, transform: transforms.MapWithIndex | Callable[[int, T], S]
    ) -> IterDataset[S]:
        """Applies a function to the running count of elements and the element.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(4).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.map_with_index(lambda i, x: (i, x)))
        [(0, 1), (1, 3)]
        """
        return self._then(map_with_index_step(stream_node(self), transform))

    def map_batches(
        self, transform: transforms.MapBatches | Callable[[Any], Any]
    ) -> IterDataset[Any]:
        """Applies a function to whole blocks at once, as `MapDataset.map_batches` does."""
        return self._then(map_batches_step(stream_node(self), transform))

    def random_map(
        self,
        transform: transforms.RandomMap | Callable[[T, np.random.Generator], S],
        *,
        seed: int | None = None,
    ) -> IterDataset[S]:
        """Applies a function to each element and a generator from seed and running count."""
        return self._then(random_map_step(stream_node(self), transform, seed))

    def seed(self, seed: int) -> IterDataset[T]:
        """Gives random steps downstream a seed; each derives its own seed from it."""
        return self._then(SeedNode(stream_node(self), seed))

    def take(self, count: int) -> IterDataset[T]:
        """Ends the stream after `count` elements.

        Between `lanes` and `batch`, it ends each lane after `count` elements.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.take(3))
        [1, 3, 5]
        """
        parent = self._own_node()
        return self._then(LimitNode(parent, check_count(count, "take")))

    def skip(self, count: int) -> IterDataset[T]:
        """Skips the first `count` elements, including elements that fail.

        If the stream reads a random-access dataset without steps that drop elements (no
        filter, no flat map), `count` positions are skipped, and nothing is read. Otherwise
        the elements are made and dropped, but only once: a state after the first element
        remembers that.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.skip(3))
        [7, 9]
        """
        parent = self._own_node()
        return self._then(SkipNode(parent, check_count(count, "skip")))

    def skip_steps(
        self, ranges: Sequence[tuple[int, int]], *, state_step: int | None = None
    ) -> IterDataset[T]:
        """Leaves out ranges of steps, including both ends, numbered as without `skip_steps`.

        States of the stream without `skip_steps`, or with other ranges, can be restored: see
        "What was in that batch?" in the documentation, also for `state_step`.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(10).to_iter_dataset().skip_steps([(2, 4), (7, 7)]))
        [0, 1, 5, 6, 8, 9]
        """
        from bushel.order.skip_steps import skip_steps_node

        return self._then(skip_steps_node(self._own_node(), ranges, state_step))

    def enumerate(self, start: int = 0) -> IterDataset[tuple[int, T]]:
        """Makes pairs of the running count and the element.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(6).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.enumerate(start=1))
        [(1, 1), (2, 3), (3, 5)]
        """
        return self._then(EnumerateNode(self._own_node(), whole(start, "start")))

    def repeat(self, num_epochs: int | None = None) -> IterDataset[T]:
        """Repeats the stream `num_epochs` times, or for ever; each time is the same.

        With `MapDataset.repeat`, random steps differ from epoch to epoch.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(3).to_iter_dataset().repeat(2))
        [0, 1, 2, 0, 1, 2]
        """
        return self._then(repeat_step(self._own_node(), num_epochs))

    def unbatch(self) -> IterDataset[Any]:
        """Makes an element of each row of a batch; batches may have any number of them.

        The arrays of an element are views of those of its batch, not copies.

        >>> from bushel import MapDataset
        >>> batches = MapDataset.range(5).to_iter_dataset().batch(2).map(lambda x: x * 10)
        >>> [int(x) for x in batches.unbatch()]
        [0, 10, 20, 30, 40]
        """
        from bushel.batch.unbatch import UnbatchNode

        return self._then(UnbatchNode(self._own_node()))

    def windows(
        self, size: int, stride: int = 1, *, drop_remainder: bool = True
    ) -> IterDataset[Any]:
        """Joins `size` neighbours, then the `size` that begin `stride` further, and so on.

        Elements are stacked as in `batch`. With `drop_remainder=False`, elements at the end that
        do not fill a window make a shorter one.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.windows(3, stride=2))
        [array([1, 3, 5]), array([5, 7, 9])]
        """
        from bushel.order.windows import StreamWindowsNode, check_windows

        sizes = check_windows(size, stride)
        return self._then(StreamWindowsNode(self._own_node(), *sizes, bool(drop_remainder)))

    @explains(missing={"buffer_size": _BUFFER_SIZE})
    def shuffle(self, buffer_size: int, seed: int | None = None) -> IterDataset[T]:
        """Puts the elements of a stream in a random order, as far as a buffer allows.

        The next element is one of the last `2 * buffer_size` elements that were read, each about
        equally likely, while at most `buffer_size` elements wait in memory. A stream that ends
        before the buffer is full is shuffled as a whole. The place of an element depends only on
        the seed and its place in the input. So a state is a few numbers, and restoring it reads
        at most `2 * buffer_size` elements again.

        How well it mixes, on a sorted stream of 20 buffers: 100 elements in a row come from a
        range of 1.95 buffers, with a standard deviation of 0.56 buffers. Shuffled windows of
        the same size have 0.98 and 0.29, and their borders remain. A reservoir has 5.0 and 0.97,
        but its state is its whole contents. Where there is random access, use
        `MapDataset.shuffle`, which shuffles globally at no cost.

        Args:
          buffer_size: how many elements may wait in memory.
          seed: the seed of the order; derived from `ds.seed(...)` if there is none.

        >>> from bushel import MapDataset
        >>> stream = MapDataset.range(12).to_iter_dataset().shuffle(buffer_size=6, seed=2)
        >>> sorted(stream) == list(range(12))
        True
        """
        return self._then(shuffle_step(self._own_node(), buffer_size, seed))

    def cache(
        self, path: str | os.PathLike[str] | None = None, *, max_bytes: int | None = None
    ) -> IterDataset[T]:
        """Keeps the elements of the stream, so that the next epoch does not compute them again.

        >>> from bushel import MapDataset
        >>> from bushel.experimental import RepeatIterDataset
        >>> computed = []
        >>> ds = MapDataset.range(3).to_iter_dataset().map(lambda x: computed.append(x) or x)
        >>> list(RepeatIterDataset(ds.cache(), 2)), computed
        ([0, 1, 2, 0, 1, 2], [0, 1, 2])

        Without a path, each iterator keeps its elements in memory. With a path, the
        first iterator that reaches the end of the stream writes this file, and every later
        epoch, iterator, process and run reads it. The file holds arrays, numbers, strings, bytes
        and dicts, lists and tuples of those, without pickles, and no other elements. It appears
        only when it is complete. It is valid only for the steps before `cache`, including the
        code of their functions; another pipeline refuses it. (Code that those functions call,
        and the contents of files, are not compared: remove the cache file when these change.)

        States are the same with and without a file.

        Args:
          path: the file; its folder must exist.
          max_bytes: the most bytes to keep. In memory, elements that do not fit are computed
            each time; on disk, a stream that does not fit is not cached, with a warning.
        """
        from bushel.cache.cache import cache_step

        return self._then(cache_step(self._own_node(), path, max_bytes))

    def concat(self, *others: Dataset[T]) -> IterDataset[T]:
        """This stream, followed by the other streams.

        For a list of streams there is `IterDataset.concatenate`.

        >>> import bushel
        >>> odd = bushel.MapDataset.range(5).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.concat(bushel.MapDataset.range(10, 12), odd))
        [1, 3, 10, 11, 1, 3]
        """
        parts = _parts_of(self, others, "concat")
        return StreamNodeDataset(concatenate_step(parts), (self, *others))

    def interleave(self, *others: Dataset[T], cycle_length: int | None = None) -> IterDataset[T]:
        """Elements of this stream and of other streams in turn, one of each.

        With `cycle_length`, only that many streams are open at a time, and the next stream
        replaces one that ends. Otherwise all are open, and streams that end drop out.

        >>> import bushel
        >>> low, high = bushel.MapDataset.range(3), bushel.MapDataset.range(10, 15)
        >>> list(low.to_iter_dataset().interleave(high))
        [0, 10, 1, 11, 2, 12, 13, 14]
        """
        parts = _parts_of(self, others, "interleave")
        return StreamNodeDataset(interleave_step(parts, cycle_length), (self, *others))

    def _flat_map(self, transform: Any) -> IterDataset[Any]:
        return self._then(flat_map_step(stream_node(self), transform))

    def _own_node(self) -> Node:
        return stream_node(self)

    def _stream_node(self) -> Node:
        return stream_node(self)

    def _then(self, node: Node) -> IterDataset[Any]:
        return StreamNodeDataset(node, self)


class StreamNodeDataset(IterDataset[T]):
    """A stream that is a node; all of bushel's own are."""

    def __init__(self, node: Node, parents: Any = ()) -> None:
        super().__init__(parents)
        self._node = node

    def __iter__(self) -> DatasetIterator[T]:
        from bushel.deliver.open import iterate  # To build a dataset takes none of it.

        return iterate(self._node)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restricts a stream, right after `to_iter_dataset()`, to a slice of its positions.

        The dataset itself is changed, as Grain's is; programs that deal data to threads of their
        own call this on a copy. Sequentially, `slice(k, None, n)` means part k of n.
        """
        if not isinstance(self._node, ToStreamNode):
            raise PlanError(
                f"`set_slice` is for what `to_iter_dataset()` returns, and this is {self!r}. "
                "Write `ds[start:stop:step]` before `to_iter_dataset()`."
            )
        part = slice_of(self._node.input, sl, sequential_slice)
        self._node = replace(self._node, input=part)

    def __repr__(self) -> str:
        return f"IterDataset({shown(self._node)})"


# What Python's own messages say, as in "object of type 'IterDataset' has no len()".
StreamNodeDataset.__name__ = "IterDataset"


def stream_node(ds: Any) -> Node:
    """The node of a stream; a random-access dataset becomes one."""
    if isinstance(ds, StreamNodeDataset) and type(ds).__iter__ is StreamNodeDataset.__iter__:
        return ds._node
    if not isinstance(ds, Dataset):
        raise TypeError(f"this takes an `IterDataset`, and got a {type(ds).__name__}.")
    if not isinstance(ds, IterDataset):
        return ds._stream_node()
    parents = tuple(parent._own_node() for parent in getattr(ds, "_parents", ()))
    return CustomStreamNode(ds, parents)


def _parts_of(first: IterDataset[Any], others: Sequence[Any], method: str) -> tuple[Node, ...]:
    parts = [stream_node(first)]
    for number, other in enumerate(others, start=1):
        if not isinstance(other, Dataset):
            raise TypeError(
                f"`{method}` takes datasets, and argument {number} is a {type(other).__name__}: "
                f"{other!r:.100}. For a list of them, write `{method}(*datasets)`."
            )
        parts.append(stream_node(other))
    return tuple(parts)
