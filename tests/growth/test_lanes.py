"""A thousand lanes read what one reads, and a state has a few numbers for each."""

import itertools
import json
from typing import Any

import pytest

import bushel
from bushel.core.cursor import Cursor, Taken
from bushel.run.inline import compile_node
from bushel.run.shared_threads import SharedThreads
from bushel.run.thread_choice import ThreadChoice
from tests.growth.counting import CountingSource, counting_shuffles, threads

ELEMENTS, BATCH = 32 * 1024, 1024
LANES = [1, 16, 256, 1024]
KEPT = 2  # of so many elements one is kept


def is_odd(x: int) -> bool:
    return x % KEPT == 1


def lanes_of(source: Any, lanes: int, seed: int) -> Any:
    shuffled = bushel.MapDataset.source(source).shuffle(seed=seed)
    options = bushel.ReadOptions(num_threads=0)
    return shuffled.lanes(lanes, shard_options=bushel.ShardOptions(0, 1), read_options=options)


def dealt(source: Any, lanes: int, filtered: bool) -> Any:
    stream = lanes_of(source, lanes, seed=1)
    return (stream.filter(is_odd) if filtered else stream).batch(BATCH)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("filtered", [False, True])
def test_each_record_is_located_and_read_once(
    lanes: int, filtered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CountingSource(ELEMENTS)
    with counting_shuffles(monkeypatch) as located:
        elements = sum(len(batch) for batch in dealt(source, lanes, filtered))
    # It ends where some lane has no row for another batch, and no lane is beyond its own end.
    assert 3 * BATCH <= elements <= source.records <= ELEMENTS
    assert source.records <= located.positions <= ELEMENTS


@pytest.mark.parametrize("lanes", LANES)
def test_lanes_are_read_and_taken_from_together(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[int] = []
    take = Cursor.take

    def counted(self: Cursor, count: int, ahead: int = 0) -> Taken:
        touched.append(count)
        return take(self, count, ahead)

    monkeypatch.setattr(Cursor, "take", counted)
    source = CountingSource(4 * ELEMENTS)
    # Whatever each costs: how much is read at once is learned from it.
    monkeypatch.setattr("bushel.lanes.reader.SOON_SECONDS", 10.0)
    monkeypatch.setattr("bushel.lanes.reader._SECONDS_OF_A_LANE", 10.0)
    elements = sum(len(batch) for batch in dealt(source, lanes, filtered=True))
    assert elements >= 40 * BATCH
    assert len(source.calls) <= 400
    # Of a lane that has few rows in a batch, those of many batches.
    assert len(touched) <= elements / 4


@pytest.mark.parametrize("lanes", LANES)
def test_first_batch_reads_little_more_than_a_batch(lanes: int) -> None:
    source = CountingSource(ELEMENTS)
    stream = iter(dealt(source, lanes, filtered=True))
    next(stream)
    assert source.records <= 4 * KEPT * BATCH


def test_what_a_filter_leaves_out_is_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read_on = Cursor.read_on

    def counted(self: Cursor, want: int, as_rows: bool = False) -> bool:
        reads.append(want)
        return read_on(self, want, as_rows)

    monkeypatch.setattr(Cursor, "read_on", counted)
    monkeypatch.setattr("bushel.lanes.reader._SECONDS_OF_A_LANE", 10.0)
    stream = iter(dealt(CountingSource(8 * ELEMENTS), 1024, filtered=True))
    for _ in range(64):
        next(stream)
    # Four times as many rows of each lane each time: 1, 4, 16, 64, and some lanes once more.
    assert len(reads) <= 8 * 1024


def mixed(source: Any, lanes: int, filtered: bool) -> Any:
    """A mixture in each lane."""
    parts = [lanes_of(source, lanes, seed) for seed in range(4)]
    stream = bushel.IterDataset.mix(parts, [4, 3, 2, 1])
    return (stream.filter(is_odd) if filtered else stream).batch(BATCH)


@pytest.mark.parametrize("dataset", [dealt, mixed])
def test_no_lane_has_an_evaluator_of_its_own(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def counted(node: Any, *more: Any) -> Any:
        compiled.append(node)
        return compile_node(node, *more)

    for module in ("range_evaluator", "streams_together", "mixtures_together", "side_by_side"):
        monkeypatch.setattr(f"bushel.run.{module}.compile_node", counted)
    stream = iter(dataset(CountingSource(8 * ELEMENTS), 1024, filtered=True))
    for _ in range(4):
        next(stream)
    # One for each dataset that is dealt; and a lane that lacks an element is asked by itself.
    assert len(compiled) <= 64


@pytest.mark.parametrize("filtered", [False, True])
def test_mixtures_of_lanes_are_read_together(filtered: bool) -> None:
    source = CountingSource(8 * ELEMENTS)
    stream = iter(mixed(source, 1024, filtered))
    for _ in range(8):
        next(stream)
    assert len(source.calls) <= 64


@pytest.mark.parametrize("on_end", ["stop", "drop"])
def test_mixtures_of_filtered_lanes_are_read_together(on_end: str) -> None:
    source = CountingSource(64 * ELEMENTS)
    parts = [lanes_of(source, 1024, seed).filter(is_odd) for seed in range(4)]
    dataset = bushel.IterDataset.mix(parts, [4, 3, 2, 1], on_end=on_end).batch(BATCH)
    restored_after_two(dataset, source)
    assert source.records <= 16 * KEPT * BATCH
    assert len(source.calls) <= 16


@pytest.mark.parametrize("on_end", ["stop", "restart", "drop"])
@pytest.mark.parametrize("filtered", [False, True])
def test_mixtures_give_the_same_read_together_or_each_by_itself(
    on_end: str, filtered: bool
) -> None:
    def of_host(index: int, count: int) -> list[Any]:
        host, options = bushel.ShardOptions(index, count), bushel.ReadOptions(num_threads=0)
        # The parts end, and begin again, in the midst of what is read together.
        parts = [
            bushel.MapDataset.range(200 + 100 * seed).shuffle(seed=seed).repeat(1 + seed)
            for seed in range(3)
        ]
        lanes = [
            part.lanes(16, shard_options=host, read_options=options, agree=lambda steps: steps)
            for part in parts
        ]
        mixture = bushel.IterDataset.mix(lanes, [2, 1, 1], on_end=on_end)
        kept = mixture.filter(is_odd) if filtered else mixture
        stream = iter(kept.batch(16))
        batches = [batch.tolist() for batch in itertools.islice(stream, 20)]
        stream.set_state(stream.get_state())
        return [*batches, *(batch.tolist() for batch in itertools.islice(stream, 20))]

    whole = of_host(0, 1)
    # Two lanes are too few to be read together.
    hosts = [of_host(index, 8) for index in range(8)]
    assert 4 <= len(whole) == min(map(len, hosts))
    steps = range(len(whole))
    assert whole == [[row for host in hosts for row in host[step]] for step in steps]


def restored_after_two(dataset: Any, source: CountingSource) -> None:
    """Goes on from the state after two batches; `source` counts what that takes."""
    stream = iter(dataset)
    for _ in range(2):
        next(stream)
    state, wanted = stream.get_state(), next(stream)
    source.calls.clear()
    again = iter(dataset)
    again.set_state(state)
    assert next(again).tolist() == wanted.tolist()


@pytest.mark.parametrize("lanes", LANES)
def test_restoring_reads_little_more_than_a_batch(lanes: int) -> None:
    source = CountingSource(ELEMENTS)
    restored_after_two(dealt(source, lanes, filtered=True), source)
    assert source.records <= 4 * KEPT * BATCH


@pytest.mark.parametrize("lanes", LANES)
def test_restoring_mixtures_reads_little_more_than_a_batch(lanes: int) -> None:
    source = CountingSource(8 * ELEMENTS)
    restored_after_two(mixed(source, lanes, filtered=True), source)
    assert source.records <= 4 * KEPT * BATCH
    assert len(source.calls) <= 64


def test_a_state_has_a_few_numbers_for_each_lane() -> None:
    def state_bytes(lanes: int) -> int:
        stream = iter(dealt(CountingSource(ELEMENTS), lanes, filtered=True))
        next(stream)
        return len(json.dumps(stream.get_state()))

    assert state_bytes(1024) - state_bytes(1) <= 1023 * 32


def test_lanes_have_no_threads_of_their_own() -> None:
    before = threads()
    source = CountingSource(ELEMENTS)
    shuffled = bushel.MapDataset.source(source).shuffle(seed=1)
    dataset = shuffled.lanes(1024, shard_options=bushel.ShardOptions(0, 1)).filter(is_odd)
    with iter(dataset.batch(BATCH)) as stream:
        for _ in range(2):
            next(stream)
        # As many as a stream may have by its options, for all of them together.
        assert threads() - before <= bushel.ReadOptions().num_threads


@pytest.mark.parametrize("lanes", LANES)
def test_time_is_looked_at_for_all_lanes_at_once(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[int] = []
    delivered = SharedThreads.delivered

    def noted(self: SharedThreads, count: int, *more: float) -> None:
        notes.append(count)
        delivered(self, count, *more)

    monkeypatch.setattr(SharedThreads, "delivered", noted)
    # Whether threads are tried goes by the clock, and then each lane has blocks of its own.
    monkeypatch.setattr(ThreadChoice, "_consider_trial", lambda self: None)
    shuffled = bushel.MapDataset.source(CountingSource(ELEMENTS)).shuffle(seed=1)
    dataset = shuffled.lanes(lanes, shard_options=bushel.ShardOptions(0, 1)).filter(is_odd)
    with iter(dataset.batch(BATCH)) as stream:
        for _ in range(4):
            next(stream)
    # What a note costs is worth more than one element of each lane.
    assert len(notes) <= 64
