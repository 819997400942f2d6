"""A thread that pulls a stream ahead of the one who listens."""

import threading
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import IterDataset
from bushel.core.block import Block
from bushel.core.state import State
from bushel.core.state_fields import Fields, Whole
from bushel.core.stream import Chunk, ComputedMarks, Stream
from bushel.core.tuned_options import AutotuneParameter, BufferBounds, buffer_bounds
from bushel.errors import PlanError
from bushel.experimental import (
    InterleaveIterDataset,
    ThreadPrefetchDatasetIterator,
    ThreadPrefetchIterDataset,
)
from bushel.run.background import BackgroundStream, _Feeder
from tests.patience import PATIENCE_SECONDS


class Count(Stream):
    """Counts to `size`; calls a hook before each pull."""

    def __init__(self, size: int, hook: Any = None) -> None:
        self._size, self._hook = size, hook
        self._next = 0
        self.closed = False

    def pull(self, want: int) -> Chunk | None:
        if self._hook is not None:
            self._hook(self._next)
        start = self._next
        stop = min(self._size, start + want)
        if start == stop:
            return None
        self._next = stop
        positions = np.arange(start, stop)
        marks = ComputedMarks(lambda used: {"next": start + used})
        return Chunk(Block(positions.tolist(), positions), marks)

    def state(self) -> State:
        return {"next": self._next}

    def restore(self, state: State) -> None:
        self._next = state["next"]

    def fields(self) -> Fields:
        return Fields(next=Whole(self._size))

    def close(self) -> None:
        self.closed = True


def ahead(buffer_size: Any) -> BufferBounds:
    return buffer_bounds(buffer_size, "buffer_size", 1000)


def _take_all(stream: Stream) -> list[int]:
    taken: list[int] = []
    while (chunk := stream.pull(1)) is not None:
        taken += chunk.block.rows()
    return taken


@pytest.mark.parametrize("buffer_size", [0, 1, 2, 9, 1000])
def test_the_same_elements(buffer_size: int) -> None:
    stream = BackgroundStream(Count(300), ahead(buffer_size))
    assert _take_all(stream) == list(range(300))
    assert stream.pull(1) is None
    assert stream.state() == {"next": 300}
    stream.close()


def test_the_state_is_that_of_what_was_handed_out() -> None:
    stream = BackgroundStream(Count(300), ahead(50))
    assert stream.state() == {"next": 0}
    stream.start()
    assert stream.state() == {"next": 0}
    taken = 0
    for _ in range(5):
        chunk = stream.pull(1)
        assert chunk is not None
        taken += len(chunk.block)
        assert stream.state() == {"next": taken}
    stream.close()


def test_never_further_ahead_than_the_buffer() -> None:
    furthest = [0]
    stream = BackgroundStream(Count(3000, lambda at: furthest.append(at)), ahead(10))
    taken = 0
    while (chunk := stream.pull(1)) is not None:
        taken += len(chunk.block)
        # One chunk of half the buffer may be in the making.
        assert max(furthest) <= taken + 10
    stream.close()


def test_restore_goes_anywhere() -> None:
    stream = BackgroundStream(Count(100), ahead(10))
    stream.pull(1)
    stream.restore({"next": 97})
    assert stream.state() == {"next": 97}
    assert _take_all(stream) == [97, 98, 99]
    stream.restore({"next": 98})
    assert _take_all(stream) == [98, 99]
    stream.close()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_reaches_the_listener_and_the_stream_goes_on(error: type[BaseException]) -> None:
    raised = []

    def once(at: int) -> None:
        if at >= 20 and not raised:
            raised.append(at)
            raise error("once")

    stream = BackgroundStream(Count(100, once), ahead(8))
    taken: list[int] = []
    with pytest.raises(error, match="once"):
        while (chunk := stream.pull(1)) is not None:
            taken += chunk.block.rows()
    assert raised == [len(taken)]
    assert taken + _take_all(stream) == list(range(100))
    stream.close()


def test_close_stops_the_thread_and_closes_the_input() -> None:
    count = Count(10**9)
    stream = BackgroundStream(count, ahead(100))
    stream.pull(1)
    stream.close()
    assert count.closed
    assert not _feeders()
    stream.close()


def test_forgotten_it_stops_its_thread() -> None:
    stream = BackgroundStream(Count(10**9), ahead(100))
    stream.pull(1)
    (thread,) = _feeders()
    del stream
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_a_stopped_thread_pulls_nothing_further() -> None:
    entered, released = threading.Event(), threading.Event()
    pulls: list[int] = []

    def hook(at: int) -> None:
        pulls.append(at)
        entered.set()
        assert released.wait(PATIENCE_SECONDS)

    stream = BackgroundStream(Count(100, hook), ahead(100))
    stream.start()
    (thread,) = _feeders()
    assert entered.wait(PATIENCE_SECONDS)
    del stream
    released.set()
    thread.join(PATIENCE_SECONDS)
    assert pulls == [0]


def test_start_begins_before_the_first_pull() -> None:
    began = threading.Event()
    stream = BackgroundStream(Count(10, lambda at: began.set()), ahead(4))
    stream.start()
    assert began.wait(PATIENCE_SECONDS)
    stream.start()
    assert len(_feeders()) <= 1
    stream.close()


def _feeders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bushel-prefetch"]


def test_without_a_buffer_a_users_iterator_is_asked_for_no_more_than_is_needed() -> None:
    made: list[int] = []

    class Numbers(IterDataset[int]):
        def __iter__(self) -> Any:
            for number in range(100):
                made.append(number)
                yield number

    iterator = iter(ThreadPrefetchIterDataset(Numbers(), prefetch_buffer_size=0))
    for number in range(50):
        assert next(iterator) == number
        assert len(made) == number + 1


def grown(feeder: _Feeder, elements: int, waited: bool, times: int = 50) -> int:
    """How many chunks there are after as many of them were taken."""
    for _ in range(times):
        feeder.chunks += feeder._more(elements, waited)
    return feeder.chunks


def test_more_wait_where_somebody_waited_and_no_more_than_there_is_room_for() -> None:
    feeder = _Feeder(Count(10), ahead(10), lambda: 0.0)
    assert grown(feeder, 1, waited=False) == 2
    assert grown(feeder, 1, waited=True) == 10
    assert grown(feeder, 1, waited=False) == 10
    # Chunks become larger: fewer of them fit.
    assert grown(feeder, 3, waited=True) == 3
    assert grown(feeder, 5, waited=True) == 2
    assert grown(feeder, 50, waited=True) == 2


def test_a_buffer_that_is_tuned_is_limited_in_bytes() -> None:
    feeder = _Feeder(Count(10), ahead(AutotuneParameter(least=4, most=100)), lambda: 0.0)
    assert feeder.chunks == 4
    assert grown(feeder, 1, waited=True, times=200) == 100
    feeder._size.limit_to(1 << 22)
    assert grown(feeder, 1, waited=True, times=200) == 16
    feeder._size.limit_to(1 << 30)
    assert grown(feeder, 1, waited=True, times=200) == 2


@pytest.mark.parametrize("size", [1, 5, "auto", AutotuneParameter(2, 9)])
def test_tuned_buffers_hand_on_the_same(size: Any) -> None:
    parent = bushel.MapDataset.range(200).to_iter_dataset().batch(3)
    expected = [batch.tolist() for batch in parent]
    made = ThreadPrefetchIterDataset(parent, prefetch_buffer_size=size)
    with bushel.iterate(made) as iterator:
        assert [batch.tolist() for batch in iterator] == expected
        told = " ".join(iterator.stats().threads)
    assert "blocks ahead" in told and ("(auto)" in told) is not isinstance(size, int)
    with ThreadPrefetchDatasetIterator(iter(parent), size) as wrapped:
        assert [batch.tolist() for batch in wrapped] == expected


def test_what_decides_the_order_is_not_tuned() -> None:
    with pytest.raises(PlanError, match="decides in which order elements come"):
        InterleaveIterDataset([bushel.MapDataset.range(3)], cycle_length="auto")  # type: ignore[arg-type]


def test_read_options_that_are_tuned() -> None:
    usual = bushel.ReadOptions()
    tuned = bushel.ReadOptions("auto", "auto")
    assert tuned.num_threads == usual.num_threads
    assert tuned.prefetch_buffer_size > usual.prefetch_buffer_size
    assert bushel.ReadOptions(AutotuneParameter(most=3)).num_threads == 3
    with pytest.raises(PlanError, match=r"Write AutotuneParameter\(most=4\)"):
        bushel.ReadOptions(num_threads=AutotuneParameter(2, 4))
    with pytest.raises(TypeError, match=r'must be an integer, and is 1\.5\. .Or write "auto"'):
        bushel.ReadOptions(num_threads=1.5)  # type: ignore[arg-type]
    stream = bushel.MapDataset.range(100).to_iter_dataset(tuned)
    assert list(stream) == list(range(100))


def test_what_fails_beside_the_stream_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that ended of it would be waited for for ever."""

    def fail(*_: Any) -> None:
        raise MemoryError("the size")

    ds = bushel.MapDataset.range(5).to_iter_dataset()
    with iter(ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2)) as iterator:
        with monkeypatch.context() as patch:
            patch.setattr("bushel.core.block_size.bytes_of", fail)
            with pytest.raises(MemoryError, match="the size"):
                list(iterator)
        assert list(iterator) == list(range(5))


def test_elements_that_contain_themselves() -> None:
    def endless(number: int) -> list[Any]:
        element: list[Any] = [number]
        element.append(element)
        return element

    ds = bushel.MapDataset.range(5).map(endless).to_iter_dataset()
    with iter(ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2)) as iterator:
        elements = list(iterator)
    assert [element[0] for element in elements] == list(range(5))
    assert all(element[1] is element for element in elements)
