"""The classes that users subclass: `Map`, `Filter`, `RandomMap`, `FlatMap`, `MapBatches`.

An instance stands wherever a function may: `ds.map(MyMap())`, `ds.apply([...])`, and in the
`operations` of a `DataLoader`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bushel.errors import PlanError


class Map(ABC):  # noqa: B024
    """Changes each element into another.

    >>> class Double(Map):
    ...     def map(self, element):
    ...         return 2 * element
    """

    if TYPE_CHECKING:  # A class calls its parameters what it likes.

        @abstractmethod
        def map(self, element: Any, /) -> Any: ...
    else:

        @abstractmethod
        def map(self, element: Any) -> Any:
            """Returns the new element."""


class MapWithIndex(ABC):  # noqa: B024
    """Changes each element, knowing its position."""

    if TYPE_CHECKING:  # A class calls its parameters what it likes.

        @abstractmethod
        def map_with_index(self, index: int, element: Any, /) -> Any: ...
    else:

        @abstractmethod
        def map_with_index(self, index: int, element: Any) -> Any:
            """Returns the new element."""


class RandomMap(ABC):  # noqa: B024
    """Changes each element with random numbers that depend on seed and position alone."""

    if TYPE_CHECKING:  # A class calls its parameters what it likes.

        @abstractmethod
        def random_map(self, element: Any, rng: np.random.Generator, /) -> Any: ...
    else:

        @abstractmethod
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            """Returns the new element. The generator is good during this call only."""


class TfRandomMap(ABC):
    """The older form of `RandomMap`; only `DataLoader` takes it."""

    @abstractmethod
    def np_random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """Returns the new element."""


class Filter(ABC):  # noqa: B024
    """Keeps the elements for which it says so."""

    if TYPE_CHECKING:  # A class calls its parameters what it likes.

        @abstractmethod
        def filter(self, element: Any, /) -> bool: ...
    else:

        @abstractmethod
        def filter(self, element: Any) -> bool:
            """Returns whether to keep the element."""


class FlatMap(ABC):
    """Makes several elements of each one; `max_fan_out` says how many at most."""

    max_fan_out: int

    if TYPE_CHECKING:  # A class calls its parameters what it likes.

        @abstractmethod
        def flat_map(self, element: Any, /) -> Sequence[Any]: ...
    else:

        @abstractmethod
        def flat_map(self, element: Any) -> Sequence[Any]:
            """Returns the new elements."""


class MapBatches(ABC):  # noqa: B024
    """Changes a whole block of elements at once, given as columns.

    The function gets a tree of arrays with a common leading axis, however long bushel chose
    the block to be, and returns such a tree of the same length. It must be element-wise:
    row i of the result may depend on row i of the argument only.

    >>> class Normalise(MapBatches):
    ...     def map_batches(self, columns):
    ...         return {**columns, "image": columns["image"] / 255}
    """

    if TYPE_CHECKING:  # A class calls its parameters what it likes.

        @abstractmethod
        def map_batches(self, columns: Any, /) -> Any: ...
    else:

        @abstractmethod
        def map_batches(self, columns: Any) -> Any:
            """Returns the new columns, of the same length."""


@dataclass(frozen=True)
class Batch:
    """Groups neighbours into batches.

    >>> Batch(2)
    Batch(batch_size=2, drop_remainder=False, batch_fn=None)
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Any]], Any] | None = None

    def __post_init__(self) -> None:
        if self.batch_size <= 0:
            raise PlanError(f"batch_size must be positive. Got {self.batch_size}.")


class DatasetSelectionMap(ABC):
    """Says, for each position of a mixture, which dataset and which position in it to take."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of positions."""

    @abstractmethod
    def __getitem__(self, index: int) -> tuple[int, int]:
        """Returns the number of a dataset and a position in it."""


Transformation: TypeAlias = (
    Batch | Map | RandomMap | TfRandomMap | Filter | FlatMap | MapWithIndex | MapBatches
)
Transformations: TypeAlias = Sequence[Transformation]
