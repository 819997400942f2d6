"""The protocol of a source: a length and records by key, many at a time where it can."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from bushel.core.node import Source
from bushel.core.positions import Keys, Positions, split_epochs
from bushel.core.tree import Path, show_path
from bushel.errors import EmptyDatasetError, PlanError

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class RandomAccessDataSource(Protocol[T_co]):
    """Anything with a length and records by index.

    A source may also have `__getitems__(indices)`, which returns a list of many records in
    one call; bushel then reads whole blocks with it. And it may have `records_at_a_time`, a
    number: if it is faster when it is asked for so many at once.
    """

    def __len__(self) -> int:
        """Number of records."""

    if TYPE_CHECKING:  # A list is a source as well, and its index has no name.

        def __getitem__(self, index: int, /) -> T_co: ...
    else:

        def __getitem__(self, index: int) -> T_co:
            """The record at an index from 0 to the length."""


class FileSource(Protocol):
    """What `bushel.open` returns: the records of files, by key, and where they are."""

    def __len__(self) -> int:
        """Number of records."""

    def __getitem__(self, index: int, /) -> Any:
        """The record at an index from 0 to the length."""

    def __getitems__(self, indices: Sequence[int], /) -> Sequence[Any]:
        """Many records in one call, in the order of the indices."""

    def place_of(self, key: int, /) -> tuple[str, int, int | None]:
        """The file of a record, its number in it, and its first byte where that is known."""


class ColumnSource(ABC):
    """A source that may be a tree of equally long arrays, to be read as such."""

    @property
    @abstractmethod
    def columns(self) -> Any:
        """The arrays, or None where records are apart."""


@runtime_checkable
class ColumnReader(Protocol):
    """A source that can read many records as columns, where they have such.

    The columns are those that a stack of the records would give, so no strings or objects are
    among them.
    """

    def read_columns(self, keys: Keys) -> Any:
        """A tree of arrays, row i of which is the record with key i; None to read records."""

    def __len__(self) -> int:
        """Number of records."""

    def __getitem__(self, index: int) -> Any:
        """The record at an index from 0 to the length."""


def check_equally_long(leaves: Sequence[tuple[Path, Any]]) -> None:
    """Refuses columns with different lengths, or without one."""
    lengths = {show_path(path): len(leaf) if leaf.ndim else None for path, leaf in leaves}
    if len(set(lengths.values())) > 1 or None in lengths.values():
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise PlanError(
            f"the columns of a source must be equally long, and these are not: {shown}. (For "
            "a sequence of arrays, one a record, give a list.)"
        )


def wrap(positions: Positions, length: int, node: Source) -> Keys:
    """Maps positions of any epoch to keys."""
    if not length:
        raise EmptyDatasetError(f"`{node.label}` is empty: it has no element at any position.")
    return split_epochs(positions, length)[1]
