"""Samplers of a `DataLoader`: from a global index to a record's key and random generator."""

import logging
import operator
import sys
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from bushel.core.arguments import whole
from bushel.core.node import Found
from bushel.core.positions import Keys, Positions, before, split_epochs
from bushel.core.record import RecordMetadata
from bushel.core.rng import generator_for_key
from bushel.errors import EmptyDatasetError, PlanError
from bushel.order.permutation import permute
from bushel.order.unpermute import unpermute
from bushel.sharding import NoSharding, ShardOptions, even_split

_log = logging.getLogger("bushel")


class Sampler(Protocol):
    """What a loader asks of a sampler: metadata by step."""

    def __getitem__(self, index: int) -> RecordMetadata:
        """The record at this step, counted over all shards."""


class _BlockSampler:
    """What bushel's samplers have in common: many steps located in one call."""

    _num_records: int
    _shard_options: ShardOptions
    _seed: int | None
    _max_index: int | None

    def locate(self, indices: Positions) -> Keys:
        raise NotImplementedError

    def __getitem__(self, index: int) -> RecordMetadata:
        index = operator.index(index)
        if index < 0 or (self._max_index is not None and index >= self._max_index):
            raise IndexError(
                f"a sampler's index must be in [0, {self._max_index}), and is {index}."
            )
        return self.metadata(np.array([index], dtype=np.int64))[0]

    def metadata(self, indices: Positions) -> list[RecordMetadata]:
        """The records at many steps, which are in range."""
        seed = self._seed
        return [
            RecordMetadata(index, key, None if seed is None else generator_for_key(seed + index))
            for index, key in zip(indices.tolist(), self.locate(indices).tolist(), strict=True)
        ]

    def __iter__(self) -> Iterator[RecordMetadata]:
        # Not by Python's fallback, which takes any IndexError for the end: an empty shard
        # raises one too.
        return map(self.__getitem__, range(len(self)))

    def __len__(self) -> int:
        return sys.maxsize if self._max_index is None else self._max_index


def _check_records(num_records: int) -> int:
    count = whole(num_records, "num_records")
    if count <= 0:
        raise PlanError(
            f"Invalid number of records in Sampler. Got {count} records, but number of records "
            "must be greater than 0."
        )
    return count


def _check_shard_options(options: ShardOptions) -> ShardOptions:
    if not isinstance(options, ShardOptions):
        raise TypeError(
            f"shard_options must be `ShardOptions`, and is {options!r}. For the whole data, "
            "write `NoSharding()`."
        )
    return options


class SequentialSampler(_BlockSampler):
    """Step i is record i, one epoch.

    >>> SequentialSampler(3)[2].record_key
    2
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008  (immutable)
        seed: int | None = None,
    ) -> None:
        self._num_records = _check_records(num_records)
        self._shard_options = _check_shard_options(shard_options)
        self._seed = None if seed is None else whole(seed, "seed")
        self._max_index = self._num_records
        if shard_options.drop_remainder:
            self._max_index -= self._num_records % shard_options.shard_count

    def locate(self, indices: Positions) -> Keys:
        return indices

    def find(self, keys: Keys, index: int, count: int, stop: int) -> Found:
        """At which steps, before `stop`, shard `index` of `count` has these keys; and which."""
        steps, others = np.divmod(keys - index, count)
        mine = np.flatnonzero((others == 0) & (steps >= 0) & (keys < len(self)))
        found, which = before(steps.take(mine), stop)
        return found, mine.take(which)

    def __repr__(self) -> str:
        return (
            f"SequentialSampler(num_records={self._num_records}, "
            f"shard_options={self._shard_options!r})"
        )


class IndexSampler(_BlockSampler):
    """Each shard reads its own contiguous part of the records, shuffled if so wished.

    Step x belongs to shard x % shard_count. Every epoch is shuffled anew; without
    `num_epochs` there is no end.

    >>> sampler = IndexSampler(5, shuffle=True, seed=1, num_epochs=1)
    >>> [sampler[x].record_key for x in range(5)]
    [1, 2, 3, 0, 4]
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NoSharding(),  # noqa: B008  (immutable)
        shuffle: bool = False,
        num_epochs: int | None = None,
        seed: int | None = None,
    ) -> None:
        self._num_records = _check_records(num_records)
        self._shard_options = _check_shard_options(shard_options)
        if num_epochs is not None and whole(num_epochs, "num_epochs") <= 0:
            raise PlanError(
                f"Invalid number of epochs in Index Sampler. Got {num_epochs} epochs, but number "
                "of epochs must be greater than 0."
            )
        if seed is None:
            if shuffle:
                raise PlanError(
                    "Shuffling requires specifying a seed: `IndexSampler(..., seed=0)`."
                )
        elif not 0 <= whole(seed, "seed") < 2**32:
            raise PlanError(f"Seed should be a positive 32-bit integer, and is {seed}.")
        self._shuffle = shuffle
        self._num_epochs = num_epochs
        self._seed = None if seed is None else whole(seed, "seed")
        self._start, self._stop = even_split(self._num_records, shard_options)
        rest = self._num_records % shard_options.shard_count if shard_options.drop_remainder else 0
        if rest:
            _log.warning(
                "IndexSampler: dropping %d of %d records, which do not divide among %d shards.",
                rest, self._num_records, shard_options.shard_count,
            )  # fmt: skip
        one_epoch = self._num_records - rest
        self._max_index = (
            None if num_epochs is None else one_epoch * whole(num_epochs, "num_epochs")
        )

    def locate(self, indices: Positions) -> Keys:
        length = self._stop - self._start
        if not length:
            raise EmptyDatasetError(
                f"{self!r} has no records for this shard: there are fewer records than shards."
            )
        shards = self._shard_options.shard_count
        epochs, offsets = split_epochs(indices // shards if shards > 1 else indices, length)
        if self._shuffle:
            assert self._seed is not None
            offsets = permute(offsets, length - 1, (self._seed + epochs) & 0xFFFFFFFF)
        return self._start + offsets

    @property
    def records_in_shard(self) -> int:
        """How many records an epoch of this shard has."""
        return self._stop - self._start

    def find(self, keys: Keys, index: int, count: int, stop: int) -> Found | None:
        """The same; None where a loader deals steps to shards otherwise than the sampler."""
        if count != self._shard_options.shard_count:
            return None
        length = self._stop - self._start
        mine = np.flatnonzero((keys >= self._start) & (keys < self._stop))
        epochs = np.arange(-(-stop // length) if length else 0).repeat(len(mine))
        offsets = np.tile(keys.take(mine) - self._start, len(epochs) // max(1, len(mine)))
        if self._shuffle:
            assert self._seed is not None
            offsets = unpermute(offsets, length - 1, (self._seed + epochs) & 0xFFFFFFFF)
        found, which = before(offsets + epochs * length, stop)
        return found, mine.take(which % max(1, len(mine)))

    def __repr__(self) -> str:
        return (
            f"IndexSampler(num_records={self._num_records}, "
            f"shard_options={self._shard_options!r}, shuffle={self._shuffle}, "
            f"num_epochs={self._num_epochs}, seed={self._seed})"
        )
