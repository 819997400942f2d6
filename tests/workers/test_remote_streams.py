"""One stream: any number of workers, and the elements, errors and states are the same."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import IterDataset, MapDataset, ReadOptions, transforms
from bushel.experimental import (
    FlatMapIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
    get_next_index,
    set_next_index,
)
from bushel.sharding import NoSharding, ShardOptions
from tests.contract.events import run_events
from tests.contract.parts import Copies, is_not_third, jitter
from tests.contract.pipelines import Kit
from tests.contract.subclasses import Generated, Pairs, Reversed
from tests.nursery import one_nursery
from tests.patience import PATIENCE_SECONDS
from tests.workers import parts
from tests.workers.streams import (
    INLINE,
    assert_same_events,
    make_loader,
    signed_events,
    with_workers,
    workers,
)

__all__ = ["one_nursery"]  # What is made is looked at here, not who makes it.

# Loaders.

NUMBERS = np.arange(60)


class EverySecond:
    """A sampler of a user's own, which does not know its length."""

    def __getitem__(self, index: int) -> Any:
        if index >= 24:
            raise IndexError(index)
        rng = np.random.Generator(np.random.Philox(key=index))
        return bushel.RecordMetadata(index=index, record_key=2 * index, rng=rng)

    def __repr__(self) -> str:
        return "EverySecond()"


def label_odd(records: Iterator[Any]) -> Iterator[Any]:
    """An operation of a user's own: from Records to fewer Records."""
    for record in records:
        if record.data % 2:
            yield bushel.Record(record.metadata, (record.data, record.metadata.index))


LOADERS: dict[str, dict[str, Any]] = {
    "records": {},
    "batches": {"operations": [parts.Double(), bushel.Batch(7)]},
    "a filter, batches of what is left, and a map of those": {
        "operations": [parts.NotThird(), bushel.Batch(4), parts.Double()]
    },
    "random maps before and after a filter": {
        "operations": [parts.Noise(), parts.FirstIsEven(), parts.Noise(), bushel.Batch(3)]
    },
    "random maps of batches": {"operations": [bushel.Batch(4), parts.Noise(), parts.Noise()]},
    "a flat map, a filter and batches": {
        "operations": [parts.Twice(), parts.NotThird(), bushel.Batch(7, drop_remainder=True)]
    },
    "positions": {"operations": [parts.WithIndex(), bushel.Batch(4, batch_fn=list)]},
    "columns": {
        "source": {"x": NUMBERS, "y": np.stack([NUMBERS, -NUMBERS], 1)},
        "operations": [bushel.Batch(8), parts.SumOfColumns()],
    },
    "the older operations": {
        "operations": [
            bushel.MapOperation(lambda number: number + 1),
            bushel.RandomMapOperation(lambda number, rng: (number, rng.random())),
            bushel.FilterOperation(lambda pair: pair[0] % 3),
            bushel.BatchOperation(5),
        ]
    },
    "an operation of the user's own": {
        "operations": [parts.Double(), parts.PlusOne(), label_odd, bushel.Batch(6)]
    },
    "a sampler of the user's own": {
        "sampler": EverySecond(),
        "shard_options": NoSharding(),
        "operations": [parts.Noise(), bushel.Batch(4)],
    },
    "a shard of several epochs": {
        "sampler": bushel.IndexSampler(60, ShardOptions(1, 3), True, num_epochs=2, seed=3),
        "operations": [parts.NotThird(), parts.Noise(), bushel.Batch(3, drop_remainder=True)],
    },
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders(name: str) -> None:
    case = dict(LOADERS[name])
    operations = case.pop("operations", [])
    expected = signed_events(iter(make_loader(*operations, workers=0, **case)))
    assert len(expected) > 5
    assert signed_events(iter(make_loader(*operations, workers=2, **case))) == expected


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("buffer_size", [1, 6])
def test_any_count_and_buffer(count: int, buffer_size: int) -> None:
    operations = [parts.Noise(), parts.FirstIsEven(), bushel.Batch(3), parts.Noise()]
    expected = signed_events(iter(make_loader(*operations, workers=0, count=200)))
    loader = make_loader(*operations, workers=count, count=200, worker_buffer_size=buffer_size)
    # The second pass finds the workers of the first.
    for _ in range(2):
        assert signed_events(iter(loader)) == expected


def test_states_lead_from_any_count_to_any_other() -> None:
    operations = [parts.Noise(), parts.FirstIsEven(), bushel.Batch(3), parts.Noise()]
    loaders = {n: make_loader(*operations, workers=n, count=70) for n in (0, 1, 2, 5)}
    expected = signed_events(iter(loaders[0]))
    # Each iterator hands its state on to the one after it, round and round.
    iterators = [iter(loader) for loader in loaders.values()]
    done, taken = 0, []
    for iterator, after, leg in zip(
        itertools.cycle(iterators),
        itertools.cycle([*iterators[1:], iterators[0]]),
        (1, 0, 2, 1, 3, 1, 1, 2),
        strict=False,
    ):
        for _ in range(leg):
            next(iterator)
        taken.append(iterator.get_state())
        done += leg
        after.set_state(taken[-1])
        assert after.get_state() == taken[-1]
    assert taken[-1] == expected[done - 1][1]
    assert signed_events(iterators[0]) == expected[done:]
    for iterator in iterators:
        iterator.set_state(taken[2])
        assert signed_events(iterator) == expected[3:]


def test_load() -> None:
    expected = [batch.tolist() for batch in bushel.load(NUMBERS, num_epochs=1, batch_size=7)]
    loader = bushel.load(NUMBERS, num_epochs=1, batch_size=7, worker_count=2)
    assert [batch.tolist() for batch in loader] == expected


# Datasets.


def _numbers(count: int = 60) -> IterDataset[Any]:
    return MapDataset.range(count).to_iter_dataset(INLINE)


STREAMS: dict[str, Callable[[], Any]] = {
    "random maps of a filtered stream": lambda: (
        Kit().stream(50).filter(is_not_third).random_map(jitter, seed=3).batch(4)
    ),
    "random maps of batches after a filter": lambda: (
        Kit().stream(50).filter(is_not_third).batch(4).random_map(jitter, seed=3).map(parts.same)
    ),
    "random maps at random positions": lambda: (
        Kit()
        .source(50)
        .shuffle(seed=2)
        .random_map(jitter, seed=1)
        .repeat(2)
        .random_map(parts.add_noise, seed=2)
    ),
    "batches of what a map dropped": lambda: (
        MapDataset.range(60).map(parts.none_for_some).to_iter_dataset(INLINE).batch(4)
    ),
    "a window shuffle of a flat map": lambda: WindowShuffleIterDataset(
        FlatMapIterDataset(Kit().stream(40), Copies()), window_size=9, seed=4
    ).batch(4),
    "a random map of a flat map": lambda: (
        FlatMapIterDataset(Kit().stream(40), Copies())
        .random_map(jitter, seed=4)
        .map_with_index(parts.with_index)
    ),
    "a mix of a filter and batches": lambda: IterDataset.mix(
        [_numbers().filter(parts.is_odd).map(parts.square), _numbers().map(parts.square)], [2, 1]
    ).batch(5, batch_fn=list),
    "a zip of unequal streams": lambda: ZipIterDataset(
        [_numbers(50).filter(parts.is_odd), _numbers(60).random_map(parts.draw, seed=1)],
        strict=False,
    ).map(parts.same),
    "a random-access dataset of the user's own": lambda: (
        Reversed(Kit().source(30).shuffle(seed=1)).map(parts.same).batch(4)
    ),
    "a stream of the user's own": lambda: Pairs(Kit().stream(30)).filter(is_not_third).batch(3),
}


@pytest.mark.parametrize("name", STREAMS)
def test_datasets(name: str) -> None:
    ds = STREAMS[name]()
    expected = signed_events(iter(with_workers(ds, 0)))
    assert len(expected) > 5
    assert signed_events(iter(with_workers(ds, 2))) == expected


PLACES: dict[str, Callable[[Any], Any]] = {
    "the end": lambda place: place(_numbers().filter(parts.is_odd).map(parts.square).batch(4)),
    "before the batches": lambda place: place(_numbers().filter(parts.is_odd)).batch(4),
    "before everything": lambda place: place(_numbers()).filter(parts.is_odd).map(parts.square),
    "one part of a mix": lambda place: IterDataset.mix(
        [place(_numbers().random_map(parts.draw, seed=1)), _numbers().map(parts.square)]
    ),
    "below a thread": lambda place: ThreadPrefetchIterDataset(
        place(_numbers().filter(parts.is_odd).map(parts.square)), prefetch_buffer_size=5
    ).batch(3),
    "above a thread": lambda place: place(
        ThreadPrefetchIterDataset(_numbers().filter(parts.is_odd), prefetch_buffer_size=5)
    ).batch(3),
    "below a stream of the user's own": lambda place: Pairs(place(Kit().stream(30))).batch(2),
}


@pytest.mark.parametrize("name", PLACES)
def test_anywhere_in_the_chain(name: str) -> None:
    expected = signed_events(iter(PLACES[name](lambda ds: ds)))
    assert len(expected) > 5
    assert signed_events(iter(PLACES[name](lambda ds: with_workers(ds, 2)))) == expected


def test_other_ways_to_ask_for_workers() -> None:
    expected = run_events(_numbers().map(parts.square))
    ds = _numbers().map(parts.square)
    assert run_events(ds.prefetch(workers(1))) == expected
    assert run_events(ds.mp_prefetch(workers(2), sequential_slice=True)) == expected
    assert run_events(ds.mp_prefetch(workers(1, per_worker_buffer_size=40))) == expected


def test_a_stream_without_states_still_streams() -> None:
    elements = [str(element) for element in Generated(20).map(parts.same)]
    ds = with_workers(Generated(20).map(parts.same), 2)
    assert [str(element) for element in ds] == elements


def test_next_index() -> None:
    ds = MapDataset.range(40).shuffle(seed=1).map(parts.square).batch(3, batch_fn=list)
    expected = list(ds)
    with iter(with_workers(ds, 2)) as iterator:
        for index in (7, 0, 13, 3):
            set_next_index(iterator, index)
            assert get_next_index(iterator) == index
            assert next(iterator) == expected[index]
        set_next_index(iterator, len(expected))
        assert next(iterator, None) is None


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_within_the_workers(threads: int) -> None:
    source = parts.Slow(80)
    inline = MapDataset.source(source).shuffle(seed=1).to_iter_dataset(INLINE)
    ds = MapDataset.source(source).shuffle(seed=1).to_iter_dataset(ReadOptions(threads, 16))
    expected = run_events(inline.filter(parts.is_odd).batch(3, batch_fn=list))
    assert run_events(with_workers(ds.filter(parts.is_odd).batch(3, batch_fn=list), 2)) == expected


# Who does what.


def test_steps_run_in_the_workers_and_what_follows_them_here() -> None:
    def mark(element: Any) -> Any:
        return element, os.getpid()

    ds = _numbers().map(mark).filter(lambda pair: pair[0] % 3).batch(4, batch_fn=list).map(mark)
    here = os.getpid()
    for (batch, after_the_batch), outside in with_workers(ds, 2).map(mark):
        assert here not in {inside for _, inside in batch}
        assert after_the_batch != here
        assert outside == here


def test_two_iterators_in_turn() -> None:
    operations = [parts.Noise(), parts.FirstIsEven(), bushel.Batch(3)]
    expected = signed_events(iter(make_loader(*operations, workers=0)))
    loader = make_loader(*operations, workers=2)
    one, other = iter(loader), iter(loader)
    next(one)
    for (_, behind), (_, ahead) in itertools.pairwise(expected):
        next(one)
        next(other)
        assert (other.get_state(), one.get_state()) == (behind, ahead)
    assert next(one, None) is None
    assert signed_events(other) == expected[-1:]


def test_used_from_another_thread_than_it_was_started_in() -> None:
    """The thread in which workers were started may end before them."""
    ds = with_workers(_numbers(400).map(lambda number: (number, os.getpid())), 2)
    started: list[Any] = []

    def start() -> None:
        started.append(iter(ds))
        started.append(next(started[0]))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    iterator, first = started
    rest = list(iterator)
    assert [number for number, _ in [first, *rest]] == list(range(400))
    # Nobody had to be replaced for that.
    assert len({pid for _, pid in [first, *rest]}) <= 2


def test_a_state_does_not_wait_for_workers(tmp_path: Path) -> None:
    gate = tmp_path / "closed"
    ds = MapDataset.range(10**9).map(parts.Gate(gate)).to_iter_dataset(INLINE).filter(parts.is_odd)
    with iter(ds) as plain, iter(with_workers(ds, 2)) as iterator:
        for _ in range(5):
            assert next(iterator) == next(plain)
        states: list[Any] = []
        gate.touch()
        asking = threading.Thread(target=lambda: states.append(iterator.get_state()))
        asking.start()
        asking.join(PATIENCE_SECONDS)
        answered = list(states)
        gate.unlink()
        asking.join(PATIENCE_SECONDS)
        assert answered == [plain.get_state()]
        assert next(iterator) == next(plain)


def test_a_state_before_the_first_element_does_not_wait_either(tmp_path: Path) -> None:
    gate = tmp_path / "closed"
    gate.touch()
    ds = MapDataset.range(100).map(parts.Gate(gate)).to_iter_dataset(INLINE)
    states: list[Any] = []
    with iter(with_workers(ds, 1)) as iterator:
        iterator.start_prefetch()
        asking = threading.Thread(target=lambda: states.append(iterator.get_state()))
        asking.start()
        asking.join(PATIENCE_SECONDS)
        answered = list(states)
        gate.unlink()
        asking.join(PATIENCE_SECONDS)
        with iter(ds) as plain:
            assert answered == [plain.get_state()]
        assert list(iterator) == list(range(100))


def test_failures_in_their_places() -> None:
    ds = Kit(broken=(4, 5, 9, 33)).stream(40).filter(is_not_third).random_map(jitter, seed=1)
    expected = run_events(ds.batch(2))
    for count in (1, 5):
        assert_same_events(run_events(with_workers(ds.batch(2), count)), expected)


def test_a_filter_that_drops_nearly_all_is_told_of_as_ever(caplog: Any) -> None:
    def keep_few(number: int) -> bool:
        return number % 500 == 0

    ds = MapDataset.range(4000).to_iter_dataset(INLINE).filter(keep_few)
    messages = []
    for count in (0, 1):
        caplog.clear()
        assert list(with_workers(ds, count)) == list(range(0, 4000, 500))
        messages.append([record.getMessage() for record in caplog.records])
    assert messages[0]
    assert messages[1] == messages[0]


def test_flat_maps_of_the_largest_fan_out() -> None:
    class Fan(transforms.FlatMap):
        max_fan_out = 50

        def flat_map(self, element: int) -> list[tuple[int, int]]:
            return [(element, copy) for copy in range(element % 50)]

    ds = (
        FlatMapIterDataset(_numbers(70), Fan())
        .filter(lambda pair: pair[1] % 7)
        .batch(9, batch_fn=list)
    )
    assert run_events(with_workers(ds, 2)) == run_events(ds)
