"""How large tasks are, and how many are under way: from times that are handed in."""

from collections import deque
from typing import Any

import numpy as np
import pytest

from bushel.core.block import Block
from bushel.core.options import DatasetOptions, ReadOptions
from bushel.core.places import ToStreamNode
from bushel.core.stream import FixedMarks
from bushel.run.positional import PositionalStream
from bushel.run.quota import DropQuota
from bushel.sources.memory import RangeNode
from bushel.workers.fragment import Outcome, TaskMessage
from bushel.workers.remote_streams import RemoteStream
from bushel.workers.task import Task


class Machine:
    """Two workers and a trainer by the clock on the wall, in place of the engine.

    An element takes `each` seconds and `size` bytes; a task takes `around` more. Where elements
    wait for something, `threads` of a worker wait at the same time.
    """

    depth = 4
    most_task_bytes = 1 << 20
    most_times = 8
    most_bytes_ahead = 1 << 26

    def __init__(self, each: float, size: int = 100, around: float = 0.0, threads: int = 1) -> None:
        self.each, self.size, self.around, self.threads = each, size, around, threads
        self.now = 0.0
        self._free = [0.0, 0.0]
        self._ready: dict[int, float] = {}
        self.sizes: list[int] = []
        self.under_way: deque[Task] = deque()
        self.most_under_way = 0

    def clock(self) -> float:
        return self.now

    def submit(self, fragment: int, state: Any, stop: int, first: int) -> Task:
        task = Task(TaskMessage(len(self.sizes), fragment, state, stop, False), first)
        count = stop - first
        worker = min((0, 1), key=self._free.__getitem__)
        began = max(self.now, self._free[worker])
        seconds = self.around + -(-count // self.threads) * self.each
        idle = began - self._free[worker]
        self._free[worker] = self._ready[task.message.task] = began + seconds
        values = list(range(first, stop))
        positions = np.arange(first, stop)
        marks = FixedMarks({"next_index": first})
        task.bytes = count * self.size
        task.outcome = Outcome(
            task=task.message.task,
            values=values,
            positions=positions,
            metadata=None,
            failure=None,
            marks=marks,
            kept=[[count]],
            bad=[],
            seconds=seconds,
            side_by_side=self.threads,
            idle_seconds=idle,
        )
        self.sizes.append(count)
        self.under_way.append(task)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        return task

    def wait(self, task: Task) -> Outcome:
        assert task is self.under_way.popleft() and task.outcome is not None
        self.now = max(self.now, self._ready[task.message.task])
        return task.outcome

    def rest(self) -> None:
        """Nothing to let go of."""

    def note_ahead(self, was: int, now: int) -> None:
        """Nobody is told."""


def _stream(machine: Machine, length: int = 1 << 40, **more: Any) -> RemoteStream:
    root = ToStreamNode(RangeNode(range(length)), ReadOptions(0, 0), True)
    quota = DropQuota("map", DatasetOptions())
    local = PositionalStream(root.input, ReadOptions(0, 0), True, quota)
    return RemoteStream(
        machine,  # type: ignore[arg-type]
        0,
        local,
        length,
        [quota],
        clock=machine.clock,
        **more,
    )


def _taken(stream: RemoteStream, count: int) -> None:
    while count > 0:
        chunk = stream.pull(1)
        assert chunk is not None and isinstance(chunk.block, Block)
        count -= len(chunk.block)


@pytest.mark.parametrize("each", [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
def test_the_way_there_and_back_does_not_matter(each: float) -> None:
    around = 0.0005
    machine = Machine(each, around=around)
    stream = _stream(machine)
    _taken(stream, max(40, int(2 / each)))
    tail = machine.sizes[len(machine.sizes) // 2 :]
    assert around < 0.07 * np.mean(tail) * each or np.mean(tail) >= 8192


@pytest.mark.parametrize("each", [1e-5, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_the_first_elements_come_soon(each: float, count: int) -> None:
    machine = Machine(each)
    stream = _stream(machine)
    _taken(stream, count)
    # On two cores it could be half of that, were it known how many are wanted.
    assert machine.now <= 1.5 * (count + 4) * each


def test_large_elements_come_one_by_one() -> None:
    machine = Machine(1e-4, size=1 << 21)
    _taken(_stream(machine), 200)
    assert set(machine.sizes) == {1}


def test_no_more_is_under_way_than_keeps_workers_busy() -> None:
    machine = Machine(0.004)
    _taken(_stream(machine), 2000)
    assert machine.most_under_way == machine.depth


def test_more_is_under_way_for_who_comes_now_and_then() -> None:
    """Five milliseconds each: ten make a task, and 128 are taken at a time."""
    machine = Machine(0.005, size=1 << 12)
    stream = _stream(machine)
    waits = []
    for _ in range(40):
        began = machine.now
        _taken(stream, 128)
        waits.append(machine.now - began)
        machine.now += 0.4
    assert waits[0] > 0.05
    assert max(waits[10:]) < 0.01
    assert machine.depth < machine.most_under_way <= 32


@pytest.mark.parametrize(("size", "most"), [(1 << 22, 16), (1 << 23, 8), (1 << 25, 4)])
def test_what_is_under_way_has_a_limit_in_bytes(size: int, most: int) -> None:
    """64 MB, or what keeps workers busy."""
    machine = Machine(0.005, size=size)
    stream = _stream(machine)
    for _ in range(40):
        _taken(stream, 32)
        machine.now += 1.0
    assert machine.most_under_way == most


def test_who_is_late_now_and_then_has_large_batches_ahead() -> None:
    """A trainer that does not have a core at once must not stop the workers."""
    machine = Machine(0.002, size=10_000_000)
    stream = _stream(machine)
    idle = []
    for number in range(400):
        _taken(stream, 1)
        if number % 10 == 9:
            machine.now += 0.005
        outcome = machine.under_way[-1].outcome
        assert outcome is not None
        idle.append(outcome.idle_seconds)
    assert max(idle[:100]) > 0
    assert max(idle[200:]) == 0
    assert machine.most_under_way <= 6


def test_streams_side_by_side_have_their_share() -> None:
    machine = Machine(0.005, size=1 << 19)
    stream = _stream(machine, streams=4)
    for _ in range(60):
        _taken(stream, 32)
        machine.now += 1.0
    assert machine.most_under_way <= 8


@pytest.mark.parametrize("each", [0.002, 0.02, 0.2, 2.0])
def test_elements_that_wait_come_side_by_side(each: float) -> None:
    machine = Machine(each, threads=16)
    _taken(_stream(machine), 1000)
    # Two workers, 16 at a time, and the first few one by one.
    assert machine.now < 1.3 * 1000 / 32 * each + 4 * each
    assert max(machine.sizes) < 16 + 2 * 0.05 / (each / 16)


def test_large_elements_that_wait_are_not_too_many() -> None:
    machine = Machine(0.1, size=1 << 20, threads=16)
    _taken(_stream(machine), 100)
    assert max(machine.sizes) == 4


def test_tasks_that_become_larger_are_fewer_under_way() -> None:
    class Elsewhere(Machine):
        most_task_bytes = 1 << 23

    machine = Elsewhere(0.002, size=1 << 12, around=0.001)
    stream = _stream(machine)
    # A trainer that comes for many at a time: workers have nothing to do in between.
    for _ in range(60):
        _taken(stream, 500)
        machine.now += 1.0
    assert len(machine.under_way) > 2 * machine.depth
    # One that comes seldom waits for nothing, and nothing tells it to have fewer.
    machine.size = 1 << 20
    for _ in range(200):
        _taken(stream, 1)
        machine.now += 5.0
    assert machine.sizes[-1] > 4
    assert sum(task.bytes for task in machine.under_way) <= machine.most_bytes_ahead
