"""What functions get, how often, and what becomes of their answers."""

from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, ReadOptions, transforms
from bushel.errors import FilterError
from bushel.experimental import DatasetOptions, FlatMapIterDataset, WithOptionsIterDataset

INLINE = ReadOptions(0, 0)


def test_a_function_is_called_once_for_each_element() -> None:
    calls: list[int] = []
    ds = MapDataset.range(50).map(lambda number: calls.append(number) or number)  # type: ignore[func-returns-value]
    assert list(ds.to_iter_dataset(INLINE).batch(3, batch_fn=list).map(len)) == [3] * 16 + [2]
    assert calls == list(range(50))


def test_dropped_elements_reach_no_function() -> None:
    seen: list[int] = []

    def look(number: int) -> int:
        assert number is not None
        seen.append(number)
        return number

    ds = MapDataset.range(9).filter(lambda number: number % 3 == 0).map(look).filter(look)
    assert [ds[place] for place in range(9)] == [None, None, None, 3, None, None, 6, None, None]
    assert seen == [0, 0, 3, 3, 6, 6]


def test_a_filter_takes_any_truth() -> None:
    for answer in (1, "yes", np.True_, [0], np.array([1])):
        stream = MapDataset.range(3).to_iter_dataset()
        assert list(stream.filter(lambda number, a=answer: a)) == [0, 1, 2]
    assert list(MapDataset.range(3).filter(lambda number: np.int64(number))) == [1, 2]


def test_an_answer_counts_as_it_is_when_it_is_given() -> None:
    found: list[int] = []

    def factors(number: int) -> list[int]:
        found[:] = [factor for factor in (2, 3) if number % factor == 0]
        return found

    ds = MapDataset.range(1, 9)
    assert list(ds.to_iter_dataset().filter(factors)) == [2, 3, 4, 6, 8]
    assert list(ds.filter(factors).to_iter_dataset()) == [2, 3, 4, 6, 8]


@pytest.mark.parametrize("as_rows", [False, True])
def test_a_filter_that_drops_too_much_loses_nothing_behind_it(as_rows: bool) -> None:
    # The watch looks at 1,000 elements at a time, wherever blocks end.
    ds = MapDataset.range(5000)
    stream = (ds.map(int) if as_rows else ds).to_iter_dataset()
    stream = stream.filter(lambda n: n % 1000 < 50 or n // 1000 == 1)
    iterator = iter(
        WithOptionsIterDataset(stream, DatasetOptions(filter_raise_threshold_ratio=0.9))
    )
    taken, failures = [], []
    while True:
        try:
            taken.append(next(iterator))
        except StopIteration:
            break
        except FilterError:
            failures.append((len(taken), iterator.get_state()["next_index"]))
    assert taken == [n for n in range(5000) if n % 1000 < 50 or n // 1000 == 1]
    assert failures == [(50, 1000), (1100, 3000), (1150, 4000), (1200, 5000)]


@pytest.mark.parametrize("dropped", [899, 900])
def test_a_filter_may_drop_less_than_the_share_that_is_named(dropped: int) -> None:
    stream = MapDataset.range(1000).to_iter_dataset().filter(lambda n: n >= dropped)
    ds = WithOptionsIterDataset(stream, DatasetOptions(filter_raise_threshold_ratio=0.9))
    if dropped < 900:
        assert len(list(ds)) == 1000 - dropped
    else:
        with pytest.raises(FilterError, match="dropped 90"):
            list(ds)


def test_transformation_objects_are_their_methods() -> None:
    class Add(transforms.Map):
        def __init__(self, what: int) -> None:
            self._what = what

        def map(self, element: int) -> int:
            return element + self._what

    ds = MapDataset.range(3).map(Add(10))
    assert list(ds) == [10, 11, 12]
    assert repr(ds) == "MapDataset(range(0, 3, 1) -> map(Add))"


def test_random_numbers_depend_on_seed_and_position_alone() -> None:
    ds = MapDataset.range(20).random_map(lambda number, rng: rng.integers(10**6, size=3), seed=4)
    streamed = [numbers.tolist() for numbers in ds]
    assert [ds[place].tolist() for place in reversed(range(20))] == streamed[::-1]
    assert len({tuple(numbers) for numbers in streamed}) == 20
    assert ds[20].tolist() not in streamed
    other = MapDataset.range(20).random_map(lambda number, rng: rng.integers(10**6, size=3), seed=5)
    assert [numbers.tolist() for numbers in other] != streamed


def test_generators_are_numpys_whoever_keeps_them() -> None:
    kept = []

    def draw(number: int, rng: np.random.Generator) -> Any:
        if number % 3 == 0:
            kept.append((number, rng))
        rng.integers(2**32, dtype=np.uint32)  # Half a word is left over.
        return rng.random(number % 5).tolist(), rng.standard_normal()

    def fresh(number: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(4, counter=[0, 0, 0, number]))

    ds = MapDataset.range(40).random_map(draw, seed=4)
    assert list(ds) == [draw(number, fresh(number)) for number in range(40)]
    ours, theirs = kept[:14], kept[14:]
    assert [rng.random() for _, rng in ours] == [rng.random() for _, rng in theirs]


def test_a_random_map_that_stops_is_an_error() -> None:
    def stop(number: int, rng: np.random.Generator) -> float:
        if number == 7:
            raise StopIteration
        return rng.random()

    iterator = iter(MapDataset.range(10).random_map(stop, seed=4))
    before = [next(iterator) for _ in range(7)]
    with pytest.raises(RuntimeError, match="raised StopIteration, which would end the stream"):
        next(iterator)
    assert len({*before, *iterator}) == 9


def test_a_function_may_read_its_own_dataset() -> None:
    noise = MapDataset.range(5).random_map(lambda number, rng: rng.random(), seed=1)
    nested = MapDataset.range(5).random_map(
        lambda number, rng: (rng.random(), noise[number], rng.random()), seed=2
    )
    plain = MapDataset.range(5).random_map(
        lambda number, rng: (rng.random(), None, rng.random()), seed=2
    )
    for got, expected, between in zip(nested, plain, noise, strict=True):
        assert got == (expected[0], between, expected[2])


def test_map_batches_gets_columns_of_any_length() -> None:
    sizes: list[int] = []

    def double(columns: Any) -> Any:
        sizes.append(len(columns["x"]))
        return {"x": columns["x"] * 2}

    ds = MapDataset.source({"x": np.arange(500)}).map_batches(double)
    elements = list(ds.to_iter_dataset(INLINE))
    assert [int(element["x"]) for element in elements] == list(range(0, 1000, 2))
    assert type(elements[0]["x"]) is np.int64
    assert sum(sizes) == 500
    assert max(sizes) > 1


@pytest.mark.parametrize("dtype", ["U", "O", ">i4"])
def test_map_batches_may_return_any_array(dtype: str) -> None:
    def convert(columns: Any) -> Any:
        return columns.astype(dtype)

    ds = MapDataset.range(95, 105).map_batches(convert)
    for by_block in (ds, ds.to_iter_dataset(INLINE)):
        whole = list(by_block.batch(5))
        alone = [np.stack([ds[place] for place in range(start, start + 5)]) for start in (0, 5)]
        assert [batch.tolist() for batch in whole] == [batch.tolist() for batch in alone]
        assert [batch.dtype for batch in whole] == [batch.dtype for batch in alone]


def test_map_batches_of_elements_of_several_shapes() -> None:
    ragged = MapDataset.range(6).map(lambda number: np.ones(number % 3 + 1))
    doubled = ragged.map_batches(lambda columns: columns * 2)
    assert [element.tolist() for element in doubled] == [[2] * (n % 3 + 1) for n in range(6)]
    assert [doubled[place].shape for place in range(3)] == [(1,), (2,), (3,)]


def test_map_batches_leaves_its_argument_alone() -> None:
    table = np.arange(6)

    def scribble(columns: Any) -> Any:
        columns *= 10
        return columns

    ds = MapDataset.source(table).map_batches(scribble)
    assert list(ds) == list(ds) == [0, 10, 20, 30, 40, 50]
    assert table.tolist() == [0, 1, 2, 3, 4, 5]


def test_flat_map_takes_any_sequence() -> None:
    class Spread(transforms.FlatMap):
        max_fan_out = 3

        def flat_map(self, element: int) -> Any:
            return (range(element), np.arange(element), "abc"[:element])[element % 3]

    stream = FlatMapIterDataset(MapDataset.range(4).to_iter_dataset(), Spread())
    assert [str(element) for element in stream] == ["0", "a", "b", "0", "1", "2"]
