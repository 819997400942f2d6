"""Which row groups are read together: small ones of one file or of many.

A group is the unit that can be read from a file: a row group, a record batch. Opening a file takes
longer than decoding a few rows of it, so records in any order of thousands of small files would
take an opened file each. Small neighbours make one part, which is read as a whole and cached as a
whole:

    files    a      b    c    d        e
    groups   0   1  2    3    4        5
    parts    0   ───── 1 ────          2
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bushel.core.positions import Keys

# The most groups in a bundle. Reading them takes some milliseconds, as long as decoding a usual row
# group.
_MOST_GROUPS = 64
_MOST_BYTES = 1 << 20
# A group of this size is worth opening a file for it.
_SMALL_BYTES = 1 << 17
# The least number of bundles that fit into the cache.
_LEAST_KEPT = 64


class Span(NamedTuple):
    """Groups from `first` up to `stop`."""

    first: int
    stop: int


class Bundles:
    """The parts that rows are in.

    Args: rows: of each group. stops: the end of each part, as a number of groups.
    """

    def __init__(self, rows: Keys, stops: Keys) -> None:
        self._rows, self._stops = rows, stops
        total = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        # Rows up to the end of each part.
        self.ends: Keys = total[stops]

    @classmethod
    def of(cls, rows: Sequence[int], sizes: Sequence[int], cache_bytes: int) -> "Bundles":
        """Joins small neighbours.

        >>> bundles = Bundles.of([4, 4, 1000, 4], [32, 32, 10**6, 32], 10**8)
        >>> [bundles.span(part) for part in range(3)]
        [Span(first=0, stop=2), Span(first=2, stop=3), Span(first=3, stop=4)]
        >>> bundles.ends
        array([   8, 1008, 1012])

        Args: rows: of each group. sizes: bytes of each group when it is decoded, as far as known.
        cache_bytes: the size of the cache in memory.
        """
        most_bytes = min(_MOST_BYTES, cache_bytes // _LEAST_KEPT)
        small = min(_SMALL_BYTES, most_bytes)
        stops: list[int] = []
        count, total = 0, 0
        for group, size in enumerate(sizes):
            is_small = 0 <= size <= small
            if count and not (is_small and count < _MOST_GROUPS and total + size <= most_bytes):
                stops.append(group)
                count, total = 0, 0
            # After a large group, the bundle is full.
            count, total = count + 1, total + size if is_small else most_bytes + 1
        if sizes:
            stops.append(len(sizes))
        return cls(np.array(rows, np.int64), np.array(stops, np.int64))

    def span(self, part: int) -> Span:
        """The groups of a part."""
        return Span(int(self._stops[part - 1]) if part else 0, int(self._stops[part]))

    def without(self, span: Span) -> "Bundles":
        """The same parts, but each group of this bundle by itself."""
        inside = np.arange(span.first + 1, span.stop, dtype=np.int64)
        return Bundles(self._rows, np.union1d(self._stops, inside))
