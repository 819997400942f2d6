"""What a source is: a length, and records by key; many at a time where it can."""

from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeVar, runtime_checkable

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class RandomAccessDataSource(Protocol[T_co]):
    """Anything with a length and records by index.

    A source may also have `__getitems__(indices)`, which returns a list of many records in
    one call; bushel then reads whole blocks with it.
    """

    def __len__(self) -> int:
        """Number of records."""

    def __getitem__(self, index: int) -> T_co:
        """The record at an index from 0 to the length."""


class ColumnSource(ABC):
    """A source that may be a tree of equally long arrays, to be read as such."""

    @property
    @abstractmethod
    def columns(self) -> Any:
        """The arrays, or None where records are apart."""
