"""What errors are, what they tell of where they were raised, and what comes after them."""

import inspect

import numpy as np
import pytest

from bushel import MapDataset, ReadOptions, errors
from tests.errors.cases import stream


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
