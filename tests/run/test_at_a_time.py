"""Sources that want many records at a time, and what is made of them: only what is asked for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, MultiprocessingOptions, ReadOptions
from bushel.core.node import Each
from bushel.core.options import DatasetOptions
from bushel.core.stream import Chunk
from bushel.run.long_chains import least_block
from bushel.run.positional import PositionalStream
from bushel.run.quota import DropQuota
from bushel.run.step_streams import EachStream
from bushel.workers.noted_steps import Watch

INLINE = ReadOptions(0, 0)
ONE = MultiprocessingOptions(1)


class Reader:
    """Numbers, or arrays of so many bytes; knows how many were read at a time."""

    records_at_a_time = 1000

    def __init__(self, length: int, size: int = 0) -> None:
        self._length, self._bytes = length, size
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: int) -> Any:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[int]) -> list[Any]:
        self.asked.append(len(keys))
        if self._bytes:
            return [np.empty(self._bytes, np.uint8) for _ in keys]
        return list(keys)


class Ticks:
    """A clock that tells that nothing takes any time worth speaking of."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


def stream_of(ds: MapDataset[Any]) -> PositionalStream:
    quota = DropQuota("nothing", DatasetOptions())
    return PositionalStream(ds._own_node(), INLINE, False, quota, clock=Ticks())


def fail_on_some(number: int) -> int:
    if number % 300 == 299:
        raise ValueError(number)
    return number


def pulled(stream: PositionalStream, want: int) -> list[Chunk]:
    chunks = []
    while (chunk := stream.pull(want)) is not None:
        chunks.append(chunk)
    return chunks


def test_many_are_read_and_few_handed_out() -> None:
    source = Reader(5000)
    chunks = pulled(stream_of(MapDataset.source(source)), 7)
    assert max(source.asked) == 1000
    assert max(len(chunk.block) for chunk in chunks) == 7
    assert [row for chunk in chunks for row in chunk.block.rows()] == list(range(5000))


def test_a_slow_step_behind_is_not_given_more_than_is_asked_for() -> None:
    calls: list[int] = []
    source = Reader(5000)
    step = MapDataset.range(1).map(calls.append)._own_node()
    assert isinstance(step, Each)
    stream = EachStream(stream_of(MapDataset.source(source)), step)
    for number in range(1, 400):
        assert stream.pull(7) is not None
        assert len(calls) <= 7 * number
    assert max(source.asked) == 1000


def test_large_records_come_in_smaller_blocks() -> None:
    source = Reader(3000, size=100_000)
    stream = stream_of(MapDataset.source(source))
    for _ in range(40):
        stream.pull(1000)
    assert 4 < max(source.asked) <= 100


@pytest.mark.parametrize("want", [1, 7, 999])
def test_states_and_failures_between_portions(want: int) -> None:
    ds: MapDataset[Any] = MapDataset.source(Reader(1200)).map(fail_on_some)
    ds = ds.map(lambda n: None if n % 50 == 0 else n)
    found: list[Any] = []
    for chunk in pulled(stream_of(ds), want):
        for index, row in enumerate(chunk.block.rows()):
            found.append(row)
            assert chunk.marks.at(index + 1) == {"next_index": row + 1}
        if chunk.block.failure is not None:
            found.append(str(chunk.block.failure.release()))
            after = chunk.marks.at(len(chunk.block) + 1)
            assert after == {"next_index": int(found[-1]) + 1}
    numbers = [n for n in range(1200) if n % 50]
    assert found == [str(n) if n % 300 == 299 else n for n in numbers]


@pytest.mark.parametrize("budget", [None, 2])
def test_bad_records_between_portions(budget: int | None) -> None:
    ds = MapDataset.source(Reader(1200)).map(fail_on_some).on_error("skip", budget=budget)
    found: list[Any] = []
    for chunk in pulled(stream_of(ds), 7):
        for index, row in enumerate(chunk.block.rows()):
            found.append(row)
            assert chunk.marks.at(index + 1) == {"next_index": row + 1, "bad": [row // 300]}
        if chunk.block.failure is not None:
            found.append(chunk.marks.at(len(chunk.block) + 1))
    expected: list[Any] = [n for n in range(1200) if n % 300 != 299]
    if budget is not None:
        expected.insert(897, {"next_index": 900, "bad": [3]})
        expected.append({"next_index": 1200, "bad": [4]})
    assert found == expected


def test_going_back_and_threads_forget_what_was_read() -> None:
    stream = PositionalStream(
        MapDataset.source(Reader(4000))._own_node(),
        ReadOptions(2, 100),
        False,
        DropQuota("nothing", DatasetOptions()),
        clock=Ticks(),
    )
    for _ in range(100):
        stream.pull(5)
    here = stream.state()
    stream.restore({"next_index": 17})
    assert _rows(stream.pull(5))[0] == 17
    stream.restore(here)
    stream.pull(5)
    stream.start()
    assert _rows(stream.pull(5))[0] == here["next_index"] + 5
    stream.close()


def _rows(chunk: Chunk | None) -> list[Any]:
    assert chunk is not None
    return list(chunk.block.rows())


def test_workers_ask_for_many_too() -> None:
    node = MapDataset.source(Reader(10))._own_node()
    watched = Watch(lambda *_: None, False, None, []).tree(node, {id(node): 0})
    assert least_block(watched) == least_block(node) == 1000
    assert list(MapDataset.source(Reader(3000)).to_iter_dataset().mp_prefetch(ONE)) == [
        *range(3000)
    ]
