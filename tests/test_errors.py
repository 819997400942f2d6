"""What bad input is told: the words, and the builtin that a Grain program would catch."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, ReadOptions, errors, transforms
from bushel.experimental import (
    DatasetOptions,
    FlatMapIterDataset,
    FlatMapMapDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    WindowShuffleMapDataset,
    WithOptionsIterDataset,
    ZipIterDataset,
    ZipMapDataset,
    get_element_spec,
    get_next_index,
    set_next_index,
)

numbers = MapDataset.range(10)
stream = numbers.to_iter_dataset(ReadOptions(0, 0))


class TooMany(transforms.FlatMap):
    max_fan_out = 1

    def flat_map(self, element: Any) -> list[Any]:
        return [element, element]


class NoLength:
    def __getitem__(self, index: int) -> int:
        return index


class WrongCount:
    """Gives one record too few when asked for many."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        return list(indices[:-1])


def _stop(element: Any) -> Any:
    raise StopIteration


def _stop_always(elements: Any) -> Any:
    raise StopIteration


class StopDataset(MapDataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        raise StopIteration


class StopSource:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        raise StopIteration


# What is wrong: what is written, the error's classes, and words that it must say.
Case = tuple[Callable[[], Any], type[Exception], type[Exception], str]
CASES: dict[str, Case] = {
    # Sources.
    "a source without a length": (
        lambda: MapDataset.source(NoLength()),
        errors.SourceError,
        TypeError,
        r"a source needs `__len__` and `__getitem__`.*and NoLength has not",
    ),
    "an iterator as a source": (
        lambda: MapDataset.source(iter([1])),
        errors.SourceError,
        TypeError,
        r"Put the records of an iterator in a list first\.",
    ),
    "a number as a source": (
        lambda: MapDataset.source(3),
        errors.SourceError,
        TypeError,
        "and int has not: 3",
    ),
    "columns of several lengths": (
        lambda: MapDataset.source({"a": np.zeros(3), "b": {"c": np.zeros(4)}}),
        errors.PlanError,
        ValueError,
        r"must be equally long.*element\['a'\]: 3, element\['b'\]\['c'\]: 4",
    ),
    "half columns": (
        lambda: MapDataset.source({"a": np.zeros(3), "b": [1, 2, 3]}),
        errors.SourceError,
        TypeError,
        r"element\['b'\]\[0\] is a int\. Convert it with `numpy.asarray`",
    ),
    "__getitems__ returns too few": (
        lambda: list(MapDataset.source(WrongCount())),
        errors.SourceError,
        TypeError,
        r"WrongCount\.__getitems__ was asked for \d+ records? and returned \d+",
    ),
    # Functions.
    "no function": (
        lambda: numbers.map(3),
        TypeError,
        TypeError,
        r"`map` takes a function or a `transforms\.Map`, and got int: 3",
    ),
    "no filter": (
        lambda: numbers.filter("odd"),
        TypeError,
        TypeError,
        r"`filter` takes a function or a `transforms\.Filter`, and got str",
    ),
    "no random map": (
        lambda: stream.random_map(None, seed=1),
        TypeError,
        TypeError,
        r"`random_map` takes a function or a `transforms\.RandomMap`, and got NoneType",
    ),
    "no map with index": (
        lambda: stream.map_with_index(7),
        TypeError,
        TypeError,
        r"`map_with_index` takes a function or a `transforms\.MapWithIndex`, and got int: 7",
    ),
    "no map of batches": (
        lambda: numbers.map_batches([]),
        TypeError,
        TypeError,
        r"`map_batches` takes a function or a `transforms\.MapBatches`, and got list",
    ),
    "no flat map": (
        lambda: FlatMapMapDataset(numbers, abs),
        TypeError,
        TypeError,
        r"takes a `FlatMap` object.*Subclass it and define `flat_map`",
    ),
    "apply of a function": (
        lambda: numbers.apply(abs),
        NotImplementedError,
        NotImplementedError,
        r"`apply` takes objects of the classes.*write `ds\.map\(function\)`",
    ),
    "more than max_fan_out": (
        lambda: FlatMapMapDataset(numbers, TooMany())[0],
        errors.PlanError,
        ValueError,
        r"`flat_map\(TooMany\)` made 2 elements of one, more than its max_fan_out of 1",
    ),
    "map_batches of another length": (
        lambda: numbers.map_batches(lambda x: np.zeros(3))[0],
        errors.BatchError,
        ValueError,
        r"got columns of 1 elements? and returned shape \(3,\) at element\. It must return arrays",
    ),
    "map_batches of no array": (
        lambda: numbers.map_batches(lambda x: {"sum": 3})[0],
        errors.BatchError,
        ValueError,
        r"returned a int at element\['sum'\]",
    ),
    "map_batches of nothing": (
        lambda: numbers.map_batches(lambda x: None)[0],
        errors.BatchError,
        ValueError,
        r"returned None: no columns",
    ),
    # StopIteration would end a loop without a word.
    "StopIteration in a map": (
        lambda: list(numbers.map(_stop)),
        RuntimeError,
        RuntimeError,
        r"`map\(_stop\)` raised StopIteration",
    ),
    "StopIteration in a stream's map": (
        lambda: list(stream.map(_stop)),
        RuntimeError,
        RuntimeError,
        r"`map\(_stop\)` raised StopIteration",
    ),
    "StopIteration in a filter": (
        lambda: list(stream.filter(_stop)),
        RuntimeError,
        RuntimeError,
        r"`filter\(_stop\)` raised StopIteration",
    ),
    "StopIteration in a batch_fn": (
        lambda: list(stream.batch(2, batch_fn=_stop_always)),
        RuntimeError,
        RuntimeError,
        r"`batch\(2, batch_fn=_stop_always\)` raised StopIteration",
    ),
    "StopIteration in a map of batches": (
        lambda: list(numbers.map_batches(_stop_always)),
        RuntimeError,
        RuntimeError,
        r"`map_batches\(_stop_always\)` raised StopIteration",
    ),
    "StopIteration in a source": (
        lambda: list(MapDataset.source(StopSource())),
        RuntimeError,
        RuntimeError,
        r"StopSource.* raised StopIteration",
    ),
    "StopIteration in a user's dataset": (
        lambda: list(StopDataset().map(abs)),
        RuntimeError,
        RuntimeError,
        r"`StopDataset` raised StopIteration",
    ),
    # Batches.
    "a batch of none": (
        lambda: numbers.batch(0),
        errors.PlanError,
        ValueError,
        r"batch_size must be positive\. Got 0",
    ),
    "a batch of less than none": (
        lambda: stream.batch(-3),
        errors.PlanError,
        ValueError,
        r"batch_size must be positive\. Got -3",
    ),
    "Batch of none": (
        lambda: transforms.Batch(0),
        errors.PlanError,
        ValueError,
        r"batch_size must be positive\. Got 0",
    ),
    "a batch of a half": (
        lambda: numbers.batch(2.5),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "batch_size must be an integer, and is 2.5, a float",
    ),
    "batch_fn is no function": (
        lambda: numbers.batch(2, batch_fn=3),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "`batch_fn` must be a function, and is 3",
    ),
    "a batch after a filter": (
        lambda: numbers.filter(bool).map(abs).batch(2),
        errors.PlanError,
        ValueError,
        r"`batch\(2\)` cannot follow `filter\(bool\)` on a random-access dataset.*to_iter_dataset",
    ),
    "a batch after a flat map": (
        lambda: FlatMapMapDataset(numbers, TooMany()).batch(2),
        errors.PlanError,
        ValueError,
        r"cannot follow `flat_map\(TooMany\)`",
    ),
    "unequal shapes": (
        lambda: numbers.map(lambda n: {"image": np.zeros((2, n // 3))}).batch(5)[0],
        errors.BatchError,
        ValueError,
        r"element\['image'\] has shape \(2, 0\) in element 0 of the batch and \(2, 1\) in element 3"
        r"\. Pad or crop",
    ),
    "unequal shapes in a list": (
        lambda: list(stream.map(lambda n: (n, np.zeros(n))).batch(2)),
        errors.BatchError,
        ValueError,
        r"element\[1\] has shape \(0,\) in element 0 of the batch and \(1,\) in element 1\. Pad or",
    ),
    "other keys": (
        lambda: numbers.map(lambda n: {"a": 1} if n else {"b": 1}).batch(2)[0],
        errors.BatchError,
        ValueError,
        r"one structure, but element is a dict with keys \['b'\] in element 0 of the batch and "
        r"a dict with keys \['a'\] in element 1",
    ),
    "other structures": (
        lambda: numbers.map(lambda n: {"a": (1, 2) if n < 2 else (1,)}).batch(4)[0],
        errors.BatchError,
        ValueError,
        r"element\['a'\] is a tuple of 2 in element 0 of the batch and a tuple of 1 in element 2",
    ),
    "None among others": (
        lambda: numbers.map(lambda n: {"a": None if n == 0 else n}).batch(2)[0],
        errors.BatchError,
        ValueError,
        r"element\['a'\] is a NoneType in element 0",
    ),
    # Orders.
    "a slice that is none": (
        lambda: numbers.slice(3),  # type: ignore[arg-type]
        errors.PlanError,
        ValueError,
        r"`slice` takes a slice, as in `ds\.slice\(slice\(0, 10\)\)`, not 3",
    ),
    "a step of 0": (
        lambda: numbers[::0],
        ValueError,
        ValueError,
        "slice step cannot be zero",
    ),
    "no epochs": (
        lambda: numbers.repeat(0),
        errors.PlanError,
        ValueError,
        "num_epochs must be positive, but got 0",
    ),
    "repeated for ever, twice": (
        lambda: numbers.repeat().repeat(),
        errors.PlanError,
        ValueError,
        "infinite already",
    ),
    "concatenate beyond the infinite": (
        lambda: MapDataset.concatenate([numbers, numbers.repeat()]),
        errors.PlanError,
        ValueError,
        "dataset 1 is infinite. Call `repeat` after `concatenate`",
    ),
    "concatenate of lists": (
        lambda: MapDataset.concatenate([numbers, [1]]),  # type: ignore[list-item]
        TypeError,
        TypeError,
        "`concatenate` takes `MapDataset`s, and item 1 is a list",
    ),
    "no window": (
        lambda: WindowShuffleMapDataset(numbers, window_size=0, seed=1),
        errors.PlanError,
        ValueError,
        "window_size must be positive, and is 0",
    ),
    "a position that is none": (
        lambda: numbers["a"],  # type: ignore[call-overload]
        TypeError,
        TypeError,
        "a position must be an integer, and is 'a', a str",
    ),
    "an element of nothing": (
        lambda: MapDataset.range(0)[0],
        errors.EmptyDatasetError,
        IndexError,
        "this dataset is empty: it has no element at any position",
    ),
    "an element of an empty slice": (
        lambda: numbers[5:5].shuffle(seed=1)[3],
        errors.EmptyDatasetError,
        ZeroDivisionError,
        "this dataset is empty",
    ),
    # Seeds.
    "a shuffle without a seed": (
        lambda: numbers.shuffle(),
        errors.PlanError,
        ValueError,
        r"`shuffle` requires a seed\. Call `ds\.seed\(seed\)` before it, or write "
        r"`shuffle\(\.\.\., seed=seed\)`",
    ),
    "a random map without a seed": (
        lambda: stream.random_map(lambda x, rng: x),
        errors.PlanError,
        ValueError,
        r"`random_map` requires a seed",
    ),
    "a seed of too many bits": (
        lambda: numbers.shuffle(seed=2**32),
        errors.PlanError,
        ValueError,
        r"`shuffle`: the seed must be an integer between 0 and 2\*\*32-1 \(got 4294967296\)",
    ),
    "a negative seed": (
        lambda: numbers.shuffle(seed=-1),
        errors.PlanError,
        ValueError,
        r"got -1",
    ),
    "a seed of a window shuffle": (
        lambda: WindowShuffleIterDataset(stream, window_size=2, seed=-1),
        errors.PlanError,
        ValueError,
        r"`window shuffle`: the seed must be.*got -1",
    ),
    "a negative seed of a random map": (
        lambda: numbers.random_map(lambda x, rng: x, seed=-5),
        errors.PlanError,
        ValueError,
        "`random_map` needs a seed that is not negative, and got -5",
    ),
    "half a seed": (
        lambda: numbers.shuffle(seed=0.5),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "seed must be an integer, and is 0.5, a float",
    ),
    # Several inputs.
    "a mix of nothing": (
        lambda: MapDataset.mix([]),
        errors.PlanError,
        ValueError,
        "`mix` needs at least one dataset, and got none",
    ),
    "a mix with an empty part": (
        lambda: MapDataset.mix([numbers, MapDataset.range(0)]),
        errors.PlanError,
        ValueError,
        "`mix` needs datasets with elements, and dataset 1 has length 0",
    ),
    "a weight too few": (
        lambda: MapDataset.mix([numbers, numbers], [1]),
        errors.PlanError,
        ValueError,
        r"`mix` got 2 datasets and 1 weights: \[1\]",
    ),
    "a weight of 0": (
        lambda: IterDataset.mix([stream, stream], [1, 0]),
        errors.PlanError,
        ValueError,
        r"positive, finite, non-zero weights, and got \[1, 0\]\. Leave a dataset out",
    ),
    "a weight of nan": (
        lambda: IterDataset.mix([stream, stream], [1, float("nan")]),
        errors.PlanError,
        ValueError,
        "positive, finite, non-zero",
    ),
    "weights by other names": (
        lambda: IterDataset.mix({"a": stream}, {"b": 1}),
        errors.PlanError,
        ValueError,
        r"`mix` got datasets \['a'\] and weights for \['b'\]",
    ),
    "weights by name for a list": (
        lambda: IterDataset.mix([stream], {"a": 1}),
        errors.PlanError,
        ValueError,
        "a mapping of weights only with a mapping of datasets",
    ),
    "a selection of no dataset": (
        lambda: MapDataset.select_from_datasets([numbers], [(0, 0), (3, 0)])[1],
        IndexError,
        IndexError,
        "the selection map named dataset 3, but there are only 1",
    ),
    "a zip of nothing": (
        lambda: ZipMapDataset([]),
        errors.PlanError,
        ValueError,
        "`ZipMapDataset` needs at least one dataset, and got none",
    ),
    "a zip of several lengths": (
        lambda: ZipMapDataset([numbers, MapDataset.range(3)]),
        errors.PlanError,
        ValueError,
        r"`ZipMapDataset` needs equally long datasets, and got \[10, 3\]",
    ),
    "streams that do not end together": (
        lambda: list(ZipIterDataset([stream, MapDataset.range(3).to_iter_dataset()])),
        errors.PlanError,
        ValueError,
        r"`ZipIterDataset`: argument 2 is shorter than argument 1.*`strict=False`",
    ),
    "streams that do not end together, the other way": (
        lambda: list(ZipIterDataset([MapDataset.range(3).to_iter_dataset(), stream])),
        errors.PlanError,
        ValueError,
        r"`ZipIterDataset`: argument 2 is longer than argument 1",
    ),
    # Options.
    "no read options": (
        lambda: numbers.to_iter_dataset(4),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "read_options must be `ReadOptions`, and is a int",
    ),
    "fewer threads than none": (
        lambda: ReadOptions(num_threads=-1),
        errors.PlanError,
        ValueError,
        r"ReadOptions\.num_threads must not be negative, and is -1",
    ),
    "half a thread": (
        lambda: ReadOptions(num_threads=0.5),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        r"ReadOptions\.num_threads must be an integer, and is 0\.5",
    ),
    "a negative buffer": (
        lambda: ThreadPrefetchIterDataset(stream, prefetch_buffer_size=-1),
        errors.PlanError,
        ValueError,
        "`prefetch_buffer_size` must not be negative, and is -1",
    ),
    "no dataset options": (
        lambda: WithOptionsIterDataset(stream, {}),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "options must be `DatasetOptions`, not dict",
    ),
    "no stream": (
        lambda: FlatMapIterDataset([1, 2], TooMany()),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "this takes an `IterDataset`, and got a list",
    ),
    "no dataset": (
        lambda: WindowShuffleMapDataset([1, 2], window_size=2, seed=1),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "this takes a `MapDataset`, and got a list",
    ),
    "the spec of a list": (
        lambda: get_element_spec([1]),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "`get_element_spec` takes a dataset, and got a list",
    ),
    "the index of a list": (
        lambda: get_next_index(iter([1])),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "this takes a dataset's iterator, and got a list_iterator",
    ),
    "an index beyond the end": (
        lambda: set_next_index(iter(stream), 11),
        errors.StateRangeError,
        IndexError,
        "there is no element 11; the dataset has 10",
    ),
    "the index after a filter": (
        lambda: get_next_index(iter(stream.filter(bool))),
        NotImplementedError,
        NotImplementedError,
        "this pipeline cannot tell elements by index without producing them: it filters",
    ),
    "a filter that drops everything": (
        lambda: list(
            WithOptionsIterDataset(
                MapDataset.range(5000).to_iter_dataset().filter(lambda number: number < 0),
                DatasetOptions(filter_raise_threshold_ratio=0.9),
            )
        ),
        errors.FilterError,
        ValueError,
        r"`filter\(<lambda> at test_errors.py:\d+\)` dropped 100\.00% of the last 1000 elements",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_says(case: Case) -> None:
    write, own, builtin, words = case
    with pytest.raises(own, match=f"(?s){words}") as caught:
        write()
    assert isinstance(caught.value, builtin)


def test_every_error_is_a_builtin_too() -> None:
    classes = [
        member
        for _, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, errors.BushelError) and member is not errors.BushelError
    ]
    for error in classes:
        builtins = [base for base in error.__mro__ if base.__module__ == "builtins"]
        assert set(builtins) - {object, BaseException, Exception}, error
        assert error.__name__ in (errors.__doc__ or ""), f"{error} is not in the tree"


class Unreadable:
    def __init__(self, broken: int) -> None:
        self._broken = broken

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        if index == self._broken:
            raise OSError("disk on fire")
        return index


def test_a_source_that_fails_names_the_key_and_the_position() -> None:
    ds = MapDataset.source(Unreadable(7))[2:].map(abs).batch(2)
    with pytest.raises(OSError, match="disk on fire") as caught:
        ds[2]
    assert caught.value.__notes__ == [
        "bushel: the source Unreadable failed on key 7.",
        "bushel: raised in `source(Unreadable)` at position 7.",
    ]
    assert ds[0].tolist() == [2, 3]


def test_an_iterator_goes_on_behind_bad_input() -> None:
    iterator = iter(MapDataset.source(Unreadable(3)).to_iter_dataset())
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="disk on fire"):
        next(iterator)
    assert list(iterator) == [4, 5, 6, 7, 8, 9]


def test_an_iterator_goes_on_behind_a_batch_that_does_not_fit() -> None:
    ragged = stream.map(lambda number: np.zeros(int(number == 3)))
    iterator = iter(ragged.batch(2))
    assert next(iterator).shape == (2, 0)
    with pytest.raises(errors.BatchError, match=r"shape \(0,\).*\(1,\) in element 1") as caught:
        next(iterator)
    assert caught.value.__notes__ == ["bushel: raised in `batch(2)` at position 1."]
    assert len(list(iterator)) == 3


def test_the_traceback_leads_to_the_function() -> None:
    def decode(number: int) -> int:
        return 1 // (number - 4)

    with pytest.raises(ZeroDivisionError) as caught:
        list(stream.map(decode))
    assert caught.traceback[-1].name == "decode"
    assert caught.value.__notes__ == ["bushel: raised in `map(decode)` at position 4."]


def test_a_small_buffer_for_many_threads_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="a prefetch_buffer_size of 2 cannot keep 8 threads busy"):
        ReadOptions(num_threads=8, prefetch_buffer_size=2)


def test_a_filter_that_drops_nearly_everything_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rare = MapDataset.range(3000).to_iter_dataset().filter(lambda number: number % 20 == 0)
    assert len(list(rare)) == 150
    assert caplog.text.count("dropped 95.00% of the last 1000 elements") == 1
    assert "DatasetOptions(filter_warn_threshold_ratio=None)" in caplog.text
