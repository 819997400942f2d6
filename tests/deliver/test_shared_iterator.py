"""One iterator, several threads: each element to one of them, and every call has a meaning."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from bushel.errors import ClosedError
from bushel.experimental import ElasticIterator, ThreadPrefetchIterDataset
from tests.patience import PATIENCE_SECONDS

THREADS = 4


def _is_kept(number: int) -> bool:
    return number % 3 != 0


def _double(number: int) -> int:
    return 2 * number


def _filtered(length: int = 3000) -> IterDataset[Any]:
    ds = MapDataset.range(length).map(_double).to_iter_dataset(ReadOptions(0, 0))
    return ds.filter(_is_kept).batch(2)


def _columns() -> IterDataset[Any]:
    # Batches of columns, which are made one by one when they are taken.
    return MapDataset.source(np.arange(8000)).shuffle(seed=1).batch(4).to_iter_dataset()


# How to make them; with each, whether worker processes are started.
STREAMS: dict[str, Callable[[], Any]] = {
    "filtered": _filtered,
    "columns": _columns,
    "threads": lambda: MapDataset.range(3000).map(_double).to_iter_dataset(ReadOptions(3, 64)),
    "packed": lambda: _filtered().map(len).shuffle(seed=3, buffer_size=50),
    "prefetched": lambda: ThreadPrefetchIterDataset(_filtered(), prefetch_buffer_size=8),
    "workers": lambda: _filtered(600).mp_prefetch(MultiprocessingOptions(num_workers=2)),
    "loader": lambda: bushel.DataLoader(
        data_source=range(2000),
        sampler=bushel.samplers.IndexSampler(2000, shuffle=True, seed=1, num_epochs=1),
    ),
    "elastic": lambda: ElasticIterator(MapDataset.range(2000), 4, bushel.ShardOptions(0, 1)),
}


@contextmanager
def _together(work: Callable[[int], None], threads: int = THREADS) -> Iterator[None]:
    """Runs something in several threads that begin at once, and hands on what they raise."""
    begin = threading.Barrier(threads + 1)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        begin.wait(PATIENCE_SECONDS)
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    begin.wait(PATIENCE_SECONDS)
    yield
    for thread in running:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def _as_values(elements: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in elements]


@pytest.mark.parametrize("name", STREAMS)
def test_each_element_goes_to_one_thread(name: str) -> None:
    expected = _as_values(STREAMS[name]())
    shared = iter(STREAMS[name]())
    taken: list[list[Any]] = [[] for _ in range(THREADS)]

    def take(number: int) -> None:
        taken[number].extend(_as_values(shared))

    with _together(take):
        pass
    assert sorted(value for values in taken for value in values) == sorted(expected)
    # Each thread sees the stream in order.
    place = {repr(value): index for index, value in enumerate(expected)}
    if len(place) == len(expected):
        for values in taken:
            places = [place[repr(value)] for value in values]
            assert places == sorted(places)
    shared.close()


def test_each_failure_goes_to_one_thread() -> None:
    def picky(number: int) -> int:
        if number % 7 == 0:
            raise KeyError(number)
        return number

    shared = iter(MapDataset.range(2000).map(picky).to_iter_dataset(ReadOptions(0, 0)))
    seen: list[int] = []
    failed: list[int] = []

    def take(_: int) -> None:
        while True:
            try:
                seen.append(next(shared))
            except KeyError as error:
                failed.append(error.args[0])
            except StopIteration:
                return

    with _together(take):
        pass
    assert sorted(failed) == list(range(0, 2000, 7))
    assert sorted(seen) == [number for number in range(2000) if number % 7]


@pytest.mark.parametrize("name", ["filtered", "columns", "threads", "loader"])
def test_states_are_between_two_elements(name: str) -> None:
    make = STREAMS[name]
    whole = _as_values(make())
    shared = iter(make())
    states: list[Any] = []

    def use(number: int) -> None:
        if number:
            for _ in shared:
                pass
        else:
            states.extend(shared.get_state() for _ in range(200))

    with _together(use):
        pass
    for state in states[:: len(states) // 10]:
        other = iter(make())
        other.set_state(state)
        rest = _as_values(other)
        assert rest == whole[len(whole) - len(rest) :]
    shared.close()


@pytest.mark.parametrize("name", ["filtered", "columns", "threads", "prefetched", "workers"])
def test_going_back_while_others_take_elements(name: str) -> None:
    make = STREAMS[name]
    whole = _as_values(make())
    shared = iter(make())
    start = shared.get_state()
    done = threading.Event()
    taken: list[Any] = []

    def use(number: int) -> None:
        if number:
            while not done.is_set():
                taken.extend(_as_values(next(shared, None) for _ in range(5)))
        else:
            try:
                for _ in range(20):
                    shared.set_state(start)
            finally:
                done.set()

    with _together(use):
        pass
    assert {repr(value) for value in taken} <= {repr(value) for value in [*whole, None]}
    shared.set_state(start)
    assert _as_values(shared) == whole
    shared.close()


@pytest.mark.parametrize("name", STREAMS)
def test_closing_while_others_take_elements(name: str) -> None:
    shared = iter(STREAMS[name]())
    closed: list[int] = []

    def take(number: int) -> None:
        try:
            while True:
                next(shared, None)
                if number == 0:
                    shared.close()
        except ClosedError:
            closed.append(number)

    with _together(take):
        pass
    assert sorted(closed) == list(range(THREADS))
    with pytest.raises(ClosedError):
        next(shared)
    shared.close()


def _touch_and_wait(path: str) -> int:
    Path(path).touch()
    threading.Event().wait()
    raise AssertionError("nobody waits that long")


def test_closing_ends_the_waiting_for_workers(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    ds = MapDataset.source([str(begun)]).map(_touch_and_wait).to_iter_dataset()
    shared = iter(ds.mp_prefetch(MultiprocessingOptions(num_workers=1)))
    ends: list[BaseException] = []

    def take(_: int) -> None:
        try:
            next(shared)
        except BaseException as error:
            ends.append(error)

    with _together(take, threads=1):
        while not begun.exists():
            threading.Event().wait(0.005)
        shared.close()
    assert [type(end) for end in ends] == [ClosedError]


def test_a_signal_handler_may_save_a_state() -> None:
    import signal

    states: list[Any] = []

    def busy(number: int) -> int:
        if number == 50:
            signal.raise_signal(signal.SIGUSR1)
        return number

    shared = iter(MapDataset.range(100).map(busy).to_iter_dataset(ReadOptions(0, 0)))
    before = signal.signal(signal.SIGUSR1, lambda *_: states.append(shared.get_state()))
    try:
        assert list(shared) == list(range(100))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(states) == 1
    shared.set_state(states[0])
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        rest = list(shared)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert rest == list(range(100 - len(rest), 100))
    assert 50 in rest
