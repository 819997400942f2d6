"""Threads are kept busy where batches follow, however small the buffer is: in a time of its own."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.core.block import Block
from bushel.core.node import Node
from bushel.core.options import DatasetOptions
from bushel.core.places import ToStreamNode
from bushel.core.stream import Stream
from bushel.experimental import ThreadPrefetchIterDataset, WindowShuffleIterDataset
from bushel.run.build import how_to_open, step_of
from bushel.run.positional import PositionalStream
from bushel.run.quota import DropQuota
from bushel.run.shared_threads import SharedThreads
from bushel.run.threads import Evaluate, ReadAhead, ThreadPool, _BlockTask

# To take a block, ask for another and wake the thread that waits for it.
_TAKING_SECONDS = 50e-6


def _numbers(start: int, count: int) -> Block:
    positions = np.arange(start, start + count)
    return Block(positions.tolist(), positions)


class _PlannedThreads(ThreadPool):
    """Threads in a time of their own, each element of a block taking them so long."""

    def __init__(self, threads: int, seconds_each: float) -> None:
        super().__init__(threads)
        self.now = 0.0
        self._seconds_each = seconds_each
        self._free_at = [0.0] * threads
        self._ends: list[tuple[float, _BlockTask]] = []
        self.most_under_way = self._under_way = 0

    def start(self) -> None:
        """None of them is a thread of the system."""

    def submit(self, evaluate: Evaluate, task: _BlockTask) -> None:
        task.run(evaluate, None)
        task.seconds = task.count * self._seconds_each
        thread = self._free_at.index(min(self._free_at))
        end = max(self.now, self._free_at[thread]) + task.seconds
        self._free_at[thread] = end
        self._ends.append((end, task))
        self._under_way += task.count
        self.most_under_way = max(self.most_under_way, self._under_way)

    def wait_for_next(self) -> None:
        """Lets the time pass until the block that comes next is there."""
        end, task = self._ends.pop(0)
        self.now = max(self.now, end) + _TAKING_SECONDS
        self._under_way -= task.count


def _seconds_an_element(
    ahead: ReadAhead, pool: _PlannedThreads, batch: int, stacking: float
) -> float:
    """What an element takes once the size of blocks is learned, in batches that are stacked."""
    waiting, began, elements = 0, 0.0, 0
    for number in range(24):
        if number == 8:
            began, elements = pool.now, 0
        while waiting < batch:
            pool.wait_for_next()
            block = ahead.take()
            assert block is not None
            waiting += len(block)
        waiting -= batch
        elements += batch
        pool.now += stacking
    ahead.stop(wait=True)
    return (pool.now - began) / elements


def _ahead_on(pool: _PlannedThreads, buffer_size: int, together: int) -> ReadAhead:
    shared = SharedThreads(ReadOptions(len(pool.threads), buffer_size), len(pool.threads))
    shared._pool = pool
    return shared.read_ahead(_numbers, 1, 0, 1 << 40, together=together)


def test_heavy_elements_keep_all_threads_busy() -> None:
    for seed in range(40):
        _check_that_threads_are_busy(random.Random(seed))


def _check_that_threads_are_busy(machine: random.Random) -> None:
    threads = machine.choice([2, 2, 2, 3, 4, 8])
    buffer_size = machine.choice([threads, 4, 4, 16, 100, 500]) + threads
    seconds_each = 10 ** machine.uniform(-3, 0)
    batch = machine.choice([2 * threads, 8, 16, 64, 256]) + machine.randrange(8)
    # It takes memory's time, of which threads go on with as much as a second.
    stacking = min(0.9, machine.uniform(0, 0.4) * batch * seconds_each / threads)
    pool = _PlannedThreads(threads, seconds_each)
    ahead = _ahead_on(pool, buffer_size, batch)
    took = _seconds_an_element(ahead, pool, batch, stacking)
    assert took <= 1.05 * seconds_each / threads
    assert pool.most_under_way <= buffer_size + 2 * batch


@pytest.mark.parametrize("seconds_each", [0.01, 0.075, 1.0, 10.0])
@pytest.mark.parametrize("threads", [2, 4])
def test_so_do_batches_that_threads_make(threads: int, seconds_each: float) -> None:
    """The other order: each element is a batch, and few of them are kept."""
    pool = _PlannedThreads(threads, seconds_each)
    ahead = _ahead_on(pool, 2 * threads, 0)
    took = _seconds_an_element(ahead, pool, 1, 0.5 * seconds_each / threads)
    assert took <= 1.05 * seconds_each / threads
    assert pool.most_under_way <= 2 * threads


def test_streams_that_share_threads_have_no_more_room_than_before() -> None:
    shared = SharedThreads(ReadOptions(2, 8), 2, streams=2)
    shared._pool = pool = _PlannedThreads(2, 0.001)
    shared.read_ahead(_numbers, 64, 0, 1 << 40, together=64).stop(wait=True)
    assert pool.most_under_way <= 4


_AFTER: dict[str, tuple[Callable[[IterDataset[int]], Any], int]] = {
    "nothing": (lambda ds: ds, 0),
    "a map": (lambda ds: ds.map(str), 0),
    "a batch": (lambda ds: ds.batch(8), 8),
    "steps and a batch": (lambda ds: ds.map(abs).filter(bool).batch(8), 8),
    "batches of batches": (lambda ds: ds.batch(4).map(list).batch(5), 20),
    "epochs": (lambda ds: ds.repeat(2).batch(8), 8),
    "a prefetch, which has a buffer of its own": (
        lambda ds: ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2).batch(8),
        0,
    ),
    "a window": (lambda ds: WindowShuffleIterDataset(ds, window_size=16, seed=0), 16),
}


def _opened(node: Node, streams: list[PositionalStream]) -> Stream:
    def quota(label: str) -> DropQuota:
        return DropQuota(label, DatasetOptions())

    if isinstance(node, ToStreamNode):
        streams.append(PositionalStream(node.input, node.read_options, False, quota("read")))
        return streams[-1]
    return step_of(node, [_opened(each, streams) for each in node.inputs], how_to_open(quota))


@pytest.mark.parametrize("name", _AFTER)
def test_a_reader_is_told_how_many_are_needed_together(name: str) -> None:
    change, together = _AFTER[name]
    streams: list[PositionalStream] = []
    stream = _opened(change(MapDataset.range(100).to_iter_dataset())._own_node(), streams)
    assert [each.together for each in streams] == [together]
    stream.close()
