"""`pinned`: the first records of a source that has grown."""

from collections.abc import Sequence
from typing import Any, SupportsIndex

from bushel.core.arguments import whole
from bushel.core.naming import source_name
from bushel.errors import PlanError


class Pinned:
    """The first records of a source, under its own name: the source before it grew.

    >>> records = Pinned(["a", "b", "c"], 2)
    >>> len(records), records[1], records.bushel_stands_for()
    (2, 'b', 'list')
    """

    def __init__(self, source: Any, length: int) -> None:
        length = whole(length, "length")
        if not 0 < length <= len(source):
            raise PlanError(
                f"`pinned` keeps the first records of a source, here {length} of {len(source)}: "
                "the length must be between 1 and that of the source."
            )
        self._source, self._length = source, length

    def bushel_stands_for(self) -> str:
        """The name of the source in states."""
        return source_name(self._source)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Any:
        number = whole(index, "a key")
        if not -self._length <= number < self._length:
            raise IndexError(f"key {number} is beyond the {self._length} records that are kept.")
        return self._source[number + self._length if number < 0 else number]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Records of many keys, in one call if the source can."""
        many = getattr(self._source, "__getitems__", None)
        if many is None:
            return [self[index] for index in indices]
        if len(indices) and not 0 <= min(indices) <= max(indices) < self._length:
            raise IndexError(f"a key is beyond the {self._length} records that are kept.")
        records: Sequence[Any] = many(indices)
        return records

    def __repr__(self) -> str:
        return f"pinned({self._source!r}, {self._length})"
