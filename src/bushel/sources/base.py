"""What a source is: a length, and records by key; many at a time where it can."""

from typing import Protocol, TypeVar, runtime_checkable

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
