"""What a source is: a length, and records by key; many at a time where it can."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from bushel.errors import PlanError
from bushel.tree import Path, show_path

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


def check_equally_long(leaves: Sequence[tuple[Path, Any]]) -> None:
    """Refuses columns of which one is longer than another, or has no length."""
    lengths = {show_path(path): len(leaf) if leaf.ndim else None for path, leaf in leaves}
    if len(set(lengths.values())) > 1 or None in lengths.values():
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise PlanError(
            f"the columns of a source must be equally long, and these are not: {shown}. (For "
            "a sequence of arrays, one a record, give a list.)"
        )
