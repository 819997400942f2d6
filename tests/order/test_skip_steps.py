"""Ranges of steps that are left out, from any state, also from one that was saved before."""

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import IterDataset, MapDataset, ReadOptions
from bushel.errors import PlanError, StateError, StateRangeError
from bushel.experimental import get_next_index, set_next_index

Ranges = list[tuple[int, int]]

INLINE = ReadOptions(0, 0)
RANGES: list[Ranges] = [
    [],
    [(0, 0)],
    [(0, 3), (5, 5)],
    [(7, 9), (2, 4), (3, 5)],
    [(4, 6), (7, 8)],
    [(5, 10**12)],
    [(0, 10**15)],
]


def _is_odd(x: int) -> bool:
    return x % 2 == 1


def _stream(count: int) -> IterDataset[int]:
    return MapDataset.range(count).to_iter_dataset(INLINE)


# Streams whose elements are known by their numbers.
BY_NUMBER: dict[str, Callable[[], IterDataset[Any]]] = {
    "positions": lambda: _stream(14),
    "threads": lambda: MapDataset.range(14).map(str).to_iter_dataset(ReadOptions(2, 8)),
    "batches": lambda: _stream(33).batch(3).map(np.ndarray.tolist),
    "batches of a dataset": lambda: (
        MapDataset.range(33).shuffle(seed=1).batch(3).map(np.ndarray.tolist).to_iter_dataset()
    ),
    "windows": lambda: _stream(20).windows(4, stride=2).map(np.ndarray.tolist),
    "counted": lambda: _stream(13).skip(2).enumerate(),
    "repeated": lambda: MapDataset.range(5).shuffle(seed=1).repeat(3).to_iter_dataset(INLINE),
    "prefetched": lambda: bushel.experimental.ThreadPrefetchIterDataset(
        _stream(14), prefetch_buffer_size=3
    ),
}
# Streams that have to be counted.
COUNTED: dict[str, Callable[[], IterDataset[Any]]] = {
    "filtered": lambda: _stream(30).filter(_is_odd),
    "filtered batches": lambda: _stream(60).filter(_is_odd).batch(3).map(np.ndarray.tolist),
    "shuffled": lambda: _stream(14).shuffle(4, seed=1),
    "mixed": lambda: IterDataset.mix([_stream(9), _stream(30).filter(_is_odd)], [1, 1]),
    "repeated stream": lambda: _stream(5).filter(_is_odd).repeat(6),
    "taken apart": lambda: _stream(15).batch(4).unbatch().map(int),
    "guarded": lambda: MapDataset.range(14).on_error("skip", budget=3).to_iter_dataset(INLINE),
}
STREAMS = {**BY_NUMBER, **COUNTED}
# Their states tell how many steps came before: those of lanes, and of what counts.
TELLS = {
    "lanes": lambda: (
        MapDataset.range(60)
        .lanes(3, read_options=INLINE)
        .filter(_is_odd)
        .batch(3)
        .map(np.ndarray.tolist)
    ),
    "taken": lambda: _stream(40).filter(_is_odd).take(13),
}


def _kept(count: int, ranges: Ranges) -> list[int]:
    return [k for k in range(count) if not any(a <= k <= b for a, b in ranges)]


def _states(ds: IterDataset[Any]) -> tuple[list[Any], list[Any]]:
    """All elements, and the states before each of them and after the last."""
    iterator = iter(ds)
    states, elements = [iterator.get_state()], []
    for element in iterator:
        elements.append(element)
        states.append(iterator.get_state())
    return elements, states


@pytest.mark.parametrize("name", [*STREAMS, *TELLS])
def test_leaves_out_what_is_named_and_resumes_anywhere(name: str) -> None:
    ds = {**STREAMS, **TELLS}[name]()
    elements = list(ds)
    for ranges in RANGES:
        skipped = ds.skip_steps(ranges)
        expected = [elements[k] for k in _kept(len(elements), ranges)]
        seen, states = _states(skipped)
        assert seen == expected
        iterator = iter(skipped)
        for number, state in enumerate(states):
            iterator.set_state(state)
            assert iterator.get_state() == state
            assert list(iterator) == expected[number:]


@pytest.mark.parametrize("name", [*BY_NUMBER, *TELLS])
def test_states_from_before_are_good(name: str) -> None:
    ds = {**BY_NUMBER, **TELLS}[name]()
    elements, states = _states(ds)
    for ranges in RANGES:
        kept = _kept(len(elements), ranges)
        iterator = iter(ds.skip_steps(ranges))
        for number, state in enumerate(states):
            iterator.set_state(state)
            assert list(iterator) == [elements[k] for k in kept if k >= number]


@pytest.mark.parametrize("name", COUNTED)
def test_states_from_before_are_good_where_their_step_is_told(name: str) -> None:
    ds = COUNTED[name]()
    elements, states = _states(ds)
    ranges = [(1, 2), (6, 9)]
    kept = _kept(len(elements), ranges)
    for number, state in enumerate(states):
        iterator = iter(ds.skip_steps(ranges, state_step=number))
        iterator.set_state(state)
        assert list(islice(iterator, 1)) == [elements[k] for k in kept if k >= number][:1]
        # From here on states say it themselves, whatever else is told.
        again = iter(ds.skip_steps(ranges, state_step=0))
        again.set_state(iterator.get_state())
        assert list(again) == list(iterator)


def test_a_state_from_before_that_does_not_tell_its_step_is_refused() -> None:
    ds = COUNTED["filtered"]()
    elements, states = _states(ds)
    iterator = iter(ds.skip_steps([(2, 3)]))
    iterator.set_state(states[0])
    assert list(iterator) == elements[:2] + elements[4:]
    with pytest.raises(StateError, match=r"skip_steps\(\[\.\.\.\], state_step=n\)"):
        iterator.set_state(states[5])
    with pytest.raises(StateRangeError, match="the state_step of `skip_steps` is 11"):
        iter(ds.skip_steps([(2, 3)], state_step=11)).set_state(states[5])


@pytest.mark.parametrize("name", STREAMS)
def test_states_with_other_ranges_are_good(name: str) -> None:
    ds = STREAMS[name]()
    elements = list(ds)
    before, after = [(1, 3)], [(0, 2), (6, 8)]
    _, states = _states(ds.skip_steps(before))
    handed_out = [-1, *_kept(len(elements), before)]
    iterator = iter(ds.skip_steps(after))
    for last, state in zip(handed_out, states, strict=True):
        iterator.set_state(state)
        kept = _kept(len(elements), after)
        assert list(iterator) == [elements[k] for k in kept if k > last]


def test_a_damaged_count_is_refused() -> None:
    iterator = iter(COUNTED["filtered"]().skip_steps([(2, 3)]))
    state = iterator.get_state()
    for count in (-1, "3", 1000, None, 2**80):
        with pytest.raises(StateError):
            iterator.set_state({**state, "steps_passed": count})


class _Noting:
    """Notes which of its records are read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: int) -> int:
        self.read.append(key)
        if key == 50:
            raise ValueError("spoiled")
        return key


def test_what_is_known_by_number_is_not_read() -> None:
    source = _Noting(100)
    ds = MapDataset.source(source).to_iter_dataset(INLINE).skip_steps([(10, 89)])
    assert list(ds) == [*range(10), *range(90, 100)]
    assert set(source.read) == {*range(10), *range(90, 100)}


def test_elements_of_a_range_may_fail() -> None:
    ds = MapDataset.source(_Noting(100)).to_iter_dataset(INLINE)
    filtered = ds.filter(lambda x: True)
    with pytest.raises(ValueError, match="spoiled"):
        list(filtered)
    for stream in (ds, filtered):
        assert list(stream.skip_steps([(50, 50)])) == [x for x in range(100) if x != 50]
        assert list(stream.skip_steps([(20, 60)])) == [*range(20), *range(61, 100)]
    iterator = iter(filtered.skip_steps([(40, 45), (60, 70)]))
    assert list(islice(iterator, 44)) == [*range(40), *range(46, 50)]
    with pytest.raises(ValueError, match="spoiled"):
        next(iterator)
    state = iterator.get_state()
    # The one that failed was a step as well.
    assert state["steps_passed"] == 51
    assert list(iterator) == [*range(51, 60), *range(71, 100)]
    iterator.set_state(state)
    assert list(iterator) == [*range(51, 60), *range(71, 100)]


def test_positions_without_an_element_are_numbered_too() -> None:
    ds = MapDataset.range(30).map(lambda x: x if x % 4 else None).to_iter_dataset(INLINE)
    skipped = ds.skip_steps([(8, 12), (20, 21)])
    expected = [x for x in range(30) if x % 4 and not 8 <= x <= 12 and not 20 <= x <= 21]
    seen, states = _states(skipped)
    assert seen == expected
    for number, state in enumerate(states):
        iterator = iter(skipped)
        iterator.set_state(state)
        assert list(iterator) == expected[number:]


def test_bad_records_are_counted_over_a_range() -> None:
    source = MapDataset.source(_Noting(100)).on_error("skip", budget=0)
    ds = source.to_iter_dataset(INLINE).skip_steps([(60, 70)])
    with pytest.raises(bushel.errors.BadRecordsError):
        list(ds)


def test_endless() -> None:
    ds = MapDataset.range(10).repeat().to_iter_dataset(INLINE)
    skipped = ds.skip_steps([(3, 10**15 + 4), (10**15 + 7, 10**15 + 7)])
    assert list(islice(skipped, 6)) == [0, 1, 2, 5, 6, 8]


def test_indices_are_those_of_what_is_handed_out() -> None:
    iterator = iter(_stream(20).skip_steps([(2, 4), (8, 9)]))
    for number, element in enumerate([0, 1, 5, 6, 7, 10, 11]):
        assert get_next_index(iterator) == number
        assert next(iterator) == element
    for number, element in enumerate([0, 1, 5, 6, 7, 10, 11]):
        set_next_index(iterator, number)
        assert next(iterator) == element


def test_one_after_the_other() -> None:
    chance = random.Random(3)
    for ds in (_stream(40), _stream(80).filter(_is_odd)):
        elements = list(ds)
        for _ in range(10):
            stream, expected = ds, elements
            for _ in range(3):
                start = chance.randrange(30)
                ranges = [(start, start + chance.randrange(5))]
                stream = stream.skip_steps(ranges)
                expected = [expected[k] for k in _kept(len(expected), ranges)]
            seen, states = _states(stream)
            assert seen == expected
            number = chance.randrange(len(states))
            iterator = iter(stream)
            iterator.set_state(states[number])
            assert list(iterator) == expected[number:]


def test_it_is_told_where_records_are() -> None:
    ds = MapDataset.range(40).shuffle(seed=3).batch(2).to_iter_dataset()
    skipped = ds.skip_steps([(3, 5), (10, 12)])
    batches = [batch.tolist() for batch in skipped]
    assert [bushel.where(skipped, step=k).keys.tolist() for k in range(14)] == batches
    for key in range(40):
        seen = [k for k, batch in enumerate(batches) if key in batch]
        assert [found.step for found in bushel.when(skipped, key=key)] == seen
    filtered = _stream(60).filter(_is_odd).skip_steps([(3, 5)]).batch(2)
    found = [bushel.where(filtered, step=k).keys.tolist() for k in range(13)]
    assert found == [batch.tolist() for batch in islice(filtered, 13)]


def test_a_cache_on_disk_is_of_the_steps_that_are_left(tmp_path: Path) -> None:
    ds = _stream(10).map(str)
    assert list(ds.cache(tmp_path / "all")) == list("0123456789")
    assert list(ds.skip_steps([]).cache(tmp_path / "all")) == list("0123456789")
    with pytest.raises(PlanError, match=r"`skip_steps\(\[\(2, 4\)\]\)` is new"):
        list(ds.skip_steps([(2, 4)]).cache(tmp_path / "all"))


def test_it_is_told_by_diff() -> None:
    found = bushel.diff(_stream(20), _stream(20).skip_steps([(8, 9), (2, 4)]))
    assert "`skip_steps([(2, 4), (8, 9)])` is new" in str(found)


@pytest.mark.parametrize("wrong", [5, [5], [(3,)], [(5, 3)], [(-1, 2)], "ab", [(0, 10**30)]])
def test_wrong_ranges_are_refused(wrong: Any) -> None:
    with pytest.raises(PlanError, match="skip_steps"):
        _stream(10).skip_steps(wrong)


def test_steps_are_whole_numbers() -> None:
    with pytest.raises(TypeError, match="the last step must be an integer"):
        _stream(10).skip_steps([(1, 2.5)])  # type: ignore[list-item]
    with pytest.raises(PlanError, match="state_step is -1"):
        _stream(10).skip_steps([(1, 2)], state_step=-1)
    assert list(_stream(5).skip_steps([(np.int64(1), np.int64(2))])) == [0, 3, 4]


def test_random_access_datasets_name_the_way() -> None:
    with pytest.raises(AttributeError, match=r"ds\.to_iter_dataset\(\)\.skip_steps\(\.\.\.\)"):
        MapDataset.range(10).skip_steps([(1, 2)])  # type: ignore[attr-defined]
