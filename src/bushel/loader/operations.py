"""Grain's older operations of a `DataLoader`: `MapOperation`, `BatchOperation`, and others.

The classes in `bushel.transforms` say the same in a simpler way; a loader runs both alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bushel.batch.packing import Bins, Feature, Packing
from bushel.core.record import Record
from bushel.core.stack import stack
from bushel.core.tree import leaves_with_paths, map_leaves
from bushel.errors import PlanError

_log = logging.getLogger("bushel")


class Operation(Protocol):
    """Anything that turns an iterator of Records into another."""

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Runs the operation."""


@dataclass(frozen=True)
class MapOperation:
    """Applies a function to the data of each Record."""

    map_function: Callable[[Any], Any]

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        _deprecate("MapOperation", "transforms.Map")
        for record in input_iterator:
            yield Record(record.metadata.remove_record_key(), self.map_function(record.data))


@dataclass(frozen=True)
class RandomMapOperation:
    """Applies a function to the data of each Record and its random generator."""

    random_map_function: Callable[[Any, np.random.Generator], Any]

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        _deprecate("RandomMapOperation", "transforms.RandomMap")
        for record in input_iterator:
            rng: Any = record.metadata.rng
            data = self.random_map_function(record.data, rng)
            yield Record(record.metadata.remove_record_key(), data)


@dataclass(frozen=True)
class FilterOperation:
    """Keeps Records whose data satisfies a function."""

    condition_function: Callable[[Any], bool]

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        _deprecate("FilterOperation", "transforms.Filter")
        for record in input_iterator:
            if self.condition_function(record.data):
                yield Record(record.metadata.remove_record_key(), record.data)


@dataclass
class BatchOperation:
    """Groups the data of neighbouring Records."""

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Any]], Any] | None = None

    def __post_init__(self) -> None:
        if self.batch_size <= 0:
            raise PlanError(f"batch_size must be positive. Got {self.batch_size}.")
        self._silent = False

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        if not self._silent:
            _deprecate("BatchOperation", "transforms.Batch")
        join = self.batch_fn or stack
        pending: list[Record[Any]] = []
        for record in input_iterator:
            pending.append(record)
            if len(pending) == self.batch_size:
                yield _joined(pending, join)
                pending = []
        if pending and not self.drop_remainder:
            yield _joined(pending, join)

    def disable_deprecation_message(self) -> None:
        """Switches off the message that this operation is an older form."""
        self._silent = True


def _joined(records: list[Record[Any]], join: Callable[[list[Any]], Any]) -> Record[Any]:
    data = join([record.data for record in records])
    return Record(records[-1].metadata.remove_record_key(), data)


@dataclass
class PackAndBatchOperation:
    """Packs sequences into the rows of batches, each into the first row with room for it.

    The data of a Record becomes three trees like it: the rows, which of its sequences each
    cell belongs to (from 1; 0 is padding), and its place in that.
    """

    length_struct: Any
    batch_size: int
    max_sequences_per_bin: int | None = None
    _cur_batch: Any = None

    def __post_init__(self) -> None:
        most = self.max_sequences_per_bin
        if self.batch_size <= 0 or (most is not None and most <= 0):
            raise PlanError(
                "`batch_size` and `max_sequences_per_bin` must be positive, and are "
                f"{self.batch_size} and {most}."
            )

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        _deprecate("PackAndBatchOperation", "experimental.FirstFitPackIterDataset")
        features = [
            Feature(path, int(length), 1, None, has_ids=True)
            for path, length in leaves_with_paths(self.length_struct)
        ]
        packing = Packing(features, [], self.batch_size, False, self.max_sequences_per_bin)
        bins, last = packing.begin(), None
        for record in input_iterator:
            if not bins.add(record.data):
                assert last is not None
                yield Record(last.metadata.remove_record_key(), self._batch(bins))
                bins = packing.begin()
                bins.add(record.data)
            last = record
        if last is not None:
            yield Record(last.metadata.remove_record_key(), self._batch(bins))

    def _batch(self, bins: Bins) -> tuple[Any, Any, Any]:
        count = len(list(leaves_with_paths(self.length_struct)))
        tables = [bins.table(number, self.batch_size) for number in range(count)]
        rows, ids, places = (self._tree([table[part] for table in tables]) for part in range(3))
        return rows, ids, places

    def _tree(self, leaves: list[Any]) -> Any:
        following = iter(leaves)
        return map_leaves(lambda _: next(following), self.length_struct)


def _deprecate(old: str, new: str) -> None:
    _log.warning("%s is an older form; use %s.", old, new)
