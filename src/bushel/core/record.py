"""`Record`, an element of the loader's older operations: data and metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(slots=True)
class RecordMetadata:
    """Index in the sampler's order, key in the source, and a generator for one record."""

    index: int
    record_key: Any = None
    rng: np.random.Generator | None = None

    def remove_record_key(self) -> RecordMetadata:
        """Returns a copy without the key (itself, if it has none).

        >>> RecordMetadata(index=1, record_key=7).remove_record_key()
        RecordMetadata(index=1, record_key=None, rng=None)
        """
        if self.record_key is None:
            return self
        return RecordMetadata(index=self.index, record_key=None, rng=self.rng)

    def __str__(self) -> str:
        return f"RecordMetadata(index={self.index}, record_key={self.record_key}, rng={self.rng!s})"


@dataclass(slots=True)
class Record(Generic[T]):
    """An element together with its metadata."""

    metadata: RecordMetadata
    data: T
