"""Writes one shard from a range of positions, atomically."""

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from bushel.core.machine import at_most_cores
from bushel.core.options import MultiprocessingOptions, ReadOptions
from bushel.dataset import MapDataset
from bushel.dataset.random_access import map_node
from bushel.errors import add_note
from bushel.on_error.budget import bad_records_in
from bushel.provenance.records import NotKnown, places_of
from bushel.provenance.walk import records_of_positions
from bushel.sources.written.manifest import Part, WrittenShard
from bushel.sources.written.origins import Numbers, write_origins
from bushel.write.encoder import Encode
from bushel.write.file_formats import FILE_FORMATS
from bushel.write.origin_columns import columns_of
from bushel.write.shard_counts import ShardCounts
from bushel.write.target_folder import Folder, part_of
from bushel.write.write_plan import WritePlan

# The interval, in records, at which the shared count is updated.
_COUNT_EVERY = 256
# The share of its time in which a shard uses a core, if it hardly waits for anything.
_BUSY = 0.8


class WriteShard:
    """Writes shards of a random-access dataset by number; runs in workers."""

    def __init__(
        self,
        ds: MapDataset[Any],
        plan: WritePlan,
        folder: Folder,
        counts: ShardCounts,
        workers: int = 0,
        cores: float = math.inf,
        threads: bool = True,
    ) -> None:
        """With `workers`, that many processes make the elements of a shard, and this one writes it.

        `cores` is the number of cores for this process; other processes write other shards.
        `threads` says whether threads may make the elements of the first shard.
        """
        self._ds, self._plan, self._folder = ds, plan, folder
        self._counts, self._workers, self._cores = counts, workers, cores
        # Whether threads may make elements, given the times of the last shard.
        self._threads = threads

    def __call__(self, number: int) -> dict[str, Any]:
        began, on_core = time.perf_counter(), time.process_time()
        with at_most_cores(self._cores):
            shard = self.write(int(number))
        on_core, seconds = time.process_time() - on_core, time.perf_counter() - began
        self._threads = threads_may_pay(self._cores, on_core, seconds)
        return {"number": int(number), "shard": shard.to_json()}

    def write(self, number: int) -> WrittenShard:
        """Writes one shard, and its note."""
        plan, folder = self._plan, self._folder
        name = plan.name(number)
        elements = _Elements(self._ds, plan, number, self._counts, self._workers, self._threads)
        with folder.private(name) as private:
            with_records = elements.records()
            FILE_FORMATS[plan.format].write(private, with_records, plan.coding)
            with folder.lasting(private), self._index(number, elements) as index:
                part = part_of(private, name)
            bounds, bad = plan.bounds(number), tuple(elements.bad)
            shard = WrittenShard(part, index, elements.count, bounds, bad)
            folder.note(number, shard, plan.digest)
            folder.publish(private, name)
        return shard

    def _index(self, number: int, elements: "_Elements") -> AbstractContextManager[Part | None]:
        """Writes the origins of elements, and their beginnings if these are not found otherwise."""
        columns: dict[str, Numbers] = {}
        files: list[str] = []
        if self._plan.told["keeps_origins"] and elements.count:
            columns, files = columns_of(map_node(self._ds), elements.positions(), False)
        return written_index(self._folder, number, columns, files, elements.lengths)


def threads_may_pay(cores: float, on_core: float, seconds: float) -> bool:
    """Whether threads may make the next shard's elements faster, given the times of the last.

    Finding out that they do not takes time in every shard. On one core they only pay if elements
    wait.

    >>> threads_may_pay(cores=1.0, on_core=2.0, seconds=2.1), threads_may_pay(1.0, 0.4, 2.1)
    (False, True)
    """
    return cores > 1 or on_core < _BUSY * seconds


@contextmanager
def written_index(
    folder: Folder,
    number: int,
    columns: dict[str, Numbers],
    files: list[str],
    lengths: list[int] | None,
) -> Iterator[Part | None]:
    """Writes the file beside a shard, if there is anything to write.

    It is synced to the disk while the block runs, and has its name after that.
    """
    if lengths is not None:
        columns = {**columns, "lengths": np.array(lengths, dtype=np.int64)}
    if not columns:
        yield None
        return
    name = f"{folder.origins}/{number:05d}"
    with folder.private(name) as private:
        with open(private, "wb") as file:
            write_origins(file.write, columns, files)
        with folder.lasting(private):
            yield part_of(private, name)
        folder.publish(private, name)


class _Elements:
    """The encoded elements of a shard, and their positions."""

    def __init__(
        self,
        ds: MapDataset[Any],
        plan: WritePlan,
        number: int,
        counts: ShardCounts,
        workers: int,
        threads: bool,
    ) -> None:
        self._ds, self._plan, self._number = ds, plan, number
        self._counts, self._workers = counts, workers
        self._options = ReadOptions() if threads else ReadOptions(num_threads=0)
        self._start, self._stop = plan.bounds(number)
        # The positions that were dropped.
        self._dropped: list[int] = []
        self.count = 0
        self.bad: list[int] = []
        self.lengths: list[int] | None = [] if plan.format == "tokens" else None

    def positions(self) -> Numbers:
        """The positions of the elements that were written."""
        whole = np.arange(self._start, self._stop, dtype=np.int64)
        return np.delete(whole, np.array(self._dropped, dtype=np.int64) - self._start)

    def records(self) -> Iterator[Any]:
        """Makes the encoded elements."""
        if self._stop <= self._start:
            return
        stream = encoded(self._ds, self._plan)[self._start : self._stop].to_iter_dataset(
            self._options, allow_nones=True
        )
        if self._workers:
            stream = stream.mp_prefetch(MultiprocessingOptions(self._workers))
        iterator = iter(stream)
        position = self._start
        try:
            for position, record in enumerate(iterator, self._start):
                if record is None:
                    self._dropped.append(position)
                else:
                    if self.lengths is not None:
                        self.lengths.append(len(record))
                    yield record
                if not position % _COUNT_EVERY:
                    self._counts.set(self._number, position - self._start)
                position += 1
            self.bad = bad_records_in(iterator.get_state())
        except Exception as error:
            add_note(error, self._place_of(position))
            raise
        finally:
            iterator.close()
        self.count = self._stop - self._start - len(self._dropped)
        self._counts.set(self._number, self._stop - self._start)

    def _place_of(self, position: int) -> str:
        """The position of an element, for an error."""
        told = f"bushel: in shard {self._number} of {self._plan.shards}, element {position}"
        try:
            records = records_of_positions(map_node(self._ds), np.array([position]))
            for source, key in zip(records.which.tolist(), records.keys.tolist(), strict=True):
                places = places_of(records.sources[source], np.array([key]))
                if places and places[0].file is not None:
                    return f"{told}, made of record {places[0].record} of {places[0].file!r}."
                return f"{told}, made of record {key} of `{records.sources[source].label}`."
        except NotKnown:
            pass
        return f"{told}."


def encoded(ds: Any, plan: WritePlan) -> Any:
    """A dataset whose elements are records of the plan's format."""
    made = ds.map_with_index(Encode(plan))
    return made if plan.told["on_error"] == "raise" else made.on_error(plan.told["on_error"])
