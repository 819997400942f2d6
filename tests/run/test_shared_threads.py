"""Threads that streams share: as many as allowed for all of them, and gone with the last."""

import gc
import pickle
import sys
import threading
from types import FrameType
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.core.block import Block
from bushel.core.options import SharedReadOptions
from bushel.run.build import build_stream
from bushel.run.shared_threads import Seat, SharedThreads, ThreadsOfStreams
from bushel.run.thread_time import Spent
from bushel.run.threads import ReadAhead, ThreadPool
from tests.patience import PATIENCE_SECONDS

LANES = 64
# With which Python starts a thread, up to 3.12 and from 3.13 on.
_STARTS = "start_new_thread", "start_joinable_thread"


def _numbers(start: int, count: int) -> Block:
    positions = np.arange(start, start + count)
    return Block(positions.tolist(), positions)


def _readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("bushel-read")}


def _shared(threads: int, buffer_size: int, streams: int) -> SharedThreads:
    return SharedThreads(ReadOptions(threads, buffer_size), 2, streams)


def _lanes() -> IterDataset[Any]:
    ds = MapDataset.range(LANES * 40).lanes(LANES, read_options=ReadOptions(4, 500))
    # (What knows its index is read lane by lane, not all lanes by position.)
    ds = ds.filter(lambda number: number % 7 != 0).map_with_index(lambda index, number: number)
    return ds.batch(2 * LANES)


def test_lanes_share_the_threads_of_their_host() -> None:
    expected = [batch.tolist() for batch in _lanes()]
    before = _readers()
    with iter(_lanes()) as iterator:
        iterator.start_prefetch()
        mine = _readers() - before
        assert 1 <= len(mine) <= 4
        taken = []
        for batch in iterator:
            taken.append(batch.tolist())
            now = _readers() - before
            # Where another number of threads is chosen meanwhile, the last ones are about to end.
            assert len(now) <= 2 * 4
            mine |= now
    assert taken == expected
    assert not any(thread.is_alive() for thread in mine)


def test_each_gets_its_own_in_order() -> None:
    threads = _shared(3, 30, 5)
    streams = [
        threads.read_ahead(_numbers, 2, 100 * number, 100 * number + 50) for number in range(5)
    ]
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


def test_threads_stay_for_who_has_a_seat() -> None:
    """A worker reads piece by piece, and does not begin with new threads each time."""
    threads, seat = _shared(2, 40, 1), Seat()
    before = _readers()
    seat.take(threads.pool())
    met: set[threading.Thread] = set()
    for start in range(0, 300, 100):
        piece = threads.read_ahead(_numbers, 1, start, start + 100)
        met |= _readers() - before
        while piece.take() is not None:
            pass
        piece.stop(wait=False)
        seat.take(threads.pool())
    assert len(met) == 2 and all(thread.is_alive() for thread in met)
    seat.leave()
    threads.wait()
    assert not any(thread.is_alive() for thread in met)


def test_a_seat_that_is_forgotten_is_free() -> None:
    threads, seat = _shared(2, 40, 1), Seat()
    pool = threads.pool()
    seat.take(pool)
    pool.start()
    assert not pool.stopped
    del seat
    gc.collect()
    assert pool.stopped
    pool.wait()
    assert not any(thread.is_alive() for thread in pool.threads)


def test_threads_end_with_the_last_who_uses_them_and_others_come_when_needed() -> None:
    threads = _shared(2, 40, 4)
    before = _readers()
    for _ in range(2):
        first, second = (threads.read_ahead(_numbers, 1, 0, 100) for _ in range(2))
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
        assert may_go_on.wait(PATIENCE_SECONDS)
        evaluated.append(start)
        return _numbers(start, count)

    threads = _shared(1, 40, 2)
    first = threads.read_ahead(evaluate, 1, 0, 100)
    second = threads.read_ahead(evaluate, 1, 1000, 1100)
    assert begun.wait(PATIENCE_SECONDS)
    first.stop(wait=False)
    may_go_on.set()
    assert second.take() is not None
    second.stop(wait=True)
    assert evaluated[:2] == [0, 1000]


def test_they_are_not_further_ahead_together_than_the_buffer_allows() -> None:
    threads = _shared(2, 32, 8)
    lock = threading.Lock()
    furthest = dict.fromkeys(range(8), 0)

    def evaluate(start: int, count: int) -> Block:
        with lock:
            furthest[start // 1000] = max(furthest[start // 1000], start % 1000 + count)
        return _numbers(start, count)

    streams = [threads.read_ahead(evaluate, 1, 1000 * n, 1000 * n + 500) for n in range(8)]
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


class Lanes:
    """Streams that take turns on one clock, each of which hands out ten elements at a time."""

    def __init__(
        self, threads: SharedThreads, work: Spent, on_threads: Spent, user: float = 0.0
    ) -> None:
        self.threads, self._user = threads, user
        self._work, self._on_threads = work, on_threads
        self._now = 0.0
        self.tried = False

    def take_round(self) -> None:
        choice = self.threads.choice
        for _ in range(LANES):
            self.threads.asked(self._now)
            threads = choice.threads if choice.threaded else 0
            self.tried |= choice.threaded
            spent = self._on_threads if threads > 1 else self._work
            # Threads have worked while the caller did.
            meanwhile = self._user / LANES if threads else 0.0
            self._now += max(0.0, spent.seconds / max(1, threads) - meanwhile)
            if choice.watching:
                choice.learn_work(10, spent, threads)
            self.threads.delivered(10, self._now)
        self._now += self._user


def test_records_that_wait_get_threads_before_all_have_been_asked() -> None:
    threads = _shared(16, 500, LANES)
    asked = 0
    while not threads.choice.threaded:  # Each had two records, of 2 ms.
        threads.asked(asked * 0.004)
        threads.choice.learn_work(2, Spent(0.004, 0.0001))
        asked += 1
        threads.delivered(2, asked * 0.004)
    assert asked < LANES // 2
    assert threads.choice.threads == 16


def test_records_that_compute_are_compared() -> None:
    lanes = Lanes(_shared(16, 500, LANES), Spent(0.002, 0.002), Spent(0.005, 0.0025))
    for _ in range(10):
        lanes.take_round()
    assert lanes.tried
    assert not lanes.threads.choice.threaded


def test_the_work_of_the_caller_counts() -> None:
    """It comes once in a round, and threads work meanwhile."""
    lanes = Lanes(_shared(16, 500, LANES), Spent(0.002, 0.002), Spent(0.004, 0.002), user=0.1)
    for _ in range(40):
        lanes.take_round()
    assert lanes.threads.choice.threaded
    assert lanes.threads.choice.threads == 1  # Two of them would take turns.


def test_one_for_all_lanes_and_in_workers_too() -> None:
    options = SharedReadOptions(ReadOptions(8, 100), 4, 2)
    counted: list[int] = []

    def cores() -> float:
        counted.append(2)
        return 2

    threads = ThreadsOfStreams()
    assert threads.of(options, cores) is threads.of(options, cores)
    assert len(counted) == 1
    assert threads.of(ReadOptions(8, 100), cores) is not threads.of(ReadOptions(8, 100), cores)
    one, other = pickle.loads(pickle.dumps((options, options)))
    assert one is other
    assert (one.num_threads, one.prefetch_buffer_size, one.streams, one.rows) == (8, 100, 4, 2)


def test_an_interrupt_while_threads_are_told_to_end(request: pytest.FixtureRequest) -> None:
    """Where only the first of them was told, closing tells them all: it waits for each."""
    stream = build_stream(MapDataset.range(40).to_iter_dataset(ReadOptions(3, 30))._own_node())
    told: list[str] = []

    def strike(frame: FrameType, event: str, what: Any) -> None:
        if event == "c_call" and what.__name__ == "put" and _is_within("leave", frame):
            told.append(what.__name__)
            if len(told) == 2:
                raise KeyboardInterrupt

    stream.start()
    request.addfinalizer(lambda: sys.setprofile(None))
    sys.setprofile(strike)
    with pytest.raises(KeyboardInterrupt):
        while stream.pull(10) is not None:
            pass
    sys.setprofile(None)
    closing = threading.Thread(target=stream.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_SECONDS)
    assert not closing.is_alive()
    assert not _readers()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_a_thread_whose_start_is_interrupted(
    kind: type[BaseException], request: pytest.FixtureRequest
) -> None:
    """It works all the same; or, where a signal handler raised, Python's own code ended it."""
    starts: list[str] = []

    def strike(frame: FrameType, event: str, what: Any) -> None:
        if event == "c_return" and what.__name__ in _STARTS:
            starts.append(what.__name__)
            if len(starts) == 1:
                raise kind

    pool, seat = ThreadPool(1), Seat()
    seat.take(pool)
    request.addfinalizer(lambda: sys.setprofile(None))
    sys.setprofile(strike)
    # (Both threads take a note of the new one away: it may be this one that finds none.)
    with pytest.raises((kind, KeyError)) as struck:
        ReadAhead(_numbers, 1, 30, 10, 0, 40, pool)
    if struck.type is TimeoutError:
        pool.threads[0].join()
    sys.setprofile(strike)  # (Python has taken it away, as it raised.)
    ahead = ReadAhead(_numbers, 1, 30, 10, 0, 40, pool)
    sys.setprofile(None)
    assert len(starts) == 1 + (struck.type is TimeoutError)
    block = ahead.take()
    assert block is not None and block.rows()[0] == 0
    seat.leave()
    ahead.stop(wait=True)


def _is_within(name: str, frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None
