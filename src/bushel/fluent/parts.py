"""Parts of a dataset: some of its elements, numbered, taken apart, seen through a window."""

from __future__ import annotations

import operator
import os
import sys
from typing import Any, Generic, TypeVar

from bushel.batch.batch import BatchNode
from bushel.errors import PlanError
from bushel.fluent.chain import Chain
from bushel.node import Node
from bushel.order.repeat import INFINITE
from bushel.order.slice import SliceNode
from bushel.order.spread import StreamShuffleNode
from bushel.order.windows import OverlapNode, StreamWindowsNode, count_windows
from bushel.plan.chain import check_seed
from bushel.plan.parts import EnumerateNode, PresentNode, SkipNode, droppers
from bushel.plan.passes import LimitNode, StreamRepeatNode
from bushel.plan.seeds import default_seed
from bushel.plan.unbatch import UnbatchNode, batch_sizes

T = TypeVar("T")
Self = TypeVar("Self", bound=Chain)


class StreamParts(Chain, Generic[T]):
    """Methods of a stream that give some of its elements, or others of the same."""

    def take(self: Self, count: int) -> Self:
        """Ends the stream after `count` elements.

        Between `lanes` and `batch` it is so many of each lane, as all that is done there.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.take(3))
        [1, 3, 5]
        """
        parent = self._own_node()
        return self._then(LimitNode(parent, _check_count(count, "take")))  # type: ignore[no-any-return]

    def skip(self: Self, count: int) -> Self:
        """Passes over the first `count` elements; one that fails among them counts, too.

        Where the stream reads a random-access dataset in which nothing leaves elements out (no
        filter, no flat map), nothing is read, and it costs nothing: `count` positions are passed
        over, whatever is there. Otherwise elements are made and dropped, once: a state behind
        the first element knows that it was done.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.skip(3))
        [7, 9]
        """
        parent = self._own_node()
        return self._then(SkipNode(parent, _check_count(count, "skip")))  # type: ignore[no-any-return]

    def enumerate(self, start: int = 0) -> Any:
        """Makes pairs of the running count and the element.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(6).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.enumerate(start=1))
        [(1, 1), (2, 3), (3, 5)]
        """
        return self._then(EnumerateNode(self._own_node(), operator.index(start)))

    def repeat(self: Self, num_epochs: int | None = None) -> Self:
        """Goes over the stream so many times, or for ever; each time is the same.

        `MapDataset.repeat` differs from epoch to epoch where there are random steps.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(3).to_iter_dataset().repeat(2))
        [0, 1, 2, 0, 1, 2]
        """
        if num_epochs is not None and operator.index(num_epochs) <= 0:
            raise PlanError(f"num_epochs must be positive, but got {num_epochs}.")
        return self._then(StreamRepeatNode(self._own_node(), num_epochs))  # type: ignore[no-any-return]

    def unbatch(self) -> Any:
        """Makes an element of each row of a batch; batches may have any number of them.

        The arrays of an element are views of those of its batch, not copies.

        >>> from bushel import MapDataset
        >>> batches = MapDataset.range(5).to_iter_dataset().batch(2).map(lambda x: x * 10)
        >>> [int(x) for x in batches.unbatch()]
        [0, 10, 20, 30, 40]
        """
        return self._then(UnbatchNode(self._own_node()))

    def windows(self, size: int, stride: int = 1, *, drop_remainder: bool = True) -> Any:
        """Joins `size` neighbours, then the `size` that begin `stride` further, and so on.

        Elements are stacked as `batch` stacks them. With `drop_remainder=False` elements at the
        end that are in no whole window come as a shorter one.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2)
        >>> list(odd.windows(3, stride=2))
        [array([1, 3, 5]), array([5, 7, 9])]
        """
        sizes = _check_sizes(size, stride)
        return self._then(StreamWindowsNode(self._own_node(), *sizes, bool(drop_remainder)))

    def shuffle(self: Self, buffer_size: int, seed: int | None = None) -> Self:
        """Puts the elements of a stream in a random order, as far as a buffer allows.

        What comes next is one of the last `2 * buffer_size` elements that were read, each about
        equally likely, while at most `buffer_size` of them wait in memory. A stream that ends
        before the buffer is full is shuffled as a whole. Where an element goes depends on the
        seed and its place alone: a state is a few numbers, and to go on from one reads at most
        `2 * buffer_size` elements again, wherever it is.

        How well it mixes, on a sorted stream of 20 buffers: 100 elements in a row come from a
        stretch of 1.95 buffers, with a standard deviation of 0.56 buffers. Shuffled windows of
        the same size have 0.98 and 0.29, and their borders remain. A reservoir has 5.0 and 0.97,
        but no state other than all it holds. `MapDataset.shuffle` shuffles everything, for
        nothing: this is for streams without random access.

        Args:
          buffer_size: how many elements may wait.
          seed: what picks the order; derived from `ds.seed(...)` if there is none.

        >>> from bushel import MapDataset
        >>> stream = MapDataset.range(12).to_iter_dataset().shuffle(buffer_size=6, seed=2)
        >>> sorted(stream) == list(range(12))
        True
        """
        parent = self._own_node()
        size = operator.index(buffer_size)
        if size <= 0:
            raise PlanError(f"`shuffle`: buffer_size must be positive, and is {size}.")
        if seed is None:
            seed = default_seed((parent,), "shuffle")
        return self._then(StreamShuffleNode(parent, size, check_seed(seed, "shuffle")))  # type: ignore[no-any-return]


class MapParts(Chain, Generic[T]):
    """Methods of a random-access dataset that give some of its elements."""

    def take(self: Self, count: int) -> Self:
        """Keeps the first `count` elements of each epoch, or all if there are fewer.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(10).take(3))
        [0, 1, 2]
        """
        parent = self._own_node()
        stop = min(_check_count(count, "take"), parent.length())
        return self._then(SliceNode(parent, 0, stop, 1))  # type: ignore[no-any-return]

    def skip(self: Self, count: int) -> Self:
        """Leaves out the first `count` elements of each epoch, at no cost.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(10).skip(7))
        [7, 8, 9]
        """
        parent = self._own_node()
        length = parent.length()
        start = min(_check_count(count, "skip"), length)
        return self._then(SliceNode(parent, start, length, 1))  # type: ignore[no-any-return]

    def enumerate(self, start: int = 0) -> Any:
        """Makes pairs of the position, counted from `start`, and the element.

        Positions go on through later epochs. What a filter dropped is counted, and stays None.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(10, 13).enumerate())
        [(0, 10), (1, 11), (2, 12)]
        """
        return self._then(EnumerateNode(self._own_node(), operator.index(start)))

    def unbatch(self, batch_size: int | None = None) -> Any:
        """Makes an element of each row of a batch.

        To read one row makes its whole batch; rows that are read one after the other share it.

        Args:
          batch_size: how many rows each batch has, where no `batch` upstream tells.

        >>> from bushel import MapDataset
        >>> rows = MapDataset.range(5).batch(2).map(lambda x: x * 10).unbatch()
        >>> len(rows), int(rows[3])
        (5, 30)
        """
        parent = self._own_node()
        size, last = _sizes_of_batches(parent, batch_size)
        node: Node = UnbatchNode(parent, size, last)
        if last < size:
            node = SliceNode(node, 0, (parent.length() - 1) * size + last, 1)
        if not any(droppers(parent)):
            node = PresentNode(node, "`unbatch()` found no row here.")
        return self._then(node)

    def windows(self, size: int, stride: int = 1, *, drop_remainder: bool = True) -> Any:
        """Joins `size` neighbours, then the `size` that begin `stride` further, and so on.

        Elements are stacked as `batch` stacks them, and windows lie within one epoch. With
        `drop_remainder=False` elements at the end that are in no whole window come as a shorter
        one.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(7).windows(3, stride=2))
        [array([0, 1, 2]), array([2, 3, 4]), array([4, 5, 6])]
        """
        parent = self._own_node()
        size, stride = _check_sizes(size, stride)
        for step in droppers(parent):
            raise PlanError(
                f"`windows({size})` cannot follow `{step.label}` on a random-access dataset: it "
                "may leave elements out, so window 0 has no known members. Call `.compact()` "
                "between the two, or `.to_iter_dataset()`."
            )
        length = parent.length()
        if not any(count_windows(length, size, stride, bool(drop_remainder))):
            raise PlanError(
                f"`windows({size})` of a dataset of {length} elements: there is no whole window. "
                "Take a smaller size, or `drop_remainder=False`."
            )
        laid_out = OverlapNode(parent, size, stride, bool(drop_remainder))
        return self._then(BatchNode(laid_out, size))

    def compact(self: Self, *, cache: str | os.PathLike[str] | None = None) -> Self:
        """Leaves out, for good, the elements that a filter dropped.

        What follows is random access again: positions have no gaps, the length is that of what
        is left, and `batch`, `shuffle`, slices and `windows` may follow.

        Which elements are left is found by one pass over the dataset as it is up to here, when
        an element or the length is first needed; so put it right behind the filter, and what is
        costly or random behind it. The answers are kept in memory, 4 bytes for each element
        that is left, and travel to workers. An element that fails in that pass is taken for one
        that is left, and fails again where it is read.

        With a random order before it, every epoch needs a pass of its own. All epochs must have
        as many elements as the first.

        Args:
          cache: a file in which the answers are kept for the next time. It is made anew when
            the steps before, their functions, the files or the length of the data are others;
            what it cannot notice is other data of the same name and length. Remove it then.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(10).filter(lambda x: x % 2).compact()
        >>> len(odd), list(odd.shuffle(seed=1).batch(2))
        (5, [array([3, 5]), array([7, 1]), array([9])])
        """
        parent = self._own_node()
        if parent.length() == INFINITE:
            raise PlanError(
                "`compact()` must look at every element, and this dataset is infinite. Call "
                "`compact()` before `repeat()`."
            )
        from bushel.run.compact import compacted  # It runs what it is asked about.

        return self._then(compacted(parent, cache))  # type: ignore[no-any-return]


def _check_count(count: Any, operation: str) -> int:
    whole: int = operator.index(count)
    if whole < 0:
        raise PlanError(f"`{operation}` takes a number of elements, and got {whole}.")
    return whole


def _check_sizes(size: Any, stride: Any) -> tuple[int, int]:
    size, stride = operator.index(size), operator.index(stride)
    if not 0 < size <= sys.maxsize or not 0 < stride <= sys.maxsize:
        raise PlanError(
            f"`windows`: size and stride must be positive, and are {size} and {stride}. (No "
            f"dataset has more than {sys.maxsize} elements.)"
        )
    return size, stride


def _sizes_of_batches(parent: Node, batch_size: int | None) -> tuple[int, int]:
    """How many rows batches have, and the last one."""
    if batch_size is not None:
        size = operator.index(batch_size)
        if size <= 0:
            raise PlanError(f"`unbatch`: batch_size must be positive, and is {size}.")
        return size, size
    known = batch_sizes(parent)
    if known is None:
        raise PlanError(
            f"`unbatch()` on a random-access dataset needs batches of one known size, and behind "
            f"`{parent.label}` it is not known, or the last one is shorter and may be anywhere. "
            "Write `batch(..., drop_remainder=True)`, or `unbatch(batch_size)` where all batches "
            "have it; or call `.to_iter_dataset()` before `unbatch()`."
        )
    return known
