"""Records of a `DataLoader` in the order of its sampler, with their metadata."""

from typing import Any

import numpy as np

from bushel.core.block import Block, Columns
from bushel.core.frozen import frozen
from bushel.core.node import Each, Found, Node, Order, Source, failed
from bushel.core.positions import Keys, Positions
from bushel.sources.memory import ColumnsNode
from bushel.sources.read_records import read_records
from bushel.transforms.map import MapWithIndexNode, RandomMapNode


@frozen
class SamplerOrder(Order):
    """The keys that one of bushel's samplers returns for this shard's steps, many at a time."""

    input: Node
    sampler: Any
    shard_index: int
    shard_count: int
    count: int
    costly = True

    def length(self) -> int:
        return self.count

    def locate(self, positions: Positions) -> Keys:
        located: Keys = self.sampler.locate(self.shard_index + positions * self.shard_count)
        return located

    def find(self, positions: Positions, stop: int) -> Found | None:
        found: Found | None = self.sampler.find(positions, self.shard_index, self.shard_count, stop)
        return found

    def reach(self, stop: int) -> int:
        return self.input.length()  # A sampler returns keys, which have no epochs.

    def describe(self) -> str:
        return repr(self.sampler)


@frozen
class GlobalIndexNode(Each):
    """Counts elements over all shards: the index of a record in a loader."""

    input: Node
    shard_index: int
    shard_count: int

    def apply(self, block: Block) -> Block:
        return block.at(self.shard_index + block.positions * self.shard_count)

    def describe(self) -> str:
        return ""


class RecordMapWithIndexNode(MapWithIndexNode):
    """A map with the index of the record, which does not depend on the place of the step."""

    __slots__ = ()
    uses_positions = False


class RecordRandomMapNode(RandomMapNode):
    """A random map with the record's own generator, wherever the step is."""

    __slots__ = ()
    uses_positions = False


class ColumnRows:
    """Columns as a source of records, for samplers that return one record at a time."""

    def __init__(self, columns: ColumnsNode) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return self._columns.size

    def __getitem__(self, key: int) -> Any:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: list[int]) -> list[Any]:
        return Columns(self._columns.tree, np.array(keys)).rows()


@frozen
class SampledNode(Source):
    """Records in the order of any sampler, each with the sampler's metadata."""

    source: Any
    sampler: Any
    shard_index: int
    shard_count: int
    count: int
    # Whether the sampler is one of bushel's, which return many steps in one call.
    by_block: bool

    def length(self) -> int:
        return self.count

    def keys(self, positions: Positions) -> Keys:
        steps: Keys = self.shard_index + positions * self.shard_count
        return steps

    def fetch(self, keys: Keys, positions: Positions) -> Block:
        steps = keys.tolist()
        metadata: list[Any] = []
        record_keys: list[Any] = []
        failure = None
        try:
            records = (
                self.sampler.metadata(keys)
                if self.by_block
                else (self.sampler[step] for step in steps)
            )
            for record in records:
                record_keys.append(self._wrap(record.record_key))
                metadata.append(record)
        except Exception as error:
            failure = failed(error, self, steps[len(metadata)])
        indices = np.array([record.index for record in metadata], dtype=np.int64)
        rows, read_failure = read_records(self, self.source, record_keys[: len(metadata)], indices)
        return Block(rows, indices[: len(rows)], read_failure or failure, metadata[: len(rows)])

    def _wrap(self, key: Any) -> Any:
        # As in a dataset, keys beyond the length begin again; the source handles keys that are no
        # numbers.
        try:
            return key % len(self.source)
        except TypeError:
            return key

    def describe(self) -> str:
        return repr(self.sampler)

    @property
    def label(self) -> str:
        return f"source({type(self.source).__name__})"
