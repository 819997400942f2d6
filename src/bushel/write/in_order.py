"""Writes a stream in order, with one writer, in shards of a number of records or bytes."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from bushel.core.node import Node, walk
from bushel.core.options import MultiprocessingOptions
from bushel.core.places import WorkersNode
from bushel.core.ray_options import RayOptions
from bushel.on_error.budget import bad_records_in
from bushel.provenance.records import NotKnown
from bushel.provenance.walk import length_of
from bushel.sources.written.manifest import WrittenShard
from bushel.sources.written.origins import Numbers
from bushel.write.file_formats import FILE_FORMATS
from bushel.write.origin_columns import TracedOrigins, columns_of
from bushel.write.shard import encoded, written_index
from bushel.write.shard_counts import ShardCounts, shared_counts, shown
from bushel.write.target_folder import Folder, part_of
from bushel.write.write_plan import WritePlan

# The approximate size of a shard, if the number of its records is not set.
SHARD_BYTES = 128 << 20
_COUNT_EVERY = 256


def size_of(record: Any) -> int:
    """The approximate size of an encoded element, in bytes."""
    if isinstance(record, bytes):
        return len(record)
    if isinstance(record, np.ndarray):
        return record.nbytes
    values = record.values() if isinstance(record, dict) else [data for _, data in record]
    return sum(
        value.nbytes
        if isinstance(value, np.ndarray)
        else len(value)
        if isinstance(value, (bytes, str))
        else 8
        for value in values
    )


def write_stream(
    ds: Any, plan: WritePlan, folder: Folder, workers: int | RayOptions, progress: bool | None
) -> tuple[Sequence[WrittenShard], str | None]:
    """Writes the missing shards of a stream, one after the other.

    Also returns why the origins of elements are unknown, if finding them failed.
    """
    done = folder.noted(plan.digest)
    shards: list[WrittenShard] = []
    while len(shards) in done:
        shards.append(done[len(shards)])
    stream = encoded(ds, plan)
    node = stream._stream_node()
    has_workers = any(isinstance(step, WorkersNode) for step in walk(ds._stream_node()))
    if isinstance(workers, RayOptions):
        stream = stream if has_workers else stream.ray_prefetch(workers)
    elif workers and not has_workers:
        stream = stream.mp_prefetch(MultiprocessingOptions(workers))
    iterator = iter(stream)
    before = sum(shard.records for shard in shards)
    try:
        if shards:
            if shards[-1].state is None:
                # It was the last one.
                return shards, "it was stopped before that was sure" if plan.told[
                    "traces"
                ] else None
            iterator.set_state(shards[-1].state)
        total = length_of(ds._stream_node())
        with (
            shared_counts(1) as counts,
            shown("writing", total, "records", counts, before, progress),
            closing(
                _StreamOrigins(ds, plan, node, shards[-1].state if shards else None)
            ) as origins,
        ):
            cut = _StreamInShards(iterator, plan, before, counts)
            _write_rest(cut, origins, plan, folder, shards)
            return shards, origins.problem
    finally:
        iterator.close()


class _StreamOrigins:
    """The origins of a stream's elements, shard by shard, as far as the plan asks for them."""

    def __init__(self, ds: Any, plan: WritePlan, node: Node, state: Any) -> None:
        """`node` is the stream to write, and `state` its beginning."""
        self._node, self._keeps = ds._stream_node(), plan.told["keeps_origins"]
        self._traced: TracedOrigins | None = None
        self.problem: str | None = None
        if plan.told["traces"]:
            self._traced = TracedOrigins(node, state, plan.told["traces"] == "calls")

    def columns(self, first: int, stop: int) -> tuple[dict[str, Numbers], list[str]]:
        """The origins of the next elements."""
        if not self._keeps or first == stop or self.problem is not None:
            return {}, []
        find = None if self._traced is None else self._traced.records
        try:
            return columns_of(self._node, np.arange(first, stop, dtype=np.int64), True, find)
        except NotKnown as unknown:
            self.problem = str(unknown)
            return {}, []

    def check_end(self) -> None:
        """Takes origins back, if there were fewer elements than expected."""
        if self._traced is not None and self.problem is None and not self._traced.ended:
            self.problem = "functions of the pipeline left elements out"

    def close(self) -> None:
        if self._traced is not None:
            self._traced.close()


def _write_rest(
    cut: "_StreamInShards",
    origins: _StreamOrigins,
    plan: WritePlan,
    folder: Folder,
    shards: list[WrittenShard],
) -> None:
    while not cut.ended or not shards:
        number = len(shards)
        name = plan.name(number)
        first = cut.taken
        bad_before = cut.bad
        with folder.private(name) as private:
            FILE_FORMATS[plan.format].write(private, cut.shard(), plan.coding)
            count = cut.taken - first
            with folder.lasting(private):
                columns, files = origins.columns(first, cut.taken)
                if cut.ended:
                    origins.check_end()
                with written_index(folder, number, columns, files, cut.lengths) as index:
                    part = part_of(private, name)
            bad = tuple(np.subtract(cut.bad, bad_before or [0] * len(cut.bad)).tolist())
            state = None if cut.ended else cut.state
            shard = WrittenShard(part, index, count, None, bad, state)
            folder.note(number, shard, plan.digest)
            folder.publish(private, name)
        shards.append(shard)


class _StreamInShards:
    """A stream cut into shards, by records or by bytes; and the state between two of them."""

    def __init__(self, iterator: Any, plan: WritePlan, taken: int, counts: ShardCounts) -> None:
        self._iterator, self._counts = iterator, counts
        self._most_records = plan.told["shard_records"]
        self._most_bytes = None if plan.shards == 1 or self._most_records else SHARD_BYTES
        self._has_lengths = plan.format == "tokens"
        # The number of elements so far, and the state after them.
        self.taken = taken
        self.state: Any = iterator.get_state()
        self.bad = bad_records_in(self.state)
        self.ended = False
        self.lengths: list[int] | None = None
        # The next element, in a list; empty if it was not read yet.
        self._next: list[Any] = []
        self._began = taken

    def shard(self) -> Iterator[Any]:
        """The records of the next shard."""
        first, nbytes = self.taken, 0
        self.lengths = [] if self._has_lengths else None
        while self._look():
            (record,) = self._next
            self._next = []
            self.taken += 1
            if self.lengths is not None:
                self.lengths.append(len(record))
            yield record
            if not self.taken % _COUNT_EVERY:
                self._counts.set(0, self.taken - self._began)
            if self._most_bytes is not None:
                nbytes += size_of(record)
                if nbytes >= self._most_bytes:
                    break
            elif self._most_records is not None and self.taken - first >= self._most_records:
                break
        if not self.ended:
            self.state = self._iterator.get_state()
            # Whether there is more, as a shard must not be empty.
            self._look()
        self.bad = bad_records_in(self._iterator.get_state() if self.ended else self.state)

    def _look(self) -> bool:
        if not self._next and not self.ended:
            try:
                self._next = [next(self._iterator)]
            except StopIteration:
                self.ended = True
        return not self.ended
