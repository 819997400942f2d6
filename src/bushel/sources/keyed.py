"""The base class of sources that read many records at a time: checks keys, groups them by file."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys, distinct


class KeyedSource(ABC):
    """Records by keys, counted from 0."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @abstractmethod
    def _records(self, keys: Keys) -> list[Any]:
        """Reads the records with these keys, which exist."""

    def __getitem__(self, index: SupportsIndex) -> Any:
        return self._records(self._checked([operator.index(index)]))[0]

    # `__getitems__` takes keys as an array, too.
    takes_arrays = True

    def __getitems__(self, indices: Sequence[int] | Keys) -> list[Any]:
        """Many records in one call."""
        return self._records(self._checked(indices))

    def _checked(self, indices: Sequence[int] | Keys) -> Keys:
        """The keys as an array; an error if there is no such record."""
        keys = np.asarray(indices)
        if not len(keys):
            return np.empty(0, dtype=np.int64)
        if keys.dtype.kind not in "iu":
            raise TypeError(f"keys are whole numbers, and {indices[0]!r} is among them.")
        keys = keys.astype(np.int64, copy=False)
        if not (keys.min() >= 0 and keys.max() < len(self)):
            wrong = keys[(keys < 0) | (keys >= len(self))][0]
            raise IndexError(f"{self} has no record {wrong}; it has {len(self):,}.")
        return keys


def by_part(keys: Keys, ends: Keys) -> Iterator[tuple[int, Keys, Keys]]:
    """Distributes keys over joined parts: the part, places among the keys, keys in it.

    >>> [
    ...     (part, *map(np.ndarray.tolist, rest))
    ...     for part, *rest in by_part(np.array([7, 0, 5]), np.array([5, 5, 9]))
    ... ]
    [(0, [1], [0]), (2, [0, 2], [2, 0])]
    """
    if len(ends) == 1 and len(keys):
        yield 0, np.arange(len(keys)), keys
        return
    which = ends.searchsorted(keys, side="right")
    numbers = distinct(which).tolist()
    for number in numbers:
        first = int(ends[number - 1]) if number else 0
        if len(numbers) == 1:
            yield number, np.arange(len(keys)), keys - first
            return
        places = np.flatnonzero(which == number)
        yield number, places, keys[places] - first


def rows_of(array: npt.NDArray[Any], rows: Keys) -> npt.NDArray[Any]:
    """Rows of an array, copied. They are known to exist."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array.take(rows, 0, None, "clip")
    # For any other array, `take` copies the whole first.
    chosen: npt.NDArray[Any] = array[rows]
    return chosen


def shown_files(paths: Iterable[str]) -> str:
    """The files of a source, as text.

    >>> shown_files(["a.npy", "b.npy"])
    "'a.npy', 2 files"
    """
    paths = list(paths)
    return f"{paths[0]!r}, {len(paths):,} file{'s' * (len(paths) != 1)}"
