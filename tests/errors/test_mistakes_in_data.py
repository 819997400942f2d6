"""Mistakes in batches, packing, sources, loaders, hosts, states and iterators."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset, ShardOptions
from bushel.experimental import (
    device_put,
    get_next_index,
)
from bushel.samplers import IndexSampler
from bushel.transforms import Batch
from tests.errors.mistakes import Mistake, assert_told, documents, numbers, one, stream


def _unlike(first: Any, second: Any) -> list[Any]:
    return list(MapDataset.source([first, second]).batch(2))


def _after_closing(iterator: Any) -> Any:
    iterator.close()
    return next(iterator)


MISTAKES: dict[str, Mistake] = {
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
        "`pack` was given a length for the feature 'token', which an element does not have; "
        "it has keys ['tok",
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
        "Name it by `format=`, one of",
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


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_what_is_said(mistake: Mistake) -> None:
    assert_told(mistake)
