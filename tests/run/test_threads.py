"""Reading ahead: in order, not further than allowed, and gone when told."""

import gc
import threading
import weakref

import numpy as np
import pytest

from bushel.core.block import Block, Failure
from bushel.run.threads import ReadAhead
from tests.patience import PATIENCE_SECONDS


def _numbers(start: int, count: int) -> Block:
    positions = np.arange(start, start + count)
    return Block(positions.tolist(), positions)


def _take_all(ahead: ReadAhead) -> list[int]:
    taken: list[int] = []
    while (block := ahead.take()) is not None:
        taken += block.rows()
    return taken


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("buffer_size", [1, 5, 100])
@pytest.mark.parametrize("first_size", [1, 4, 64])
def test_in_order(threads: int, buffer_size: int, first_size: int) -> None:
    ahead = ReadAhead(_numbers, threads, buffer_size, first_size, 3, 250)
    assert _take_all(ahead) == list(range(3, 250))
    assert ahead.take() is None
    ahead.stop(wait=True)


def test_in_order_when_later_blocks_are_ready_first() -> None:
    first_may_end = threading.Event()
    later = threading.Event()

    def evaluate(start: int, count: int) -> Block:
        if start == 0:
            assert first_may_end.wait(PATIENCE_SECONDS)
        else:
            later.set()
        return _numbers(start, count)

    ahead = ReadAhead(evaluate, 2, 4, 1, 0, 20)
    assert later.wait(PATIENCE_SECONDS)
    first_may_end.set()
    assert _take_all(ahead) == list(range(20))
    ahead.stop(wait=True)


@pytest.mark.parametrize(("threads", "buffer_size"), [(1, 1), (2, 4), (3, 10), (16, 500)])
def test_never_further_ahead_than_the_buffer(threads: int, buffer_size: int) -> None:
    lock = threading.Lock()
    furthest = 0

    def evaluate(start: int, count: int) -> Block:
        nonlocal furthest
        with lock:
            furthest = max(furthest, start + count)
        return _numbers(start, count)

    ahead = ReadAhead(evaluate, threads, buffer_size, 1, 0, 2000)
    handed_out = 0
    while (block := ahead.take()) is not None:
        # The block in hand is no longer in the buffer.
        handed_out += len(block)
        with lock:
            assert furthest <= handed_out + buffer_size
    ahead.stop(wait=True)


@pytest.mark.parametrize(("megabytes", "most"), [(0.001, 33), (1, 33), (4, 17), (50, 17)])
def test_large_elements_are_few_at_a_time(megabytes: float, most: int) -> None:
    """One for each thread, and one that is ready; small ones may be twice as many."""
    lock = threading.Lock()
    furthest = 0
    element = np.zeros(int(megabytes * 2**20), np.uint8)  # The same for all of them.

    def evaluate(start: int, count: int) -> Block:
        nonlocal furthest
        with lock:
            furthest = max(furthest, start + count)
        return Block([element] * count, np.arange(start, start + count))

    ahead = ReadAhead(evaluate, 16, 500, 1, 0, 400)
    handed_out = 0
    waiting = []
    while (block := ahead.take()) is not None:
        handed_out += len(block)
        if handed_out > 100 and megabytes >= 1:
            with lock:
                waiting.append(furthest - handed_out)
    assert handed_out == 400
    assert all(count <= most for count in waiting)
    ahead.stop(wait=True)


class _OnTrial:
    watching = trying = True


def test_on_trial_threads_have_a_block_each_and_one_more() -> None:
    """Should they prove useless, what is under way is waited for; who knows for how long."""
    ahead = ReadAhead(_numbers, 2, 500, 1, 0, 1000, interest=_OnTrial())
    ahead.finish()
    assert [ahead.take() is not None for _ in range(4)] == [True, True, True, False]
    ahead.stop(wait=True)


def test_on_trial_short_blocks_are_as_many_as_they_will_be_later() -> None:
    """Threads that had nothing to do for half of the time would not get in each other's way."""
    ahead = ReadAhead(_numbers, 2, 500, 1, 0, 100_000, interest=_OnTrial())
    most = 0
    while ahead.take() is not None:
        most = max(most, ahead.under_way)
    assert most == 5
    ahead.stop(wait=True)


def test_finish_hands_out_what_is_under_way_and_no_more() -> None:
    ahead = ReadAhead(_numbers, 2, 8, 2, 0, 1000)
    assert ahead.take() is not None
    ahead.finish()
    rest = _take_all(ahead)
    assert rest == list(range(2, 2 + len(rest)))
    assert len(rest) <= 8
    ahead.stop(wait=True)


def test_an_error_comes_where_it_belongs_and_stays_there() -> None:
    def evaluate(start: int, count: int) -> Block:
        if start <= 6 < start + count:
            raise KeyError("six")
        return _numbers(start, count)

    ahead = ReadAhead(evaluate, 2, 4, 1, 0, 20)
    taken: list[int] = []
    with pytest.raises(KeyError, match="six"):
        while (block := ahead.take()) is not None:
            taken += block.rows()
    assert taken == list(range(len(taken)))
    with pytest.raises(KeyError, match="six"):
        ahead.take()
    ahead.stop(wait=True)


def test_a_failure_travels_in_its_block() -> None:
    def evaluate(start: int, count: int) -> Block:
        return Block([start], np.array([start]), Failure(ValueError("next")))

    ahead = ReadAhead(evaluate, 1, 4, 2, 0, 20)
    block = ahead.take()
    assert block is not None and block.failure is not None
    assert str(block.failure.error) == "next"
    ahead.stop(wait=True)


def test_stopped_threads_evaluate_nothing_further() -> None:
    entered, released = threading.Event(), threading.Event()
    starts: list[int] = []

    def evaluate(start: int, count: int) -> Block:
        starts.append(start)
        entered.set()
        assert released.wait(PATIENCE_SECONDS)
        return _numbers(start, count)

    ahead = ReadAhead(evaluate, 1, 50, 1, 0, 1000)
    assert entered.wait(PATIENCE_SECONDS)
    ahead.stop(wait=False)
    released.set()
    for thread in _readers():
        thread.join(PATIENCE_SECONDS)
    assert starts == [0]


def test_forgotten_it_stops_its_threads() -> None:
    ahead = ReadAhead(_numbers, 3, 50, 1, 0, 10**9)
    ahead.take()
    gone = weakref.ref(ahead)
    del ahead
    gc.collect()
    assert gone() is None
    for thread in _readers():
        thread.join(PATIENCE_SECONDS)
    assert not _readers()


def _readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("bushel-read")]
