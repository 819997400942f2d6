"""A thread in front of any iterator that has a state."""

from typing import Any

import pytest

from bushel import MapDataset
from bushel.experimental import ThreadPrefetchDatasetIterator
from tests.grain.oracle import Raised, events

SIZES = pytest.mark.parametrize("size", [0, 1, 3, 100])


class Counter:
    """An iterator of somebody else's, with a state of its own."""

    def __init__(self, stop: int, bad: int = -1) -> None:
        self.at, self.stop, self.bad = 0, stop, bad

    def __iter__(self) -> "Counter":
        return self

    def __next__(self) -> int:
        if self.at >= self.stop:
            raise StopIteration
        self.at += 1
        if self.at - 1 == self.bad:
            raise LookupError(self.bad)
        return self.at - 1

    def get_state(self) -> Any:
        return {"at": self.at}

    def set_state(self, state: Any) -> None:
        self.at = state["at"]


@SIZES
def test_states_are_those_of_the_elements_handed_out(size: int) -> None:
    with ThreadPrefetchDatasetIterator(Counter(9), size) as iterator:
        iterator.start_prefetch()
        states = [iterator.get_state()]
        for expected in range(9):
            assert next(iterator) == expected
            states.append(iterator.get_state())
        assert next(iterator, None) is None
        assert states == [{"at": number} for number in range(10)]
        for number in (4, 9, 0):
            iterator.set_state({"at": number})
            assert iterator.get_state() == {"at": number}
            assert list(iterator) == list(range(number, 9))


@SIZES
def test_what_fails_fails_in_its_place(size: int) -> None:
    with ThreadPrefetchDatasetIterator(Counter(6, bad=2), size) as iterator:
        shown = ["!" if isinstance(event, Raised) else event for event in events(iterator)]
    assert shown == [0, 1, "!", 3, 4, 5]


@SIZES
def test_over_an_iterator_of_a_dataset(size: int) -> None:
    ds = MapDataset.range(30).to_iter_dataset().filter(lambda number: number % 3 > 0)
    with iter(ds) as plain, ThreadPrefetchDatasetIterator(iter(ds), size) as iterator:
        for _ in range(5):
            assert next(iterator) == next(plain)
        assert iterator.get_state() == plain.get_state()
        plain.set_state(iterator.get_state())
        assert list(plain) == list(iterator)


def test_closed() -> None:
    iterator = ThreadPrefetchDatasetIterator(Counter(6), 2)
    assert next(iterator) == 0
    iterator.close()
    iterator.close()
    assert iterator.get_state() == {"at": 1}
    with pytest.raises(ValueError, match="closed"):
        next(iterator)
