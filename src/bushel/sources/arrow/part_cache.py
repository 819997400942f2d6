"""The cache of decoded row groups in memory, bounded by bytes."""

from collections.abc import Callable
from typing import TypeVar

from bushel.core.per_process import PerProcess
from bushel.sources.arrow.table_parts import TablePart

# Parts that are views of files need no memory, but a mapping each, of which Linux allows 65,530: so
# each counts as a share of the limit.
_MOST_VIEWS = 16384


K = TypeVar("K")


class PartCache(PerProcess[K, TablePart]):
    """Keeps the most recently used parts, up to a number of bytes in each process.

    >>> loads = []
    >>> def load(number, again):
    ...     loads.append((number, again))
    ...     return TablePart([], nbytes=60)
    >>> cache = PartCache(100, load)
    >>> for number in (1, 1, 2, 1):
    ...     _ = cache.get(number)
    >>> loads
    [(1, False), (2, False), (1, True)]

    Args: most_bytes: the limit. One part may be larger; then it is kept alone. load: makes a part.
    It is told whether the part was made before, and had to be dropped.
    """

    def __init__(self, most_bytes: int, load: Callable[[K, bool], TablePart]) -> None:
        super().__init__(most_bytes)
        self._load = load

    def _begin(self) -> None:
        super()._begin()
        self._made_before: set[K] = set()

    def _make(self, key: K) -> TablePart:
        part = self._load(key, key in self._made_before)
        self._made_before.add(key)
        return part

    def _weigh(self, value: TablePart) -> float:
        return max(value.nbytes, self.most / _MOST_VIEWS)
