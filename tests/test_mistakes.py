"""A hundred mistakes that people make, and what they are told: what is wrong, and what to write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions, ShardOptions
from bushel.experimental import (
    InterleaveIterDataset,
    LimitIterDataset,
    WindowShuffleMapDataset,
    ZipMapDataset,
    device_put,
    get_next_index,
)
from bushel.samplers import IndexSampler, SequentialSampler
from bushel.transforms import Batch

# They are given to functions that say so; what they are is unknown to a type checker.
numbers: Any = MapDataset.range(10)
stream: Any = numbers.to_iter_dataset(ReadOptions(0, 0))
documents: Any = MapDataset.source(
    [{"tokens": np.arange(3)}, {"tokens": np.arange(30)}]
).to_iter_dataset(ReadOptions(0, 0))
wrong: Any
one = SequentialSampler(1, ShardOptions(0, 1))


def _unlike(first: Any, second: Any) -> list[Any]:
    return list(MapDataset.source([first, second]).batch(2))


# What somebody writes; the type of the error; and a part of its text, or of its notes.
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    # Numbers.
    'batch("8")': (
        lambda: numbers.batch("8"),
        TypeError,
        "batch_size must be an integer, and is '8', a str.",
    ),
    'stream.batch("8")': (
        lambda: stream.batch("8"),
        TypeError,
        "batch_size must be an integer, and is '8', a str.",
    ),
    "batch(2.5)": (lambda: numbers.batch(2.5), TypeError, "an integer, and is 2.5, a float"),
    "batch(None)": (lambda: numbers.batch(None), TypeError, "batch_size must be an integer"),
    "batch(0)": (lambda: numbers.batch(0), ValueError, "batch_size must be positive. Got 0."),
    "batch(-1)": (lambda: stream.batch(-1), ValueError, "batch_size must be positive. Got -1."),
    "batch_fn=3": (
        lambda: numbers.batch(2, batch_fn=3),
        TypeError,
        "`batch_fn` must be a function, and is 3",
    ),
    'repeat("2")': (lambda: numbers.repeat("2"), TypeError, "num_epochs must be an integer"),
    "repeat(0)": (lambda: numbers.repeat(0), ValueError, "num_epochs must be positive, but got 0"),
    "repeat().repeat()": (
        lambda: numbers.repeat().repeat(),
        ValueError,
        "`repeat` does nothing for a dataset that is infinite already",
    ),
    'take("3")': (lambda: stream.take("3"), TypeError, "count must be an integer"),
    "take(-1)": (lambda: stream.take(-1), ValueError, "takes a number of elements, and got -1"),
    "skip(-1)": (lambda: stream.skip(-1), ValueError, "takes a number of elements, and got -1"),
    "windows(0)": (lambda: stream.windows(0), ValueError, "size and stride must be positive"),
    'ds["a"]': (lambda: numbers["a"], TypeError, "a position must be an integer, and is 'a'"),
    "ds[1.5]": (lambda: numbers[1.5], TypeError, "a position must be an integer, and is 1.5"),
    "empty[0]": (lambda: MapDataset.source([])[0], IndexError, "this dataset is empty"),
    # Streams are no sequences.
    "stream[0]": (lambda: stream[0], TypeError, "an IterDataset is a stream"),
    "stream[0], instead": (lambda: stream[0], TypeError, "`ds.skip(n).take(1)`"),
    "stream[1:3]": (lambda: stream[1:3], TypeError, "ask the `MapDataset` from which it was made"),
    "len(stream)": (lambda: len(stream), TypeError, "object of type 'IterDataset' has no len()"),
    "stream.slice": (
        lambda: stream.slice(slice(1)),
        AttributeError,
        "`slice` is for random-access datasets (`MapDataset`): call it before",
    ),
    "stream.lanes": (lambda: stream.lanes(2), AttributeError, "call it before `to_iter_dataset()`"),
    "ds.mp_prefetch": (
        lambda: numbers.mp_prefetch(MultiprocessingOptions(2)),
        AttributeError,
        "write `ds.to_iter_dataset().mp_prefetch(...)`",
    ),
    "ds.pack": (
        lambda: numbers.pack({"tokens": 8}),
        AttributeError,
        "`pack` is for streams (`IterDataset`): write `ds.to_iter_dataset().pack(...)`",
    ),
    "ds.suffle": (lambda: numbers.suffle(), AttributeError, "Did you mean `shuffle`?"),
    "stream.bacth": (lambda: stream.bacth(3), AttributeError, "Did you mean `batch`?"),
    "bushel.Dataloader": (
        lambda: bushel.Dataloader,  # type: ignore[attr-defined]
        AttributeError,
        "module 'bushel' has no attribute 'Dataloader'. Did you mean `DataLoader`?",
    ),
    # Workers and threads.
    "mp_prefetch(2)": (
        lambda: stream.mp_prefetch(2),
        TypeError,
        "Write `mp_prefetch(MultiprocessingOptions(num_workers=2))`",
    ),
    "mp_prefetch(workers=2)": (
        lambda: stream.mp_prefetch(workers=2),
        TypeError,
        "Did you mean `mp_prefetch(MultiprocessingOptions(num_workers=...))`?",
    ),
    "MultiprocessingOptions(workers=2)": (
        lambda: MultiprocessingOptions(workers=2),  # type: ignore[call-arg]
        TypeError,
        "unexpected keyword argument 'workers'. Did you mean `num_workers`?",
    ),
    "MultiprocessingOptions(-1)": (
        lambda: MultiprocessingOptions(-1),
        ValueError,
        "num_workers must not be negative, and is -1",
    ),
    'MultiprocessingOptions("2")': (
        lambda: MultiprocessingOptions("2"),  # type: ignore[arg-type]
        TypeError,
        "num_workers must be an integer: '2'",
    ),
    "on_hang": (
        lambda: MultiprocessingOptions(1, on_hang="kill"),
        ValueError,
        "on_hang must be one of ['wait', 'replace', 'raise'], and is 'kill'",
    ),
    "hang_timeout=0": (
        lambda: MultiprocessingOptions(1, hang_timeout=0),
        ValueError,
        "hang_timeout must be positive, and is 0",
    ),
    "ReadOptions(-1)": (
        lambda: ReadOptions(-1),
        ValueError,
        "num_threads must not be negative, and is -1",
    ),
    "ReadOptions(2, -1)": (
        lambda: ReadOptions(2, -1),
        ValueError,
        "prefetch_buffer_size must not be negative, and is -1",
    ),
    'ReadOptions("2")': (
        lambda: ReadOptions("2"),  # type: ignore[arg-type]
        TypeError,
        "num_threads must be an integer, and is '2'",
    ),
    "to_iter_dataset(3)": (
        lambda: numbers.to_iter_dataset(3),
        TypeError,
        "read_options must be `ReadOptions`",
    ),
    "mp_prefetch twice": (
        lambda: iter(
            stream.mp_prefetch(MultiprocessingOptions(1)).mp_prefetch(MultiprocessingOptions(1))
        ),
        ValueError,
        "`mp_prefetch` cannot be nested",
    ),
    "worker_init_fn=3": (
        lambda: stream.mp_prefetch(MultiprocessingOptions(1), 3),
        TypeError,
        "`worker_init_fn` must be a function, and is 3",
    ),
    # Functions.
    "random_map of one argument": (
        lambda: list(numbers.seed(1).random_map(lambda x: x)),
        TypeError,
        "the function is called with 2 arguments: (element, rng)",
    ),
    "map of two arguments": (
        lambda: list(numbers.map(lambda x, y: x)),
        TypeError,
        "the function is called with 1 argument: (element)",
    ),
    "map_with_index of one": (
        lambda: list(numbers.map_with_index(lambda x: x)),
        TypeError,
        "the function is called with 2 arguments: (index, element)",
    ),
    "filter of two": (
        lambda: list(numbers.filter(lambda x, y: x)),
        TypeError,
        "the function is called with 1 argument: (element)",
    ),
    "map(None)": (lambda: numbers.map(None), TypeError, "`map` takes a function"),
    "map(3)": (lambda: stream.map(3), TypeError, "`map` takes a function or a `transforms.Map`"),
    "filter(3)": (lambda: numbers.filter(3), TypeError, "`filter` takes a function"),
    "apply(f)": (lambda: numbers.apply(abs), NotImplementedError, "write `ds.map(function)`"),
    "apply(Batch)": (lambda: numbers.apply(Batch), TypeError, "got the class Batch: write `Batch("),
    "a failing map": (
        lambda: list(numbers.map(lambda x: 1 / x)),
        ZeroDivisionError,
        "at position 0.",
    ),
    # Seeds.
    "shuffle()": (lambda: numbers.shuffle(), ValueError, "Call `ds.seed(seed)` before it"),
    'shuffle(seed="a")': (
        lambda: numbers.shuffle(seed="a"),
        TypeError,
        "seed must be an integer, and is 'a'",
    ),
    "shuffle(seed=-1)": (
        lambda: numbers.shuffle(seed=-1),
        ValueError,
        "the seed must be an integer between 0 and 2**32-1 (got -1)",
    ),
    "random_map without seed": (
        lambda: numbers.random_map(max),
        ValueError,
        "`random_map` requires a seed. Call `ds.seed(seed)` before it",
    ),
    "stream.shuffle(seed=1)": (
        lambda: stream.shuffle(seed=1),
        TypeError,
        "a stream is shuffled within a buffer of so many elements. Write `shuffle(1000, seed=...)`",
    ),
    "stream.shuffle(0)": (
        lambda: stream.shuffle(0, seed=1),
        ValueError,
        "buffer_size must be positive, and is 0",
    ),
    # Several datasets.
    "weights": (
        lambda: MapDataset.mix([numbers, numbers], [1, 2, 3]),
        ValueError,
        "`mix` got 2 datasets and 3 weights: [1, 2, 3]. Give one weight for each dataset.",
    ),
    "weights of streams": (
        lambda: IterDataset.mix([stream, stream], [1]),
        ValueError,
        "`mix` got 2 datasets and 1 weights: [1]. Give one weight for each dataset.",
    ),
    "a negative weight": (
        lambda: MapDataset.mix([numbers, numbers], [1, -2]),
        ValueError,
        "positive, finite, non-zero weights, and got [1, -2]",
    ),
    "a weight of 0": (
        lambda: MapDataset.mix([numbers, numbers], [1, 0]),
        ValueError,
        "Leave a dataset out instead of giving it the weight 0",
    ),
    "mix([])": (lambda: MapDataset.mix([]), ValueError, "`mix` needs at least one dataset"),
    "mix of streams": (
        lambda: MapDataset.mix([stream, stream]),
        TypeError,
        "`mix` takes `MapDataset`s, and item 0 is a IterDataset",
    ),
    "concatenate of streams": (
        lambda: MapDataset.concatenate([numbers, stream]),
        TypeError,
        "`concatenate` takes `MapDataset`s, and item 1 is a IterDataset",
    ),
    "zip of unlike lengths": (
        lambda: ZipMapDataset([numbers, MapDataset.range(3)]),
        ValueError,
        "needs equally long datasets, and got [10, 3]",
    ),
    "interleave, cycle 0": (
        lambda: InterleaveIterDataset([stream], cycle_length=0),
        ValueError,
        "`cycle_length` must be positive, and is 0",
    ),
    "interleave of a generator": (
        lambda: InterleaveIterDataset((part for part in [stream]), cycle_length=1),  # type: ignore[arg-type]
        TypeError,
        "Write `list(...)` around it",
    ),
    "limit 0": (lambda: LimitIterDataset(stream, 0), ValueError, "`count` must be positive"),
    "window 0": (
        lambda: WindowShuffleMapDataset(numbers, window_size=0, seed=1),
        ValueError,
        "window_size must be positive, and is 0",
    ),
    # Batches of what is not alike.
    "other keys": (
        lambda: _unlike({"a": 1, "b": 1}, {"a": 1, "c": 2}),
        ValueError,
        "only the first has ['b'], only the other has ['c']",
    ),
    "other keys, as in Grain": (
        lambda: _unlike({"a": 1}, {"a": 1, "c": 2}),
        TypeError,
        "only the other has ['c']",
    ),
    "other shapes": (
        lambda: _unlike(np.zeros(2), np.zeros(3)),
        ValueError,
        "Pad or crop in a `map` before",
    ),
    "filter, then batch": (
        lambda: numbers.filter(bool).batch(2),
        ValueError,
        "`batch(2)` cannot follow `filter(bool)` on a random-access dataset",
    ),
    "unbatch of numbers": (
        lambda: list(stream.unbatch()),
        ValueError,
        "`unbatch` takes batches apart along the first axis",
    ),
    # Packing.
    "pack, wrong key": (
        lambda: list(documents.pack({"token": 8})),
        KeyError,
        "`pack` is told of a feature 'token', which an element does not have; it has keys ['tok",
    ),
    "pack, too long": (
        lambda: list(documents.pack({"tokens": 8})),
        ValueError,
        "`pack(..., too_long='split')` cuts such sequences into several",
    ),
    "pack(8)": (lambda: documents.pack(8), ValueError, "must be a dict from features to lengths"),
    "pack, negative": (
        lambda: documents.pack({"tokens": -8}),
        ValueError,
        "the length of feature 'tokens' must be a whole number, and is -8",
    ),
    "pack, strategy": (
        lambda: documents.pack({"tokens": 8}, strategy="best"),
        ValueError,
        "one of first_fit, best_fit, concat_then_split, and is 'best'",
    ),
    "pack, too_long": (
        lambda: documents.pack({"tokens": 8}, too_long="cut"),
        ValueError,
        "too_long must be one of",
    ),
    "batch_by_tokens(0)": (
        lambda: stream.batch_by_tokens(0),
        ValueError,
        "max_tokens must be positive, and is 0",
    ),
    "no boundaries": (
        lambda: stream.bucket_by_length([], 8),
        ValueError,
        "boundaries must be increasing numbers, at least one, and are []",
    ),
    # Sources.
    "source(path)": (
        lambda: MapDataset.source("data.jsonl"),
        TypeError,
        "write `MapDataset.source(bushel.open(path))`",
    ),
    "source(Path)": (
        lambda: MapDataset.source(Path("data.jsonl")),
        TypeError,
        "To read a file, write `MapDataset.source(bushel.open(path))`",
    ),
    "source(3)": (lambda: MapDataset.source(3), TypeError, "a source needs `__len__`"),
    "source(generator)": (
        lambda: MapDataset.source(number for number in range(3)),
        TypeError,
        "Put the records of an iterator in a list first",
    ),
    "source({1, 2})": (lambda: MapDataset.source({1, 2}), TypeError, "and set has not: {1, 2}"),
    "unlike columns": (
        lambda: MapDataset.source({"a": np.zeros(2), "b": np.zeros(3)}),
        ValueError,
        "must be equally long, and these are not: element['a']: 2, element['b']: 3",
    ),
    "open, no file": (
        lambda: bushel.open("/nowhere/x.jsonl"),
        FileNotFoundError,
        "there is no file '/nowhere/x.jsonl'",
    ),
    "open, no format": (
        lambda: bushel.open(__file__),
        ValueError,
        "Say which it is by `format=`, one of",
    ),
    "open(3)": (lambda: bushel.open(3), ValueError, "a source takes a path, a glob, a folder"),
    # Loaders.
    "no sampler": (
        lambda: bushel.DataLoader(data_source=[1]),  # type: ignore[call-arg]
        TypeError,
        "`sampler=IndexSampler(len(source), shuffle=True, seed=0)`; or use `load(source)`",
    ),
    "DataLoader(num_workers=2)": (
        lambda: bushel.DataLoader(data_source=[1], sampler=one, num_workers=2),  # type: ignore[call-arg]
        TypeError,
        "Did you mean `worker_count`?",
    ),
    "worker_count=-1": (
        lambda: bushel.DataLoader(data_source=[1], sampler=one, worker_count=-1),
        ValueError,
        "worker_count must not be negative, and is -1",
    ),
    "operations=Batch(2)": (
        lambda: bushel.DataLoader(data_source=[1], sampler=one, operations=Batch(2)),  # type: ignore[arg-type]
        TypeError,
        "operations must be a list, and is Batch(",
    ),
    "operations=[Batch]": (
        lambda: bushel.DataLoader(data_source=[1], sampler=one, operations=[Batch]),
        TypeError,
        "one is the class Batch: write `Batch(...)`",
    ),
    "shard_options=3": (
        lambda: bushel.DataLoader(data_source=[1], sampler=one, shard_options=3),  # type: ignore[arg-type]
        TypeError,
        "shard_options must be `ShardOptions`, and is 3",
    ),
    "shuffle without seed": (
        lambda: IndexSampler(10, shuffle=True),
        ValueError,
        "`IndexSampler(..., seed=0)`",
    ),
    "no records": (
        lambda: IndexSampler(0, seed=0),
        ValueError,
        "Got 0 records, but number of records must be greater than 0",
    ),
    "no epochs": (
        lambda: IndexSampler(10, seed=0, num_epochs=0),
        ValueError,
        "Got 0 epochs, but number of epochs must be greater than 0",
    ),
    "shard 3 of 2": (
        lambda: ShardOptions(3, 2),
        ValueError,
        "shard_index must be between 0 and shard_count - 1, and is 3 of 2",
    ),
    # Hosts.
    "lanes(0)": (lambda: numbers.lanes(0), ValueError, "needs a positive number of lanes, and got"),
    "lanes, batch": (
        lambda: numbers.lanes(4).batch(6),
        ValueError,
        "so batch_size (of all hosts together) must be a multiple of 4",
    ),
    "lanes, hosts": (
        lambda: list(numbers.lanes(4, shard_options=ShardOptions(0, 3)).batch(4)),
        ValueError,
        "4 lanes cannot be owned by 3 hosts evenly",
    ),
    "lanes, remainder": (
        lambda: numbers.lanes(4, remainder="keep"),
        ValueError,
        "remainder must be 'drop' or 'pad', and is 'keep'",
    ),
    "lanes, timeout": (
        lambda: numbers.lanes(4, agree_timeout_s=0),
        ValueError,
        "agree_timeout_s must be positive, and is 0",
    ),
    # States and iterators.
    "state None": (
        lambda: iter(stream).set_state(None),
        ValueError,
        "a state is a dict, as `get_state()` returned it, and this is a NoneType",
    ),
    "state {}": (lambda: iter(stream).set_state({}), ValueError, "this state has no 'next_index'"),
    "a dict for a loader": (
        lambda: iter(bushel.load([1, 2])).set_state({"next_index": 1}),  # type: ignore[arg-type]
        ValueError,
        "one that a dataset's iterator saved is restored into `iter(dataset)`",
    ),
    "closed": (
        lambda: _after_closing(iter(stream)),
        ValueError,
        "Make another one with `iter(dataset)`",
    ),
    "get_next_index(3)": (
        lambda: get_next_index(3),  # type: ignore[arg-type]
        TypeError,
        "this takes a dataset's iterator, and got a int",
    ),
    # The rest.
    "on_error": (
        lambda: numbers.on_error("ignore"),
        ValueError,
        "on_error is 'raise', 'skip' or 'replace', and not 'ignore'",
    ),
    "a setting": (
        lambda: bushel.config.update("debug", True),
        ValueError,
        "there is no setting 'debug'; there are py_debug_mode",
    ),
    "a device": (
        lambda: device_put(stream, "gpu"),
        ValueError,
        "`device_put` takes a device, a sharding, or a tree of shardings",
    ),
}


def _after_closing(iterator: Any) -> Any:
    iterator.close()
    return next(iterator)


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_said(name: str) -> None:
    mistake, kind, text = MISTAKES[name]
    with pytest.raises(kind) as caught:
        mistake()
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert text in said
    # Nothing of the inside.
    assert "NodeDataset" not in said


def test_there_are_a_hundred_of_them() -> None:
    assert len(MISTAKES) >= 100


def test_a_stream_has_no_positions_for_whoever_asks() -> None:
    assert not hasattr(stream, "__getitem__")
    assert not hasattr(stream, "__len__")
    assert getattr(stream, "slice", None) is None
