"""The programs whose states are kept for ever, and what a state must lead to.

A program has a name that never changes. `events` of an iterator that was restored are compared
with those of the version that saved the state, by their digest.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np

import bushel
from bushel import DataLoader, MapDataset, MultiprocessingOptions, transforms
from tests.contract.events import freeze
from tests.contract.parts import Copies, Jitter, NotThird, RowSource
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.lanes.pipelines import Program

KITS = {"rows": Kit(), "broken": Kit("rows", (4, 5, 9))}


class Records(RowSource):
    """A source that prints the same in every run, as a loader asks."""

    def __repr__(self) -> str:
        return f"Records({len(self)})"


class PairUp(transforms.Map):
    """A step that leaves a batch of pairs."""

    def map(self, element: Any) -> Any:
        return element["pair"]


def _loader(sampler: Any, operations: list[Any], workers: int = 0) -> DataLoader[Any]:
    return DataLoader(
        data_source=Records(40), sampler=sampler, operations=operations, worker_count=workers
    )


def _shuffled(**more: Any) -> Any:
    return bushel.IndexSampler(40, shuffle=True, seed=3, **more)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "in order": lambda: _loader(bushel.SequentialSampler(40), []),
    "shuffled, in batches": lambda: _loader(
        _shuffled(num_epochs=2), [Jitter(), bushel.Batch(3, drop_remainder=True)]
    ),
    "a shard, filtered": lambda: _loader(
        _shuffled(num_epochs=3, shard_options=bushel.ShardOptions(1, 3, drop_remainder=True)),
        [NotThird(), PairUp()],
    ),
    "flattened": lambda: _loader(_shuffled(num_epochs=1), [Jitter(), Copies()]),
    "with workers": lambda: _loader(
        _shuffled(num_epochs=1), [Jitter(), bushel.Batch(4)], workers=2
    ),
}

LANES: dict[str, Program] = {
    "plain": Program(90, False, (), lanes=4, rows=2),
    "filtered": Program(
        120, False, (("filter", [True, False, True]), ("map_with_index", None)), lanes=4, rows=1
    ),
    "padded": Program(77, False, (("filter", [True, True, False]),), 4, 2, remainder="pad"),
    "in windows, mixed": Program(
        100, False, (("window", 5), ("mix", (1, 2)), ("random_map", 7)), lanes=4, rows=1
    ),
    "named parts": Program(80, False, (("named_mix", (3, 1)), ("zip", None)), lanes=2, rows=3),
    "flattened": Program(60, False, (("flat_map", [0, 3, 1]), ("map", 3)), lanes=2, rows=2),
}


def _with_workers() -> Any:
    ds = MapDataset.range(90).seed(4).shuffle().to_iter_dataset().filter(lambda x: x % 3 > 0)
    drawn = ds.random_map(lambda x, rng: x + rng.integers(1000)).batch(3)
    return drawn.mp_prefetch(MultiprocessingOptions(2))


def programs() -> dict[str, Callable[[], Any]]:
    """Every program, by its name."""
    made: dict[str, Callable[[], Any]] = {}
    for name in PIPELINES:
        for kit in KITS:
            made[f"{name} | {kit}"] = lambda name=name, kit=kit: stream_of(name, KITS[kit])
    for name, loader in LOADERS.items():
        made[f"DataLoader | {name}"] = loader
    for name, program in LANES.items():
        made[f"lanes | {name}"] = program.batches
    made["mp_prefetch | filtered, in batches"] = _with_workers
    return made


def as_json(state: Any) -> Any:
    """A state as values of JSON; that of a loader is JSON in bytes."""
    return json.loads(state) if isinstance(state, bytes) else state


def from_json(ds: Any, state: Any) -> Any:
    """The same the other way round."""
    return json.dumps(state, indent=4).encode() if isinstance(ds, DataLoader) else state


def digest_of(iterator: Any) -> str:
    """A digest of all elements that an iterator still has, and of the errors among them."""
    digest = hashlib.sha256()
    for _ in range(2000):
        try:
            what = freeze(next(iterator))
        except StopIteration:
            return digest.hexdigest()[:16]
        except Exception as error:
            what = ("error", type(error).__name__)
        digest.update(json.dumps(_plain(what), sort_keys=True).encode())
    raise AssertionError("this stream does not end")


def _plain(value: Any) -> Any:
    """Values of JSON; the names of types are those of every numpy."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return value.hex()
    return "bool" if value == "bool_" else value
