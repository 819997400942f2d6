"""Threads that streams share: as many as allowed for all of them, and gone with the last."""

import pickle
import threading
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.block import Block
from bushel.plan.lanes import LaneReadOptions
from bushel.run.crew import Crew, crew_for

LANES = 64


def _numbers(start: int, count: int) -> Block:
    positions = np.arange(start, start + count)
    return Block(positions.tolist(), positions)


def _readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("bushel-read")}


def _crew(threads: int, buffer_size: int, streams: int) -> Crew:
    return Crew(ReadOptions(threads, buffer_size), 2, streams)


def _lanes() -> IterDataset[Any]:
    ds = MapDataset.range(LANES * 40).lanes(LANES, read_options=ReadOptions(4, 500))
    return ds.filter(lambda number: number % 7 != 0).batch(2 * LANES)


def test_lanes_share_the_threads_of_their_host() -> None:
    expected = [batch.tolist() for batch in _lanes()]
    before = _readers()
    with iter(_lanes()) as iterator:
        iterator.start_prefetch()
        mine = _readers() - before
        assert 1 <= len(mine) <= 4
        taken = [batch.tolist() for batch in iterator]
        assert _readers() - before <= mine
    assert taken == expected
    assert not any(thread.is_alive() for thread in mine)


def test_each_gets_its_own_in_order() -> None:
    crew = _crew(3, 30, 5)
    streams = [crew.read_ahead(_numbers, 2, 100 * number, 100 * number + 50) for number in range(5)]
    taken: list[list[int]] = [[] for _ in streams]
    left = dict(enumerate(streams))
    while left:
        for number, stream in list(left.items()):
            block = stream.take()
            if block is None:
                left.pop(number).stop(wait=True)
            else:
                taken[number] += block.rows()
    assert taken == [list(range(100 * number, 100 * number + 50)) for number in range(5)]


def test_threads_end_with_the_last_who_uses_them_and_others_come_when_needed() -> None:
    crew = _crew(2, 40, 4)
    before = _readers()
    for _ in range(2):
        first, second = (crew.read_ahead(_numbers, 1, 0, 100) for _ in range(2))
        mine = _readers() - before
        assert len(mine) == 2
        first.stop(wait=True)
        assert all(thread.is_alive() for thread in mine)
        block = second.take()
        assert block is not None and block.rows()[0] == 0
        second.stop(wait=True)
        assert not any(thread.is_alive() for thread in mine)


def test_what_nobody_wants_any_more_is_not_evaluated() -> None:
    may_go_on, begun = threading.Event(), threading.Event()
    evaluated: list[int] = []

    def evaluate(start: int, count: int) -> Block:
        begun.set()
        assert may_go_on.wait(60)
        evaluated.append(start)
        return _numbers(start, count)

    crew = _crew(1, 40, 2)
    first = crew.read_ahead(evaluate, 1, 0, 100)
    second = crew.read_ahead(evaluate, 1, 1000, 1100)
    assert begun.wait(60)
    first.stop(wait=False)
    may_go_on.set()
    assert second.take() is not None
    second.stop(wait=True)
    assert evaluated[:2] == [0, 1000]


def test_they_are_not_further_ahead_together_than_the_buffer_allows() -> None:
    crew = _crew(2, 32, 8)
    lock = threading.Lock()
    furthest = dict.fromkeys(range(8), 0)

    def evaluate(start: int, count: int) -> Block:
        with lock:
            furthest[start // 1000] = max(furthest[start // 1000], start % 1000 + count)
        return _numbers(start, count)

    streams = [crew.read_ahead(evaluate, 1, 1000 * n, 1000 * n + 500) for n in range(8)]
    handed_out = dict.fromkeys(range(8), 0)
    for _ in range(20):
        for number, stream in enumerate(streams):
            block = stream.take()
            assert block is not None
            handed_out[number] += len(block)
    with lock:
        assert all(furthest[n] <= handed_out[n] + 4 for n in range(8))
    for stream in streams:
        stream.stop(wait=True)


# Whether they pay.


def _deliver(crew: Crew, rounds: int, streams: int, seconds: float, start: float = 0.0) -> float:
    """So many rounds, in which each stream hands out ten elements."""
    now = start
    for _ in range(rounds * streams):
        crew.delivered(10, now)
        now += seconds
    return now


def test_records_that_wait_get_threads_before_all_have_been_asked() -> None:
    crew = _crew(16, 500, LANES)
    for _ in range(LANES // 2):  # Each had two records, of 2 ms.
        assert crew.choice.undecided
        crew.choice.learn_work(0.004, 0.0001)
        if crew.choice.threaded:
            break
    assert crew.choice.threaded
    assert crew.choice.threads == 16


@pytest.mark.parametrize("cpu_share", [0.2, 0.6, 1.0])
def test_records_that_compute_are_compared(cpu_share: float) -> None:
    crew = _crew(16, 500, LANES)
    now = 0.0
    for _ in range(40):
        crew.choice.learn_work(0.1, 0.1 * cpu_share)
        now = _deliver(crew, 1, LANES, 0.002, now)
        if crew.choice.threaded:
            break
    assert crew.choice.threaded  # To see.
    _deliver(crew, 40, LANES, 0.003, now)
    assert not crew.choice.threaded


def test_the_work_of_the_caller_counts() -> None:
    """It comes once in a round, and threads work meanwhile."""
    crew = _crew(16, 500, LANES)
    now = 0.0
    for _ in range(40):
        crew.choice.learn_work(0.128, 0.1)
        now = _deliver(crew, 1, LANES, 0.002, now) + 0.1
        if crew.choice.threaded:
            break
    for _ in range(20):
        now = _deliver(crew, 1, LANES, 0.00001, now) + 0.128
    assert crew.choice.threaded


def test_one_for_all_lanes_and_in_workers_too() -> None:
    options = LaneReadOptions(ReadOptions(8, 100), 4, 2)
    assert crew_for(options, 2) is crew_for(options, 2)
    assert crew_for(ReadOptions(8, 100), 2) is not crew_for(ReadOptions(8, 100), 2)
    assert options.in_turn() is options.in_turn()
    one, other = pickle.loads(pickle.dumps((options, options)))
    assert one is other and not one.crew
    assert (one.num_threads, one.prefetch_buffer_size, one.lanes, one.rows) == (8, 100, 4, 2)
