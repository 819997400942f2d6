"""Several streams in turn: the order of Grain, and its states."""

from collections.abc import Callable
from typing import Any

import grain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bushel
from bushel import IterDataset, MapDataset
from bushel.core.cursor import Cursor
from bushel.dataset import stream_node
from bushel.experimental import InterleaveIterDataset
from bushel.run.build import build_stream
from tests.contract.events import pull_events
from tests.contract.test_schedules import walk
from tests.grain.oracle import Raised, assert_same, events
from tests.property.profile import tried
from tests.streams.compare import assert_goes_on, assert_resumes
from tests.streams.models import interleave

# How long each dataset is, and what a filter leaves of it.
_parts = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([1, 2, 3])), min_size=1, max_size=7)
Parts = list[tuple[int, int]]
cycles = st.integers(1, 5)
# Grain starts threads for each.
fewer = settings(tried, max_examples=min(30, tried.max_examples))


def _elements(parts: Parts) -> list[list[int]]:
    return [
        [10 * number + k for k in range(length) if (10 * number + k) % step == 0]
        for number, (length, step) in enumerate(parts)
    ]


def _interleaved(lib: Any, parts: Parts, cycle: int) -> Any:
    datasets = []
    for number, (length, step) in enumerate(parts):
        ds = lib.MapDataset.range(10 * number, 10 * number + length)
        ds = ds.to_iter_dataset(lib.ReadOptions(0, 0))
        datasets.append(ds.filter(lambda x, n=step: x % n == 0) if step > 1 else ds)
    return lib.experimental.InterleaveIterDataset(datasets, cycle_length=cycle)


@fewer
@given(_parts, cycles, st.data())
def test_order_is_that_of_grain(parts: Parts, cycle: int, data: st.DataObject) -> None:
    expected = list(_interleaved(grain, parts, cycle))
    assert list(_interleaved(bushel, parts, cycle)) == expected
    done = data.draw(st.integers(0, len(expected)))
    assert_goes_on(_interleaved(grain, parts, cycle), _interleaved(bushel, parts, cycle), done)


@tried
@given(_parts, cycles)
def test_goes_on_from_everywhere(parts: Parts, cycle: int) -> None:
    assert_resumes(_interleaved(bushel, parts, cycle), interleave(_elements(parts), cycle))


@tried
@given(_parts, cycles, st.integers(0, 2**32 - 1))
def test_the_same_however_it_runs(parts: Parts, cycle: int, seed: int) -> None:
    ds = _interleaved(bushel, parts, cycle)
    walk(ds, pull_events(ds, [1] * 2000), seed)


class Bang(Exception):
    """An error of a user's own."""


def _part(number: int) -> Any:
    if number % 3 == 1:
        raise Bang(number)
    return MapDataset.range(10 * number, 10 * number + 2) if number % 4 else None


@pytest.mark.parametrize("cycle", [1, 2, 3, 20])
def test_datasets_that_cannot_be_opened_are_passed_over(cycle: int) -> None:
    ds: IterDataset[Any] = InterleaveIterDataset(
        MapDataset.range(12).map(_part), cycle_length=cycle
    )
    happened = events(iter(ds))
    whole = [n for n in range(12) if n % 3 != 1 and n % 4]
    elements = [event for event in happened if not isinstance(event, Raised)]
    assert elements == interleave([[10 * n, 10 * n + 1] for n in whole], cycle)
    errors = [event.error for event in happened if isinstance(event, Raised)]
    assert [str(error) for error in errors] == ["1", "4", "7", "10"]
    states = []
    with iter(ds) as iterator:
        for _ in happened:
            states.append(iterator.get_state())
            try:
                next(iterator)
            except Bang:
                continue
        for done, state in enumerate(states):
            iterator.set_state(state)
            assert iterator.get_state() == state
            assert_same(happened[done:], events(iterator))


def test_finished_datasets_are_not_opened_again() -> None:
    opened: list[int] = []

    def part(number: int) -> Any:
        opened.append(number)
        return MapDataset.range(number)

    ds: IterDataset[Any] = InterleaveIterDataset(MapDataset.range(1, 7).map(part), cycle_length=2)
    with iter(ds) as iterator:
        for _ in range(8):
            next(iterator)
        state = iterator.get_state()
        opened.clear()
        stream = build_stream(stream_node(ds))
        stream.restore(state)
        assert Cursor(stream).take(99).block.rows() == list(iterator)
    numbers, ended = state["iterators_in_use_indices"], state["exhausted"]
    running = {number for number, flag in zip(numbers, ended, strict=True) if not flag}
    finished = set(range(state["next_index_in_datasets"])) - running
    assert finished
    assert not {number + 1 for number in finished} & set(opened)


def test_what_fails_is_told_by_its_place_in_its_own_dataset() -> None:
    low, high = MapDataset.range(6).to_iter_dataset(), MapDataset.range(10, 16)
    ds = low.interleave(high).map(lambda x: 1 // (x % 10 - 4))
    expected = pull_events(ds, [1] * 20)
    errors = [what[3] for what, _ in expected if what[0] == "error"]
    assert len(errors) == 2 and all("at position 4" in notes[0] for notes in errors)
    for wants in ([20] * 9, [3] * 9):
        assert pull_events(ds, wants) == expected


def test_a_single_dataset_that_is_not_there_has_no_index() -> None:
    ds = InterleaveIterDataset(MapDataset.range(1).map(lambda _: None), cycle_length=1)
    iterator = iter(ds)
    with pytest.raises(NotImplementedError, match="cannot tell elements by index"):
        bushel.experimental.set_next_index(iterator, 0)
    assert list(iterator) == []


def test_slices_of_slices() -> None:
    parts = [MapDataset.range(n, n + 1) for n in range(12)]
    ds = InterleaveIterDataset(parts, cycle_length=2)
    ds.set_slice(slice(0, None, 2))
    ds.set_slice(slice(1, None, 3))
    assert list(ds) == [2, 8]
    ds.set_slice(slice(5, None))
    assert list(ds) == []


def test_datasets_of_a_dataset() -> None:
    def make(lib: Any) -> Any:
        parts = (
            lib.MapDataset.range(6)
            .shuffle(seed=3)
            .map(lambda n: lib.MapDataset.range(10 * n, 10 * n + n))
        )
        return lib.experimental.InterleaveIterDataset(parts.repeat(2), cycle_length=3)

    assert list(make(bushel)) == list(make(grain))


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda lib, ds: ds,
    "map_with_index": lambda lib, ds: ds.map_with_index(lambda i, x: (i, x)),
    "random_map": lambda lib, ds: ds.random_map(lambda x, rng: (x, rng.integers(99)), seed=2),
    "filter": lambda lib, ds: ds.filter(lambda x: x % 3 > 0),
    "batch": lambda lib, ds: ds.batch(2),
    "limit": lambda lib, ds: lib.experimental.LimitIterDataset(ds, 4),
    "repeat": lambda lib, ds: lib.experimental.RepeatIterDataset(ds, 2),
    "pack": lambda lib, ds: lib.experimental.FirstFitPackIterDataset(
        ds.map(lambda x: {"x": x}), length_struct={"x": 3}, num_packing_bins=2
    ),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("threads", "sequential"), [(0, False), (2, False), (3, True)])
def test_threads_with_parts_of_the_source(step: str, threads: int, sequential: bool) -> None:
    def make(lib: Any) -> Any:
        ds = lib.MapDataset.range(13).to_iter_dataset(lib.ReadOptions(0, 0))
        return lib.experimental.multithread_prefetch(
            STEPS[step](lib, ds), threads, 2, sequential_slice=sequential
        )

    expected = list(make(grain))
    assert_same(expected, list(make(bushel)))
    assert_resumes(make(bushel), expected)
    assert_goes_on(make(grain), make(bushel), len(expected) // 2)


class _Noted(IterDataset[int]):
    """Three numbers; tells the states that its iterators are moved to."""

    def __init__(self, moved_to: list[Any]) -> None:
        super().__init__()
        self._moved_to = moved_to

    def __iter__(self) -> Any:
        return _NotedIterator(self._moved_to)


class _NotedIterator(bushel.DatasetIterator[int]):
    def __init__(self, moved_to: list[Any]) -> None:
        super().__init__()
        self._moved_to, self._next = moved_to, 0

    def __next__(self) -> int:
        if self._next == 3:
            raise StopIteration
        self._next += 1
        return self._next

    def get_state(self) -> Any:
        return {"next": self._next}

    def set_state(self, state: Any) -> None:
        self._moved_to.append(state["next"])
        self._next = state["next"]


def test_a_state_is_checked_in_all_open_parts_before_one_moves() -> None:
    moved_to: list[Any] = []
    ds = InterleaveIterDataset(
        [_Noted(moved_to), MapDataset.range(9).to_iter_dataset()], cycle_length=2
    )
    with iter(ds) as iterator:
        expected = list(iterator)
    with iter(ds) as iterator:
        assert [next(iterator) for _ in range(4)] == expected[:4]
        state = iterator.get_state()
    state["iterators_in_use_states"][1]["next_index"] = "x"
    with iter(ds) as iterator:
        moved_to.clear()
        with pytest.raises(bushel.errors.StateError, match="next_index"):
            iterator.set_state(state)
        assert set(moved_to) <= {0}, "only back to where it was"
        assert list(iterator) == expected


class _Asked(IterDataset[int]):
    """A stream of the user's own that counts how often it is asked."""

    asked = 0

    def __iter__(self) -> Any:
        def elements() -> Any:
            for number in range(20):
                self.asked += 1
                yield number

        return elements()


@pytest.mark.parametrize("first", [True, False])
def test_no_more_is_asked_of_a_users_own_iterator_than_is_needed(first: bool) -> None:
    own, other = _Asked(), MapDataset.range(20).to_iter_dataset()
    ds = InterleaveIterDataset([own, other] if first else [other, own], cycle_length=2)
    iterator = iter(ds)
    for count in range(1, 11):
        next(iterator)
        assert own.asked <= (count + 1) // 2
