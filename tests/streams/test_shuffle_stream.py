"""The shuffle of a stream: everything once, spread as promised, from every state."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import MapDataset, ReadOptions
from bushel.dataset import stream_node
from bushel.deliver.open import open_stream
from bushel.errors import PlanError, StateError
from bushel.experimental import WindowShuffleIterDataset, WindowShuffleMapDataset
from tests.contract.events import events_of, is_error, pull_events, run_events, wants_from
from tests.contract.pipelines import Kit
from tests.property.profile import tried
from tests.streams.compare import assert_resumes
from tests.streams.test_parts import CountingSource, thirds_dropped
from tests.workers.streams import assert_same_events, with_workers

INLINE = ReadOptions(0, 0)
buffers = st.integers(1, 40)


def numbers(length: int) -> Any:
    return MapDataset.range(length).to_iter_dataset(INLINE)


@tried
@given(st.integers(0, 60), buffers, st.integers(0, 5))
def test_everything_once_and_from_every_state(length: int, buffer: int, seed: int) -> None:
    stream, expected = thirds_dropped(length)
    shuffled = list(stream.shuffle(buffer, seed))
    assert sorted(shuffled) == expected
    assert_resumes(stream.shuffle(buffer, seed), shuffled)


@tried
@given(st.integers(0, 300), buffers)
def test_reach(length: int, buffer: int) -> None:
    places = np.array(list(numbers(length).shuffle(buffer, seed=1)), dtype=np.int64)
    later = np.arange(length) - places
    assert (later <= 2 * buffer).all()
    # At most a buffer of them waits, so none comes earlier than that.
    assert (-later <= buffer).all()


def test_memory() -> None:
    source = CountingSource(5000)
    stream = MapDataset.source(source).to_iter_dataset(INLINE).shuffle(300, seed=1)
    opened = open_stream(stream_node(stream))
    given_out = 0
    while (chunk := opened.pull(1)) is not None:
        # What was read and had not been handed out when the last of it was read.
        assert len(source.read) - given_out <= 300
        given_out += len(chunk.block)
    assert given_out == 5000


def test_resumes_by_two_buffers() -> None:
    source = CountingSource(10_000)
    stream = MapDataset.source(source).to_iter_dataset(INLINE).shuffle(100, seed=1)
    iterator = iter(stream)
    for _ in range(7000):
        next(iterator)
    state = iterator.get_state()
    expected = next(iterator)
    again = iter(stream)
    source.read.clear()
    again.set_state(state)
    assert next(again) == expected
    assert 7000 - min(source.read) <= 200


def test_seeds() -> None:
    stream = numbers(200)
    one = list(stream.shuffle(50, seed=1))
    assert one == list(stream.shuffle(50, seed=1))
    assert one != list(stream.shuffle(50, seed=2))
    assert list(stream.seed(7).shuffle(50)) == list(stream.seed(7).shuffle(50))
    assert list(stream.seed(7).shuffle(50)) != list(stream.seed(8).shuffle(50))


def test_a_short_stream_is_shuffled_as_a_whole() -> None:
    firsts = [next(iter(numbers(20).shuffle(30, seed=seed))) for seed in range(400)]
    counts = np.bincount(firsts, minlength=20)
    # Each of 20 about 20 times.
    assert counts.min() >= 5
    assert counts.max() <= 45


def spread(elements: list[int], buffer: int) -> tuple[float, float]:
    """From how long a stretch 100 elements in a row come, and their deviation, in buffers."""
    middle = np.array(elements)[len(elements) // 5 : -len(elements) // 5]
    batches = middle[: len(middle) // 100 * 100].reshape(-1, 100)
    return np.ptp(batches, axis=1).mean() / buffer, batches.std(axis=1).mean() / buffer


def test_it_spreads_further_than_windows() -> None:
    """The figures in the text of `shuffle`."""
    buffer = 1000
    shuffled = spread(list(numbers(20_000).shuffle(buffer, seed=1)), buffer)
    window = WindowShuffleIterDataset(numbers(20_000), window_size=buffer, seed=1)
    windows = spread(list(window), buffer)
    assert shuffled == pytest.approx((1.95, 0.56), abs=0.05)
    assert windows == pytest.approx((0.98, 0.29), abs=0.05)


@pytest.mark.parametrize("buffer", [1, 3, 6, 7, 15, 100])
def test_what_fails_is_raised_once_and_nothing_is_lost(buffer: int) -> None:
    broken = (0, 4, 5, 9, 33, 39)
    stream = Kit(broken=broken).stream(40).shuffle(buffer, seed=2)
    expected = run_events(stream)
    assert sum(is_error(event) for event in expected) == len(broken)
    assert len(expected) == 40
    for seed in range(3):
        assert pull_events(stream, wants_from(seed, 9)) == expected
    with iter(stream) as iterator:
        states = []
        for _ in range(40):
            states.append(iterator.get_state())
            try:
                next(iterator)
            except Exception:
                continue
        for done, state in enumerate(states):
            iterator.set_state(state)
            assert events_of(iterator) == expected[done:]


@pytest.mark.parametrize("buffer", [1, 3, 5, 7, 50])
def test_positions_are_those_in_what_comes_out(buffer: int) -> None:
    stream = MapDataset.range(40).to_iter_dataset().shuffle(buffer, seed=2)
    for wants in ([1] * 50, [3, 9] * 25, [100, 1]):
        pulled = open_stream(stream_node(stream))
        positions: list[int] = []
        for want in wants:
            chunk = pulled.pull(want)
            positions += chunk.block.positions.tolist() if chunk is not None else []
        assert positions == list(range(40))


def test_lanes_are_shuffled_differently() -> None:
    ds = MapDataset.range(400).lanes(2).shuffle(30, seed=1).batch(2)
    rows = np.array(list(ds))
    assert sorted(rows.ravel().tolist()) == list(range(400))
    assert (rows[:, 0] // 2 != rows[:, 1] // 2).any()


def test_a_state_of_other_data_is_refused() -> None:
    iterator = iter(numbers(50).shuffle(100, seed=1))
    for _ in range(45):
        next(iterator)
    state = {name: part for name, part in iterator.get_state().items() if name != "bushel"}
    other = iter(numbers(40).shuffle(100, seed=1))
    other.set_state(state)
    with pytest.raises(StateError, match=r"after 45 elements of a shuffled window, .* only 40"):
        next(other)


@pytest.mark.parametrize("size", [0, -1])
def test_windows_that_cannot_be(size: int) -> None:
    for make, parent in (
        (WindowShuffleMapDataset, MapDataset.range(6)),
        (WindowShuffleIterDataset, numbers(6)),
    ):
        with pytest.raises(PlanError, match=f"window_size must be positive, and is {size}"):
            make(parent, window_size=size, seed=1)


@pytest.mark.parametrize("size", [1, 2])
def test_the_smallest_windows(size: int) -> None:
    by_position = list(WindowShuffleMapDataset(MapDataset.range(40), window_size=size, seed=1))
    in_a_stream = list(WindowShuffleIterDataset(numbers(40), window_size=size, seed=1))
    for elements in (by_position, in_a_stream):
        windows = [elements[start : start + size] for start in range(0, 40, size)]
        assert [sorted(window) for window in windows] == [
            list(range(start, start + size)) for start in range(0, 40, size)
        ]
        # Of one element there is one order; of two, both occur.
        assert len({window[0] % size for window in windows}) == size


def test_arguments() -> None:
    with pytest.raises(PlanError, match="buffer_size must be positive, and is 0"):
        numbers(5).shuffle(0, seed=1)
    with pytest.raises(PlanError, match=r"between 0 and 2\*\*32-1 \(got -1\)"):
        numbers(5).shuffle(5, seed=-1)
    with pytest.raises(PlanError, match="`shuffle` requires a seed"):
        numbers(5).shuffle(5)


def test_the_same_with_workers() -> None:
    stream = numbers(90).filter(lambda x: x % 4 > 0).shuffle(12, seed=3).map(lambda x: x + 1)
    assert_same_events(run_events(with_workers(stream, 2)), run_events(stream))
