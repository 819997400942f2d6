"""What programs written for Grain do beside its documented API, as public projects have them."""

import copy
import functools
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import DatasetIterator, IterDataset, MapDataset, ReadOptions
from bushel.errors import BatchError, PlanError
from bushel.experimental import (
    DatasetOptions,
    FlatMapMapDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RebatchIterDataset,
    WithOptionsIterDataset,
    get_element_spec,
    get_next_index,
    multithread_prefetch,
    set_next_index,
)
from bushel.samplers import SequentialSampler
from bushel.sharding import NoSharding

INLINE = ReadOptions(0, 0)


class Doubled(MapDataset[int]):
    """A dataset of the user's that measures itself, as Grain's do."""

    def __len__(self) -> int:
        return len(self._parent)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        with self._stats.record_self_time():
            return self._stats.record_output_spec(2 * self._parent[index])


def test_datasets_that_measure_themselves() -> None:
    ds = Doubled(MapDataset.range(4))
    assert list(ds) == [0, 2, 4, 6]
    ds._stats.report()


def test_what_a_loader_is_made_of() -> None:
    source, sampler = [1, 2, 3], SequentialSampler(3, NoSharding())
    loader = bushel.DataLoader(data_source=source, sampler=sampler, read_options=ReadOptions(2, 4))
    assert loader._data_source is source
    assert loader._sampler is sampler
    assert list(loader._operations) == []
    assert loader._shard_options == NoSharding()
    assert loader._read_options == ReadOptions(2, 4)
    assert loader._multiprocessing_options.num_workers == 0


class ByThread:
    """A source that tells its readers apart by the numbers in their names, as MaxText's does."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self.seen: set[int] = set()

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        self.seen.add(int(threading.current_thread().name.split("_")[1]))
        return index


def test_readers_have_numbers_and_are_always_there() -> None:
    source = ByThread(3)
    ds = MapDataset.source(source).to_iter_dataset(ReadOptions(num_threads=3))
    assert list(ds) == list(range(400))
    assert source.seen <= {0, 1, 2}
    loader = bushel.DataLoader(
        data_source=source,
        sampler=SequentialSampler(400, NoSharding()),
        read_options=ReadOptions(num_threads=3),
    )
    assert list(loader) == list(range(400))


class Twice(bushel.experimental.FlatMapTransform):
    max_fan_out = 3

    def flat_map(self, element: Any) -> Any:
        return [element, element]


def test_what_is_endless_stays_so_when_it_is_made_more() -> None:
    endless = FlatMapMapDataset(MapDataset.range(5).repeat(), Twice())
    assert len(endless) == sys.maxsize
    assert endless
    assert len(endless[:7]) == 7
    assert len(MapDataset.mix([endless, endless])) == sys.maxsize
    with pytest.raises(PlanError, match="infinite already"):
        endless.repeat(2)


class Counting(DatasetIterator[int]):
    def __init__(self, numbers: range) -> None:
        super().__init__()
        self._numbers, self._next = numbers, 0

    def __next__(self) -> int:
        if self._next >= len(self._numbers):
            raise StopIteration
        self._next += 1
        return self._numbers[self._next - 1]

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


class Own(IterDataset[int]):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = range(6)

    def __iter__(self) -> DatasetIterator[int]:
        return Counting(self.numbers)


class Sliced(Own):
    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        self.numbers = self.numbers[sl]


class Over(IterDataset[int]):
    """A stream of the user's over another."""

    def __iter__(self) -> Iterator[int]:  # type: ignore[override]
        return map(abs, self._parent)


def test_own_streams_with_one_thread_are_used_as_they_are() -> None:
    ds = multithread_prefetch(Own(), 1, 2)
    assert list(ds) == list(range(6))
    with iter(ds) as iterator:
        next(iterator)
        iterator.set_state(iterator.get_state())
        assert list(iterator) == [1, 2, 3, 4, 5]


def test_own_streams_with_more_threads_are_sliced_by_their_own_method() -> None:
    assert list(multithread_prefetch(Sliced(), 2, 2)) == list(range(6))
    with pytest.raises(PlanError, match="if it has a method `set_slice"):
        multithread_prefetch(Own(), 2, 2)
    over = Over(MapDataset.range(6).to_iter_dataset(INLINE))
    assert list(multithread_prefetch(over, 2, 2)) == list(range(6))
    assert list(over) == list(range(6))


def _seldom(number: int) -> bool:
    return number % 50 == 49


def test_options_reach_what_is_interleaved_and_what_follows() -> None:
    options = DatasetOptions(filter_raise_threshold_ratio=0.5)
    numbers = MapDataset.range(3000).to_iter_dataset(INLINE)
    filtered = numbers.filter(_seldom)
    pipelines: list[IterDataset[Any]] = [
        WithOptionsIterDataset(InterleaveIterDataset([filtered] * 2, cycle_length=2), options),
        WithOptionsIterDataset(multithread_prefetch(filtered, 2, 2), options),
        multithread_prefetch(WithOptionsIterDataset(numbers, options), 2, 2).filter(_seldom),
    ]
    for ds in pipelines:
        with iter(ds) as iterator, pytest.raises(ValueError, match="filter"):
            list(iterator)


def test_elements_by_number() -> None:
    stream = MapDataset.range(10).to_iter_dataset(INLINE)
    iterator = iter(LimitIterDataset(stream, 5))
    next(iterator), next(iterator)
    assert get_next_index(iterator) == 2
    set_next_index(iterator, 4)
    assert list(iterator) == [4]
    for ds in (InterleaveIterDataset([stream], cycle_length=1), multithread_prefetch(stream, 1, 2)):
        with iter(ds) as alone:
            next(alone), next(alone)
            assert get_next_index(alone) == 2
            set_next_index(alone, 7)
            assert list(alone) == [7, 8, 9]


class Joined:
    def __call__(self, rows: Any) -> Any:
        return np.stack(rows)

    def output_spec(self, spec: Any, batch_size: int, drop_remainder: bool) -> Any:
        return spec, batch_size, drop_remainder


def test_specs_of_what_functions_make_of_batches() -> None:
    element = get_element_spec(MapDataset.range(10))
    for function in (Joined(), functools.partial(Joined())):
        ds = MapDataset.range(10).batch(3, batch_fn=function)
        assert get_element_spec(ds) == (element, 3, False)
    with pytest.raises(NotImplementedError, match="output_spec"):
        get_element_spec(MapDataset.range(10).batch(3, batch_fn=np.stack))
    stream = MapDataset.range(10).to_iter_dataset().batch(4)
    rebatched = get_element_spec(RebatchIterDataset(stream, 3, drop_remainder=False))
    assert rebatched.shape == (3,)


def test_kinds_of_errors() -> None:
    for kind in (TypeError, ValueError, BatchError):
        with pytest.raises(kind):
            list(MapDataset.source([{"a": 1}, {"b": 2}]).batch(2))


def test_parts_of_a_dataset_for_threads_of_ones_own() -> None:
    stream = MapDataset.range(10).to_iter_dataset(INLINE)
    part: Any = copy.copy(stream)
    part.set_slice(slice(1, None, 3))
    assert list(part) == [1, 4, 7]
    part = copy.copy(stream)
    part.set_slice(slice(1, None, 3), sequential_slice=True)
    assert list(part) == [4, 5, 6]
    assert list(stream) == list(range(10))
    source: Any = MapDataset.source(list(range(10)))
    source.set_slice(slice(0, None, 2), sequential_slice=True)
    assert list(source) == [0, 1, 2, 3, 4]
    with pytest.raises(PlanError, match="`set_slice` is for what `to_iter_dataset"):
        stream.map(abs).set_slice(slice(3))  # type: ignore[attr-defined]


def test_settings_without_effect_say_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bushel"):
        bushel.config.update("py_relay_sigterm_to_main", True)
    bushel.config.update("py_relay_sigterm_to_main", False)
    assert "py_relay_sigterm_to_main = True is accepted and has no effect" in caplog.text
