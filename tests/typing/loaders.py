"""Read by mypy only: the comments say what it reveals."""

from collections.abc import Iterator
from typing import Any, reveal_type

import numpy as np

import bushel as grain


class Decode(grain.transforms.Map):
    def map(self, element: bytes) -> int:
        return len(element)


class Crop(grain.transforms.RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> int:
        return int(rng.integers(element))


class Long(grain.transforms.Filter):
    def filter(self, element: int) -> bool:
        return element > 3


class Parts(grain.experimental.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element, element]


def renumber(records: Iterator[grain.Record[int]]) -> Iterator[grain.Record[str]]:
    for record in records:
        reveal_type(record.data)  # int
        reveal_type(record.metadata)  # RecordMetadata
        yield grain.Record(record.metadata.remove_record_key(), str(record.data))


class Evens:
    """A sampler and a source need only the methods, no base class."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> grain.RecordMetadata:
        return grain.RecordMetadata(index=index, record_key=2 * index)


def samplers() -> None:
    sampler = grain.samplers.IndexSampler(
        num_records=10,
        shard_options=grain.sharding.ShardByJaxProcess(drop_remainder=True),
        shuffle=True,
        num_epochs=2,
        seed=3,
    )
    reveal_type(sampler[0])  # RecordMetadata
    reveal_type(len(sampler))  # int
    reveal_type(sampler[0].rng)  # Generator | None
    reveal_type([metadata.index for metadata in sampler])  # list[int]
    own: grain.samplers.Sampler = Evens()
    reveal_type(own[0])  # RecordMetadata
    source: grain.sources.RandomAccessDataSource[str] = ["a", "b"]
    reveal_type(source[0])  # str


def loaders() -> None:
    # Assigned without an annotation: none is asked for.
    loader = grain.DataLoader(
        data_source=[b"a", b"bc"],
        sampler=grain.samplers.SequentialSampler(2, grain.sharding.NoSharding()),
        operations=[Decode(), Crop(), Long(), Parts(), renumber, grain.transforms.Batch(2)],
        read_options=grain.ReadOptions(4, 8),
    )
    reveal_type(loader)  # DataLoader[Any]
    reveal_type(loader.multiprocessing_options)  # MultiprocessingOptions
    iterator = iter(loader)
    reveal_type(iterator)  # DataLoaderIterator[Any]
    reveal_type(next(iterator))  # Any
    reveal_type(iterator.get_state())  # bytes
    iterator.set_state(iterator.get_state())
    reveal_type(grain.load([1, 2, 3], batch_size=2))  # DataLoader[Any]


def one_who_knows(loader: "grain.DataLoader[dict[str, Any]]") -> None:
    for element in loader:
        reveal_type(element)  # dict[str, Any]
