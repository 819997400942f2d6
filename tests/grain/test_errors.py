"""What Grain refuses bushel refuses too, with an error that the same `except` catches."""

from collections.abc import Callable
from typing import Any

import grain
import numpy as np
import pytest

import bushel
from tests.grain.oracle import Raised, builtin_kind, outcome

# Each takes the library, and returns what should fail by the time one element was read.
Case = Callable[[Any], Any]


def _range(lib: Any, *arguments: int) -> Any:
    return lib.MapDataset.range(*arguments)


def _stream(lib: Any, count: int = 5) -> Any:
    return _range(lib, count).to_iter_dataset(lib.ReadOptions(num_threads=0))


def _mix(lib: Any, weights: Any) -> Any:
    return lib.MapDataset.mix([_range(lib, 5), _range(lib, 9)], weights)


def _mix_streams(lib: Any, weights: Any) -> Any:
    return lib.IterDataset.mix([_stream(lib), _stream(lib, 9)], weights)


def _fan(lib: Any, function: Any, **fields: Any) -> Any:
    methods = {"flat_map": staticmethod(function), **fields}
    return type("Fan", (lib.experimental.FlatMapTransform,), methods)()


def _restored(lib: Any, state: Any) -> Any:
    iterator = iter(_stream(lib).map_with_index(lambda i, x: (i, x)))
    iterator.set_state(state)
    return iterator


def _closed(lib: Any) -> Any:
    iterator = iter(_stream(lib))
    iterator.close()
    return iterator


SAME: dict[str, Case] = {
    "range(0, 10, 0)": lambda lib: _range(lib, 0, 10, 0),
    "range(1.5)": lambda lib: _range(lib, 1.5),
    "range('a')": lambda lib: _range(lib, "a"),
    "RangeDataSource(0, 5, 0)": lambda lib: lib.sources.RangeDataSource(0, 5, 0),
    "source(5)": lambda lib: lib.MapDataset.source(5),
    "source(None)": lambda lib: lib.MapDataset.source(None),
    "source(iterator)": lambda lib: lib.MapDataset.source(iter([1])),
    "empty range": lambda lib: _range(lib, 0)[0],
    "empty source": lambda lib: lib.MapDataset.source([])[0],
    "empty shuffle": lambda lib: _range(lib, 0).shuffle(seed=1)[0],
    "empty batch": lambda lib: _range(lib, 0).batch(2)[0],
    "empty slice": lambda lib: _range(lib, 5)[3:3][0],
    "empty slice of an empty one": lambda lib: _range(lib, 0)[1:][0],
    "empty concatenation": lambda lib: lib.MapDataset.concatenate([_range(lib, 0)])[0],
    "empty after drop_remainder": lambda lib: _range(lib, 3).batch(4, drop_remainder=True)[0],
    "position 'a'": lambda lib: _range(lib, 5)["a"],
    "position None": lambda lib: _range(lib, 5)[None],
    "position (1, 2)": lambda lib: _range(lib, 5)[1, 2],
    "position 'a' of a shuffle": lambda lib: _range(lib, 5).shuffle(seed=1)["a"],
    "slice(5)": lambda lib: _range(lib, 5).slice(5),
    "slice(None)": lambda lib: _range(lib, 5).slice(None),
    "[::0]": lambda lib: _range(lib, 5)[::0],
    "['a':]": lambda lib: _range(lib, 5)["a":],
    "[1.0:]": lambda lib: _range(lib, 5)[1.0:],
    "repeat(0)": lambda lib: _range(lib, 5).repeat(0),
    "repeat(-1)": lambda lib: _range(lib, 5).repeat(-1),
    "repeat(1.5)": lambda lib: len(_range(lib, 5).repeat(1.5)),
    "repeat().repeat()": lambda lib: _range(lib, 5).repeat().repeat(),
    "repeat().map().repeat(2)": lambda lib: _range(lib, 5).repeat().map(str).repeat(2),
    "repeat(2**63)": lambda lib: len(_range(lib, 5).repeat(2**63)),
    "repeat().batch(2).repeat(2)": lambda lib: len(_range(lib, 3).repeat().batch(2).repeat(2)),
    "shuffle()": lambda lib: _range(lib, 5).shuffle(),
    "shuffle(-1)": lambda lib: _range(lib, 5).shuffle(seed=-1),
    "shuffle(2**32)": lambda lib: _range(lib, 5).shuffle(seed=2**32),
    "shuffle('a')": lambda lib: _range(lib, 5).shuffle(seed="a"),
    "seed(-1)": lambda lib: _range(lib, 5).seed(-1).shuffle(),
    "seed(1.5)": lambda lib: _range(lib, 5).seed(1.5).shuffle(),
    "seed('a')": lambda lib: _range(lib, 5).seed("a").shuffle(),
    "seed(None)": lambda lib: _range(lib, 5).seed(None).shuffle(),
    "random_map()": lambda lib: _range(lib, 5).random_map(lambda x, rng: x),
    "random_map(seed=-1)": lambda lib: _range(lib, 5).random_map(lambda x, rng: x, seed=-1),
    "random_map(seed=1.5)": lambda lib: _range(lib, 5).random_map(lambda x, rng: x, seed=1.5),
    "random_map at -1": lambda lib: _range(lib, 5).random_map(lambda x, rng: x, seed=1)[-1],
    "random_map of a stream": lambda lib: _stream(lib).random_map(lambda x, rng: x),
    "map(3)": lambda lib: _range(lib, 5).map(3),
    "map(None)": lambda lib: _range(lib, 5).map(None),
    "filter(3)": lambda lib: _range(lib, 5).filter(3),
    "map_with_index(3)": lambda lib: _range(lib, 5).map_with_index(3),
    "map(Filter)": lambda lib: _range(lib, 5).map(
        type("F", (lib.transforms.Filter,), {"filter": lambda self, x: True})()
    ),
    "apply(function)": lambda lib: _range(lib, 5).apply(lambda x: x),
    "apply(3)": lambda lib: _range(lib, 5).apply(3),
    "ambiguous filter": lambda lib: _range(lib, 5).filter(lambda x: _AMBIGUOUS),
    "batch(0)": lambda lib: _range(lib, 5).batch(0),
    "batch(-1)": lambda lib: _range(lib, 5).batch(-1),
    "batch('a')": lambda lib: _range(lib, 5).batch("a"),
    "batch(None)": lambda lib: _range(lib, 5).batch(None),
    "batch(2.0)": lambda lib: _range(lib, 5).batch(2.0)[0],
    "batch(2, True)": lambda lib: _range(lib, 5).batch(2, True),
    "batch(batch_fn=3)": lambda lib: _range(lib, 5).batch(2, batch_fn=3),
    "batch after filter": lambda lib: _range(lib, 5).filter(bool).batch(2),
    "batch after filter, shuffle": lambda lib: (
        _range(lib, 5).filter(bool).shuffle(seed=1).map(str).batch(2)
    ),
    "batch after a filter in a mixture": lambda lib: lib.MapDataset.mix(
        [_range(lib, 5), _range(lib, 5).filter(bool)]
    ).batch(2),
    "batch after flat map": lambda lib: lib.experimental.FlatMapMapDataset(
        _range(lib, 5), _fan(lib, lambda x: [x], max_fan_out=2)
    ).batch(2),
    "batch of shapes": lambda lib: lib.MapDataset.source([_rows(2), _rows(3)]).batch(2),
    "batch of trees": lambda lib: lib.MapDataset.source([{"a": 1}, {"b": 1}]).batch(2),
    "batch of kinds": lambda lib: lib.MapDataset.source([{"a": 1}, 5]).batch(2),
    "batch of lengths": lambda lib: lib.MapDataset.source([[1], [1, 2]]).batch(2),
    "batch of holes": lambda lib: lib.MapDataset.source([{"a": None}, {"a": 1}]).batch(2),
    "stream batch(0)": lambda lib: _stream(lib).batch(0),
    "stream batch('a')": lambda lib: _stream(lib).batch("a"),
    "stream batch(2.0)": lambda lib: _stream(lib).batch(2.0),
    "stream batch of shapes": lambda lib: _stream(lib).map(_rows).batch(2),
    "concatenate(infinite)": lambda lib: lib.MapDataset.concatenate([_range(lib, 2).repeat()]),
    "concatenate(infinite slices)": lambda lib: len(
        lib.MapDataset.concatenate([_range(lib, 2).repeat().batch(2)] * 2)
    ),
    "concatenate([1])": lambda lib: lib.MapDataset.concatenate([1]),
    "concatenate(stream)": lambda lib: lib.MapDataset.concatenate([_stream(lib)]),
    "concatenate(MapDataset)": lambda lib: lib.MapDataset.concatenate(_range(lib, 3)),
    "ds.concatenate": lambda lib: _range(lib, 3).concatenate([_range(lib, 3)]),
    "mix([])": lambda lib: lib.MapDataset.mix([]),
    "mix([1])": lambda lib: lib.MapDataset.mix([1]),
    "mix(stream)": lambda lib: lib.MapDataset.mix([_stream(lib)]),
    "mix(empty)": lambda lib: lib.MapDataset.mix([_range(lib, 5), _range(lib, 0)]),
    "mix weight 0": lambda lib: _mix(lib, [0, 1]),
    "mix weights 0.0": lambda lib: _mix(lib, [0.0, 0.0]),
    "mix weight 'a'": lambda lib: _mix(lib, ["a", 1]),
    "mix weight None": lambda lib: _mix(lib, [None, 1]),
    "mix weight nan": lambda lib: _mix(lib, [float("nan"), 1]),
    "mix weights by name": lambda lib: _mix(lib, {"a": 1, "b": 1}),
    "select beyond the parts": lambda lib: lib.MapDataset.select_from_datasets(
        [_range(lib, 5)], [(2, 0)]
    ),
    "select beyond the list": lambda lib: lib.MapDataset.select_from_datasets(
        [_range(lib, 5)], [(0, 0)]
    )[1],
    "select nothing": lambda lib: lib.MapDataset.select_from_datasets([_range(lib, 5)], [])[0],
    "zip([])": lambda lib: lib.experimental.ZipMapDataset([]),
    "zip of lengths": lambda lib: lib.experimental.ZipMapDataset([_range(lib, 2), _range(lib, 3)]),
    "zip with infinite": lambda lib: lib.experimental.ZipMapDataset(
        [_range(lib, 2), _range(lib, 2).repeat()]
    ),
    "zip streams []": lambda lib: lib.experimental.ZipIterDataset([]),
    "zip streams of lengths": lambda lib: lib.experimental.ZipIterDataset(
        [_stream(lib, 0), _stream(lib, 3)]
    ),
    "zip streams, False": lambda lib: lib.experimental.ZipIterDataset([_stream(lib)], False),
    "window shuffle without a seed": lambda lib: lib.experimental.WindowShuffleMapDataset(
        _range(lib, 5), window_size=3
    ),
    "window shuffle seed None": lambda lib: lib.experimental.WindowShuffleMapDataset(
        _range(lib, 5), window_size=3, seed=None
    ),
    "window shuffle seed 'a'": lambda lib: lib.experimental.WindowShuffleIterDataset(
        _stream(lib), window_size=3, seed="a"
    ),
    "window shuffle size -2": lambda lib: lib.experimental.WindowShuffleMapDataset(
        _range(lib, 5), window_size=-2, seed=1
    ),
    "flat map beyond max_fan_out": lambda lib: lib.experimental.FlatMapMapDataset(
        _range(lib, 5), _fan(lib, lambda x: [x] * 3, max_fan_out=2)
    ),
    "flat map without max_fan_out": lambda lib: lib.experimental.FlatMapMapDataset(
        _range(lib, 5), _fan(lib, lambda x: [x])
    ),
    "mix streams []": lambda lib: lib.IterDataset.mix([]),
    "mix streams {}": lambda lib: lib.IterDataset.mix({}),
    "mix streams weight 0": lambda lib: _mix_streams(lib, [0, 1]),
    "mix streams weight 'a'": lambda lib: _mix_streams(lib, ["a", 1]),
    "prefetch -1": lambda lib: lib.experimental.ThreadPrefetchIterDataset(
        _stream(lib), prefetch_buffer_size=-1
    ),
    "prefetch without a size": lambda lib: lib.experimental.ThreadPrefetchIterDataset(_stream(lib)),
    "ReadOptions(-1)": lambda lib: lib.ReadOptions(num_threads=-1),
    "ReadOptions(buffer=-1)": lambda lib: lib.ReadOptions(prefetch_buffer_size=-1),
    "DatasetSelectionMap()": lambda lib: lib.transforms.DatasetSelectionMap(),
    "Map()": lambda lib: lib.transforms.Map(),
    "state beyond the end": lambda lib: _restored(
        lib, {"parent": {"next_index": 99}, "counter": 0}
    ),
    "state before the start": lambda lib: _restored(
        lib, {"parent": {"next_index": -2}, "counter": 0}
    ),
    "closed": _closed,
    "set_next_index beyond": lambda lib: lib.experimental.set_next_index(iter(_stream(lib)), 50),
    "set_next_index before": lambda lib: lib.experimental.set_next_index(iter(_stream(lib)), -1),
    "get_next_index after a filter": lambda lib: lib.experimental.get_next_index(
        iter(_stream(lib).filter(bool))
    ),
}

_WEIGHTS = "a wrong number, where Grain's own arithmetic stumbles over it"
_STATE = "a state that does not fit is one kind of error, whatever is wrong with it"

# Where Grain's error is an accident: what bushel raises instead, and why.
OTHER: dict[str, tuple[Case, type[Exception], str]] = {
    "mix weights [1]": (lambda lib: _mix(lib, [1]), ValueError, "AssertionError is no answer"),
    "mix weights [1, 1, 1]": (lambda lib: _mix(lib, [1, 1, 1]), ValueError, "as above"),
    "mix weight -1": (lambda lib: _mix(lib, [-1, 1]), ValueError, _WEIGHTS),
    "mix weight inf": (lambda lib: _mix(lib, [float("inf"), 1]), ValueError, _WEIGHTS),
    "mix streams weights [1]": (lambda lib: _mix_streams(lib, [1]), ValueError, "as above"),
    "window shuffle size 0": (
        lambda lib: lib.experimental.WindowShuffleMapDataset(_range(lib, 5), window_size=0, seed=1),
        ValueError,
        "a wrong argument, not a division",
    ),
    "window shuffle seed -1": (
        lambda lib: lib.experimental.WindowShuffleMapDataset(
            _range(lib, 5), window_size=2, seed=-1
        ),
        ValueError,
        "the kind of error that `shuffle(seed=-1)` raises",
    ),
    "state {}": (lambda lib: _restored(lib, {}), ValueError, _STATE),
    "state None": (lambda lib: _restored(lib, None), ValueError, _STATE),
    "state 'x'": (lambda lib: _restored(lib, "x"), ValueError, _STATE),
    "state of another pipeline": (
        lambda lib: _restored(lib, {"next_index": 1}),
        ValueError,
        _STATE,
    ),
    "state with text": (
        lambda lib: _restored(lib, {"parent": {"next_index": "a"}, "counter": 0}),
        ValueError,
        _STATE,
    ),
}


class _Ambiguous:
    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


_AMBIGUOUS = _Ambiguous()


def _rows(count: int) -> Any:
    return np.zeros(count)


def _happens(case: Case, lib: Any) -> Any:
    def run() -> Any:
        made = case(lib)
        if isinstance(made, lib.MapDataset):
            len(made)
            made[0]
        if isinstance(made, lib.IterDataset):
            made = iter(made)
        return next(made)

    return outcome(run)


@pytest.mark.parametrize("case", SAME.values(), ids=SAME.keys())
def test_same_kind_of_error(case: Case) -> None:
    expected, actual = _happens(case, grain), _happens(case, bushel)
    assert isinstance(expected, Raised), f"Grain accepts this and gives {expected!r}"
    assert isinstance(actual, Raised), f"bushel gives {actual!r}, and Grain {expected!r}"
    assert isinstance(actual.error, builtin_kind(expected.error)), (expected, actual)
    assert str(actual.error), "an error says what is wrong"


@pytest.mark.parametrize(("case", "kind", "reason"), OTHER.values(), ids=OTHER.keys())
def test_another_kind_of_error(case: Case, kind: type[Exception], reason: str) -> None:
    expected, actual = _happens(case, grain), _happens(case, bushel)
    assert isinstance(expected, Raised)
    assert not isinstance(expected.error, kind), f"no other kind any more: {reason}"
    assert isinstance(actual, Raised)
    assert isinstance(actual.error, kind), (actual, reason)
