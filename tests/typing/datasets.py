"""Read by mypy only: the comments say what it reveals."""

from collections.abc import Sequence
from typing import reveal_type

import numpy as np

import bushel as grain


def as_text(element: int) -> str:
    return str(element)


def jitter(element: int, rng: np.random.Generator) -> float:
    return element + rng.random()


def longest(elements: Sequence[str]) -> str:
    return max(elements, key=len)


def random_access(ds: grain.MapDataset[int]) -> None:
    reveal_type(grain.MapDataset.range(10))  # MapDataset[int]
    reveal_type(ds[3])  # int | Any
    reveal_type(ds[2:5])  # MapDataset[int]
    reveal_type(len(ds))  # int
    reveal_type(ds.shuffle(1).repeat())  # MapDataset[int]
    reveal_type(ds.seed(1).slice(slice(3)))  # MapDataset[int]
    reveal_type(ds.filter(lambda element: element > 2))  # MapDataset[int]
    reveal_type(ds.map(as_text))  # MapDataset[str]
    reveal_type(ds.map(lambda element: element / 2))  # MapDataset[float]
    reveal_type(ds.map_with_index(lambda i, x: (i, str(x))))  # MapDataset[tuple[int, str]]
    reveal_type(ds.random_map(jitter, seed=1))  # MapDataset[float]
    reveal_type(ds.batch(2))  # MapDataset[Any]
    reveal_type(ds.map(as_text).batch(2, batch_fn=longest))  # MapDataset[str]


def several(one: grain.MapDataset[int], two: grain.MapDataset[int]) -> None:
    reveal_type(grain.MapDataset.concatenate([one, two]))  # MapDataset[int]
    reveal_type(grain.MapDataset.mix([one, two], [0.5, 0.5]))  # MapDataset[int]
    streams = [one.to_iter_dataset(), two.to_iter_dataset()]
    reveal_type(grain.IterDataset.mix(streams))  # IterDataset[int]


def sources() -> None:
    # Assigned without an annotation: none is asked for.
    columns = grain.MapDataset.source({"x": np.arange(3)})
    reveal_type(columns)  # MapDataset[dict[str, Any]]
    batches = columns.batch(2)
    reveal_type(batches)  # MapDataset[Any]
    reveal_type(grain.sources.RangeDataSource(0, 3, 1)[0])  # int


def files(path: str) -> None:
    source = grain.open(path)
    reveal_type(source)  # FileSource
    reveal_type(len(source))  # int
    reveal_type(source[0])  # Any
    reveal_type(source.place_of(0))  # tuple[str, int, int | None]
    reveal_type(grain.MapDataset.source(source))  # MapDataset[Any]
    # With the name of a format, what only that format has.
    reveal_type(grain.open(path, format="parquet").schema)  # Any
    reveal_type(grain.open(path, format="arrayrecord")[0])  # bytes
    reveal_type(grain.open(path, format="images", decode=True).classes)  # tuple[str, ...]
    reveal_type(grain.open(path, format="written"))  # WrittenDataSource


def streams(ds: grain.MapDataset[int]) -> None:
    stream = ds.to_iter_dataset(grain.ReadOptions(num_threads=2))
    reveal_type(stream)  # IterDataset[int]
    reveal_type(stream.map(as_text))  # IterDataset[str]
    reveal_type(stream.random_map(jitter, seed=1).filter(bool))  # IterDataset[float]
    reveal_type(stream.batch(2))  # IterDataset[Any]
    reveal_type(stream.map(as_text).batch(2, batch_fn=longest))  # IterDataset[str]
    for element in stream:
        reveal_type(element)  # int
    for element in ds:
        reveal_type(element)  # int


def iterators(ds: grain.MapDataset[int]) -> None:
    with iter(ds.to_iter_dataset()) as iterator:
        reveal_type(iterator)  # DatasetIterator[int]
        reveal_type(next(iterator))  # int
        reveal_type(iterator.get_state())  # dict[str, Any]
        iterator.set_state(iterator.get_state())
        reveal_type(grain.experimental.get_next_index(iterator))  # int


def every_method(ds: grain.MapDataset[int], stream: grain.IterDataset[int]) -> None:
    # An editor knows what comes next, whatever came before.
    reveal_type(stream.cache())  # IterDataset[int]
    reveal_type(stream.enumerate())  # IterDataset[tuple[int, int]]
    reveal_type(stream.take(3).skip(1).repeat(2).shuffle(4, seed=1))  # IterDataset[int]
    reveal_type(stream.concat(stream))  # IterDataset[int]
    reveal_type(stream.interleave(stream))  # IterDataset[int]
    reveal_type(stream.windows(2))  # IterDataset[Any]
    reveal_type(stream.unbatch())  # IterDataset[Any]
    reveal_type(stream.map_batches(lambda x: x))  # IterDataset[Any]
    reveal_type(stream.pack({"text": 4}))  # IterDataset[Any]
    reveal_type(stream.batch_by_tokens(100))  # IterDataset[Any]
    reveal_type(stream.bucket_by_length([4, 8], 2))  # IterDataset[Any]
    reveal_type(stream.on_error("skip"))  # IterDataset[int]
    reveal_type(ds.enumerate())  # MapDataset[tuple[int, int]]
    reveal_type(ds.take(3).skip(1).compact())  # MapDataset[int]
    reveal_type(ds.windows(2))  # MapDataset[Any]
    reveal_type(ds.batch(2).unbatch())  # MapDataset[Any]
    reveal_type(ds.map_batches(lambda x: x))  # MapDataset[Any]
    reveal_type(ds.on_error("skip"))  # MapDataset[int]
