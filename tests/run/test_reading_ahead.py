"""How much is taken from what comes before: worth the call where that is quick, else little."""

import pytest

from bushel import MapDataset, MultiprocessingOptions
from bushel.core.block import Block
from bushel.core.positions import run_of
from bushel.core.state import State
from bushel.core.state_fields import Fields, Whole
from bushel.core.stream import Chunk, FixedMarks, Stream
from bushel.lanes.gather import LanesStream, OwnLanesNode
from bushel.run.streams_together import Together
from bushel.workers.engine import Engine, Home
from bushel.workers.remote_streams import RemoteSteps


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Numbers(Stream):
    """Numbers without end, each of which takes so long; notes what it was asked for."""

    def __init__(self, clock: Clock, seconds_each: float) -> None:
        self._clock, self._seconds_each = clock, seconds_each
        self._next = 0
        self.asked: list[int] = []

    def pull(self, want: int) -> Chunk:
        self.asked.append(want)
        self._clock.now += want * self._seconds_each
        start, self._next = self._next, self._next + want
        positions = run_of(start, self._next)
        return Chunk(Block(positions.tolist(), positions), FixedMarks({"next_index": start}))

    def state(self) -> State:
        return {"next_index": self._next}

    def restore(self, state: State) -> None:
        self._next = state["next_index"]

    def fields(self) -> Fields:
        return Fields(next_index=Whole())


# What is read ahead, and of several steps that are made at once.
@pytest.mark.parametrize(("seconds_each", "most"), [(1e-6, 256), (1e-3, 8), (0.1, 0)])
def test_of_lanes(seconds_each: float, most: int) -> None:
    clock, rows = Clock(), 2
    lanes = [Numbers(clock, seconds_each) for _ in range(4)]
    parts = (MapDataset.range(1)._own_node(),) * 4
    node = OwnLanesNode(parts, 0, 4, rows, False, None, None, lane_of=parts.__getitem__)
    stream = LanesStream(
        lambda: lanes, node, lambda cursors: Together(cursors).evaluate, object, clock=clock
    )
    for _ in range(200):
        assert stream.pull(rows * len(lanes)) is not None
    furthest = max(want for lane in lanes for want in lane.asked) - rows
    assert most / 2 <= furthest <= most


@pytest.mark.parametrize(("seconds_each", "most"), [(1e-7, 8192), (1e-3, 4), (0.1, 1)])
def test_of_what_workers_are_given(seconds_each: float, most: int) -> None:
    """However quick the workers are with it."""
    clock = Clock()
    numbers = Numbers(clock, seconds_each)
    engine = Engine(Home(), MultiprocessingOptions(1), None)
    steps = RemoteSteps(engine, 0, numbers, numbers, [], [], clock=clock)
    for _ in range(40):
        steps._block_size.learn(steps._block_size.size, 0.0)
        steps._pull_input()
    assert most / 2 <= max(numbers.asked) <= most
    steps.close()
