"""A chain of a hundred steps does a hundred steps' work: each element once through each."""

import itertools
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

import bushel
import bushel.experimental
from bushel.core.options import DatasetOptions
from bushel.run.build import build_stream
from bushel.run.positional import PositionalStream, _IndexMarks
from bushel.run.quota import DropQuota
from tests.growth.counting import CountingSource

ELEMENTS = 3_000
SIZES = [1, 10, 100]


class Step:
    """A function that counts its calls, as it is called by the step that has it."""

    def __init__(self, calls: Counter[int], number: int) -> None:
        self._calls, self._number = calls, number

    def __call__(self, x: int) -> Any:
        self._calls[self._number] += 1
        return x + 1


class Keep(Step):
    def __call__(self, x: int) -> Any:
        super().__call__(x)
        return True


def maps(dataset: Any, count: int, calls: Counter[int]) -> Any:
    for number in range(count):
        dataset = dataset.map(Step(calls, number))
    return dataset


def filters(dataset: Any, count: int, calls: Counter[int]) -> Any:
    for number in range(count):
        dataset = dataset.filter(Keep(calls, number))
    return dataset


def both(dataset: Any, count: int, calls: Counter[int]) -> Any:
    for number in range(count):
        step = Keep(calls, number) if number % 2 else Step(calls, number)
        dataset = dataset.filter(step) if number % 2 else dataset.map(step)
    return dataset


@pytest.mark.parametrize("chain", [maps, filters, both])
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("streamed", [False, True])
def test_each_step_sees_each_element_once(chain: Any, count: int, streamed: bool) -> None:
    source, calls = CountingSource(ELEMENTS), Counter[int]()
    dataset: Any = bushel.MapDataset.source(source)
    if streamed:
        stream = chain(dataset.to_iter_dataset(), count, calls)
    else:
        stream = chain(dataset, count, calls).to_iter_dataset()
    assert sum(len(batch) for batch in stream.batch(100)) == ELEMENTS
    assert source.records == ELEMENTS
    assert dict(calls) == dict.fromkeys(range(count), ELEMENTS)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_element_by_position_goes_once_through_each_step(streamed: bool) -> None:
    source, calls = CountingSource(ELEMENTS), Counter[int]()
    assert maps(bushel.MapDataset.source(source), 100, calls)[7] == 107
    assert source.records == 1
    assert dict(calls) == dict.fromkeys(range(100), 1)


def test_a_state_grows_by_the_name_of_a_step() -> None:
    def state_bytes(count: int) -> int:
        dataset = both(bushel.MapDataset.range(1000), count, Counter())
        stream = iter(dataset.to_iter_dataset().batch(10))
        next(stream)
        return len(json.dumps(stream.get_state()))

    assert state_bytes(100) - state_bytes(1) <= 99 * len('"filter(...)", ')


@pytest.mark.parametrize("count", [1, 3, 30])
def test_batches_that_are_taken_apart_are_not_read_far_ahead(count: int) -> None:
    source = CountingSource(10**9)
    stream: Any = bushel.MapDataset.source(source).to_iter_dataset()
    for _ in range(count):
        stream = stream.batch(50).unbatch()
    inner = build_stream(stream.batch(10)._own_node())
    # What a step makes of one element is known from its first one on.
    for number in range(5):
        chunk = inner.pull(4)
        assert chunk is not None
        assert chunk.block.rows()[0][0] <= 40 * number
    inner.close()
    assert source.records <= 5 * 4 * 10 + 50


def test_a_state_asks_each_of_a_chain_of_windows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, at = Counter[str](), _IndexMarks.at

    def counted(self: _IndexMarks, used: int) -> Any:
        asked["states"] += 1
        return at(self, used)

    stream: Any = bushel.MapDataset.range(1000).to_iter_dataset()
    for number in range(12):
        stream = bushel.experimental.WindowShuffleIterDataset(stream, window_size=10, seed=number)
    iterator = iter(stream.batch(5))
    batches = [next(iterator) for _ in range(6)]
    monkeypatch.setattr(_IndexMarks, "at", counted)
    states = [iterator.get_state() for _ in range(3)]
    assert asked["states"] == len(states)
    assert sorted(x for batch in batches for x in batch.tolist()) == list(range(30))


def test_two_hundred_steps_are_run_shown_and_sent() -> None:
    dataset = maps(bushel.MapDataset.range(1000), 200, Counter())
    assert dataset[1] == 201
    assert len(repr(dataset)) < 200 * 40
    stream = iter(both(dataset.to_iter_dataset(), 20, Counter()).batch(10))
    assert next(stream).tolist() == list(range(210, 220))
    stream.set_state(stream.get_state())
    assert next(stream).tolist() == list(range(220, 230))


# Python allows a thousand calls to be nested.
STEPS = 1100
# Of a long chain, `repr` shows so many steps after the source, and the number of the others.
STEPS_SHOWN = 23


def shuffled(dataset: Any, count: int, calls: Counter[int]) -> Any:
    for number in range(count):
        if number % 100 == 50:
            dataset = dataset.shuffle(seed=number)
        elif number % 100 == 75:
            dataset = dataset[1:]
        else:
            dataset = dataset.map(Step(calls, number))
    return dataset


@pytest.mark.parametrize("chain", [maps, filters, both, shuffled])
def test_thousands_of_steps_by_position(chain: Any) -> None:
    calls = Counter[int]()
    dataset = chain(bushel.MapDataset.range(40), STEPS, calls)
    assert f"… {STEPS - STEPS_SHOWN:,} more …" in repr(dataset)
    elements = list(dataset)
    assert dataset[3] == elements[3]
    assert len(dataset) >= len(elements) > 0
    copy = cloudpickle.loads(cloudpickle.dumps(dataset))
    assert list(copy) == elements
    stream = iter(dataset.to_iter_dataset().batch(5))
    next(stream)
    stream.set_state(stream.get_state())
    assert next(stream).tolist() == elements[5:10]


@pytest.mark.parametrize("chain", [maps, filters, both])
def test_thousands_of_steps_of_a_stream(chain: Any) -> None:
    calls = Counter[int]()
    dataset = chain(bushel.MapDataset.range(40).to_iter_dataset(), STEPS, calls)
    assert f"… {STEPS + 1 - STEPS_SHOWN:,} more …" in repr(dataset)
    elements = list(dataset)
    assert dict(calls) == dict.fromkeys(range(STEPS), 40)
    assert list(cloudpickle.loads(cloudpickle.dumps(dataset))) == elements
    stream = iter(dataset)
    for _ in range(7):
        next(stream)
    state = stream.get_state()
    assert next(stream) == elements[7]
    stream.set_state(state)
    assert list(stream) == elements[7:]


def test_a_step_that_fails_behind_thousands() -> None:
    stream = maps(bushel.MapDataset.range(10).to_iter_dataset(), STEPS, Counter())
    iterator = iter(maps(stream.map(lambda x: 1 // (x - STEPS - 4)), STEPS, Counter()))
    found: list[Any] = []
    for _ in range(10):
        try:
            found.append(next(iterator))
        except ZeroDivisionError:
            found.append(None)
    assert found == [STEPS - 1] * 4 + [None, STEPS + 1] + [STEPS] * 4


def test_thousands_of_steps_are_sent_to_a_worker() -> None:
    options = bushel.MultiprocessingOptions(num_workers=1)
    dataset = both(bushel.MapDataset.range(20), STEPS, Counter()).to_iter_dataset()
    with iter(both(dataset, STEPS, Counter()).batch(5).mp_prefetch(options)) as stream:
        assert [batch.tolist() for batch in stream] == [
            list(range(start + STEPS, start + STEPS + 5)) for start in (0, 5, 10, 15)
        ]


def test_a_block_of_many_steps_grows_though_it_takes_long() -> None:
    source = CountingSource(10**6)
    dataset = bushel.MapDataset.source(source)
    for _ in range(2000):
        dataset = dataset[1:]
    # Each block takes longer than a block should, however few elements it has.
    clock = itertools.count(step=0.03).__next__
    quota = DropQuota("", DatasetOptions())
    inner = PositionalStream(dataset._own_node(), bushel.ReadOptions(0, 0), False, quota, clock)
    found = 0
    while found < 2000:
        chunk = inner.pull(1)
        assert chunk is not None
        found += len(chunk.block)
    assert len(source.calls) <= 12


def test_a_chunk_of_many_steps_of_a_stream_grows_though_it_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = CountingSource(10**6)
    dataset = maps(bushel.MapDataset.source(source).to_iter_dataset(), 1000, Counter())
    clock = itertools.count(step=0.03).__next__
    monkeypatch.setattr("bushel.run.step_streams.time", SimpleNamespace(perf_counter=clock))
    inner = build_stream(dataset._own_node())
    sizes = [len(chunk.block) for _ in range(4) if (chunk := inner.pull(1)) is not None]
    inner.close()
    assert sizes[0] == 1
    assert sizes[-1] >= 16
