"""`take`, `skip`, `enumerate`, `unbatch`, `windows` and `compact` of random-access datasets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bushel.batch.batch import BatchNode
from bushel.core.arguments import whole
from bushel.core.node import Node
from bushel.dataset.base import Dataset, T
from bushel.order.slice import SliceNode
from bushel.order.take import check_count
from bushel.transforms.enumerate import EnumerateNode

if TYPE_CHECKING:
    from bushel.dataset.random_access import MapDataset


class Parts(Dataset[T]):
    """Methods of a random-access dataset that give some of its elements, or others of the same."""

    if TYPE_CHECKING:

        def _then(self, node: Node) -> MapDataset[Any]: ...

    def take(self, count: int) -> MapDataset[T]:
        """Keeps the first `count` elements of each epoch, or all if there are fewer.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(10).take(3))
        [0, 1, 2]
        """
        parent = self._own_node()
        stop = min(check_count(count, "take"), parent.length())
        return self._then(SliceNode(parent, 0, stop, 1))

    def skip(self, count: int) -> MapDataset[T]:
        """Leaves out the first `count` elements of each epoch, at no cost.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(10).skip(7))
        [7, 8, 9]
        """
        parent = self._own_node()
        length = parent.length()
        start = min(check_count(count, "skip"), length)
        return self._then(SliceNode(parent, start, length, 1))

    def enumerate(self, start: int = 0) -> MapDataset[tuple[int, T]]:
        """Makes pairs of the position, counted from `start`, and the element.

        Positions go on through later epochs. Dropped elements are counted, and stay None.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(10, 13).enumerate())
        [(0, 10), (1, 11), (2, 12)]
        """
        return self._then(EnumerateNode(self._own_node(), whole(start, "start")))

    def unbatch(self, batch_size: int | None = None) -> MapDataset[Any]:
        """Makes an element of each row of a batch.

        Reading one row makes its whole batch; rows that are read one after the other share it.

        Args:
          batch_size: the number of rows in each batch, if there is no `batch` upstream.

        >>> from bushel import MapDataset
        >>> rows = MapDataset.range(5).batch(2).map(lambda x: x * 10).unbatch()
        >>> len(rows), int(rows[3])
        (5, 30)
        """
        from bushel.batch.unbatch import unbatch_by_position

        return self._then(unbatch_by_position(self._own_node(), batch_size))

    def windows(
        self, size: int, stride: int = 1, *, drop_remainder: bool = True
    ) -> MapDataset[Any]:
        """Joins `size` neighbours, then the `size` that begin `stride` further, and so on.

        Elements are stacked as in `batch`, and each window is within one epoch. With
        `drop_remainder=False`, elements at the end that do not fill a window make a shorter one.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(7).windows(3, stride=2))
        [array([0, 1, 2]), array([2, 3, 4]), array([4, 5, 6])]
        """
        from bushel.order.windows import windows_by_position

        laid_out = windows_by_position(self._own_node(), size, stride, bool(drop_remainder))
        return self._then(BatchNode(laid_out, laid_out.size))

    def compact(self, *, cache: str | os.PathLike[str] | None = None) -> MapDataset[T]:
        """Removes the gaps that a filter left, so that all positions have elements again.

        After it there is random access without gaps: the length is the number of elements that
        were kept, and `batch`, `shuffle`, slices and `windows` may follow.

        The elements that the filter keeps are found by one pass over the dataset up to here, when
        an element or the length is first needed. So put `compact` right after the filter, and
        costly or random steps after it. The positions are kept in memory, 4 bytes for each
        element (8 beyond 2^32 elements), and sent to workers. An element that fails in that pass
        counts as kept, and fails again where it is read.

        With a random order before it, every epoch needs its own pass. All epochs must have
        as many elements as the first.

        Args:
          cache: a file in which the positions are kept for the next run. It is made again when
            the steps before, their functions, the files or the length of the data have changed.
            It does not notice changed data of the same name and length: remove the file then.

        >>> from bushel import MapDataset
        >>> odd = MapDataset.range(10).filter(lambda x: x % 2).compact()
        >>> len(odd), list(odd.shuffle(seed=1).batch(2))
        (5, [array([3, 5]), array([7, 1]), array([9])])
        """
        from bushel.run.compact import compacted  # It runs what it is asked about.

        return self._then(compacted(self._own_node(), cache))
