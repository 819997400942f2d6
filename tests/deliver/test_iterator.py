"""Iterators as users hold them, their own ones included."""

from typing import Any

import pytest

from bushel import DatasetIterator, IterDataset, MapDataset, ReadOptions
from bushel.errors import StateError
from bushel.experimental import (
    FlatMapIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
    assert_equal_output_after_checkpoint,
    get_next_index,
    set_next_index,
)
from tests.contract.parts import Copies, is_not_third
from tests.contract.subclasses import Generated, Pairs

INLINE = ReadOptions(0, 0)


def _stream() -> IterDataset[Any]:
    return MapDataset.range(12).to_iter_dataset(INLINE)


def _record(number: int) -> dict[str, Any]:
    return {"id": number}


def test_an_iterator_iterates_over_itself() -> None:
    iterator = iter(_stream())
    assert iter(iterator) is iterator
    assert next(iterator) == 0
    assert list(iterator) == list(range(1, 12))
    assert list(iterator) == []
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_iterator_that_has_ended_can_be_restored() -> None:
    iterator = iter(_stream())
    start = iterator.get_state()
    assert len(list(iterator)) == 12
    iterator.set_state(start)
    assert len(list(iterator)) == 12


@pytest.mark.parametrize(
    "ds",
    [
        _stream().filter(bool).map_with_index(max),
        Pairs(MapDataset.range(12).map(_record).to_iter_dataset(INLINE)).filter(bool),
    ],
    ids=["a chain", "of the user's own"],
)
def test_what_is_done_to_a_state_is_not_done_to_the_iterator(ds: IterDataset[Any]) -> None:
    iterator = iter(ds)
    first = iterator.get_state()
    for happens in (lambda: None, lambda: next(iterator), iterator.close):
        happens()
        spoilt, state = iterator.get_state(), iterator.get_state()
        _spoil(spoilt)
        assert iterator.get_state() == state != spoilt
    again = iter(ds)
    again.set_state(first)
    _spoil(first)
    assert list(again) == list(ds)


def _spoil(state: dict[str, Any]) -> None:
    for name, value in state.items():
        if isinstance(value, dict):
            _spoil(value)
        else:
            state[name] = "spoilt"


def test_datasets_start_afresh_each_time() -> None:
    ds = _stream()
    assert list(ds) == list(ds) == list(range(12))


@pytest.mark.parametrize(
    ("ds", "elements"),
    [
        (_stream(), 12),
        (_stream().map(abs), 12),
        (_stream().map_with_index(max), 12),
        (_stream().batch(5), 3),
        (MapDataset.range(12).batch(2).to_iter_dataset(INLINE).batch(2), 3),
        (ThreadPrefetchIterDataset(_stream(), prefetch_buffer_size=3), 12),
    ],
    ids=["source", "map", "map_with_index", "batch", "batches", "prefetch"],
)
def test_next_index(ds: Any, elements: int) -> None:
    expected = [str(element) for element in ds]
    with iter(ds) as iterator:
        for index in range(elements):
            assert get_next_index(iterator) == index
            next(iterator)
        for index in reversed(range(elements)):
            set_next_index(iterator, index)
            assert get_next_index(iterator) == index
            assert str(next(iterator)) == expected[index]


def test_next_index_may_be_the_end() -> None:
    iterator = iter(_stream().map(abs))
    set_next_index(iterator, 12)
    assert next(iterator, None) is None


@pytest.mark.parametrize(
    "ds",
    [
        _stream().filter(bool),
        ZipIterDataset([_stream(), _stream()]),
        WindowShuffleIterDataset(_stream(), window_size=3, seed=1),
        IterDataset.mix([_stream(), _stream()]),
    ],
)
def test_next_index_is_refused_where_it_takes_work(ds: Any) -> None:
    with pytest.raises(NotImplementedError):
        set_next_index(iter(ds), 3)


class Doubled(IterDataset[Any]):
    """A user's own dataset, with an iterator of the user's own."""

    def __iter__(self) -> "DoubledIterator":
        return DoubledIterator(self._parent.__iter__())


class DoubledIterator(DatasetIterator[Any]):
    log: list[str]

    def __next__(self) -> Any:
        return 2 * next(self._parent)

    def get_state(self) -> dict[str, Any]:
        return self._parent.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self._parent.set_state(state)


def test_an_iterator_of_the_users_own() -> None:
    parent = MapDataset.range(12).to_iter_dataset(ReadOptions(2, 4))
    ds = Doubled(parent).map(lambda number: number + 1).batch(4, batch_fn=list)
    assert list(ds) == [[1, 3, 5, 7], [9, 11, 13, 15], [17, 19, 21, 23]]
    assert_equal_output_after_checkpoint(ds)
    assert_equal_output_after_checkpoint(Doubled(parent))
    with iter(Doubled(parent)) as iterator:
        iterator.start_prefetch()
        assert next(iterator) == 0


def test_an_iterator_of_the_users_own_is_asked_for_no_more_than_is_needed() -> None:
    asked: list[int] = []
    numbers = _stream().map(lambda number: asked.append(number) or number)  # type: ignore[func-returns-value]

    class Careful(IterDataset[Any]):
        def __iter__(self) -> Any:
            return DoubledIterator(self._parent.__iter__())

    iterator = iter(Careful(numbers).map(abs).batch(2, batch_fn=list))
    taken = [next(iterator)]
    assert taken == [[0, 2]]
    produced = len(asked)
    # What lies below the user's iterator is bushel's own, and may read ahead; the user's not.
    assert produced >= 2
    iterator = iter(Careful(numbers).map(abs))
    assert next(iterator) == 0


STATELESS = {
    "itself": (lambda: Generated(9).map(lambda element: element), 9),
    "batch": (lambda: Generated(9).batch(4), 3),
    "filter and batch": (lambda: Generated(9).filter(is_not_third).batch(4), 2),
    "zip": (lambda: ZipIterDataset([Generated(9), Generated(9)]).batch(2), 5),
    "mix": (lambda: IterDataset.mix([Generated(9), Generated(9)]).batch(2), 9),
    "flat map": (lambda: FlatMapIterDataset(Generated(9), Copies()), 12),
    "window": (lambda: WindowShuffleIterDataset(Generated(9), window_size=4, seed=1), 9),
    "prefetch": (lambda: ThreadPrefetchIterDataset(Generated(9), prefetch_buffer_size=4), 9),
}


@pytest.mark.parametrize(("make", "elements"), STATELESS.values(), ids=STATELESS.keys())
def test_a_plain_generator_streams_and_has_no_state(make: Any, elements: int) -> None:
    with iter(make()) as iterator:
        assert len(list(iterator)) == elements
        with pytest.raises(StateError, match="has no `get_state`, so this pipeline has no state"):
            iterator.get_state()
    with iter(make()) as iterator:
        next(iterator)


def test_check_of_a_dataset_that_forgets() -> None:
    class Forgetful(DoubledIterator):
        def set_state(self, state: dict[str, Any]) -> None:
            pass

    class ForgetfulDataset(IterDataset[Any]):
        def __iter__(self) -> Any:
            return Forgetful(self._parent.__iter__())

    with pytest.raises(AssertionError):
        assert_equal_output_after_checkpoint(ForgetfulDataset(_stream()))
