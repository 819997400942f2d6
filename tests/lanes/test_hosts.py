"""Hosts that share the lanes of a job: slow ones, ones that fail, and ones that wait."""

import threading
import time
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset
from bushel.checkpoint.merge import merge_states
from bushel.experimental import ThreadPrefetchIterDataset
from bushel.sharding import ShardOptions
from tests.contract.events import freeze
from tests.lanes.hosts import PATIENCE_SECONDS, Meeting, on_hosts, state_after

LANES = 8


def _kept(number: int) -> bool:
    return number % 5 != 0


def _heavy_on(host: int, hosts: int, number: int) -> int:
    """Takes long in the lanes of one host."""
    if number % LANES * hosts // LANES == host:
        time.sleep(0.003)
    return number


def _uneven(slow: int, hosts: int, remainder: str = "drop", **how: Any) -> IterDataset[Any]:
    ds = MapDataset.range(400).lanes(LANES, remainder=remainder, **how)
    return ds.map(lambda number: _heavy_on(slow, hosts, number)).filter(_kept).batch(LANES)


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_slow_hosts(slow: int, remainder: str) -> None:
    meeting = Meeting(2)
    parts = on_hosts(lambda **how: _uneven(slow, 2, remainder, **how), 2, list, meeting=meeting)
    (alone,) = on_hosts(lambda **how: _uneven(2, 2, remainder, **how), 1, list)
    assert [len(part) for part in parts] == [len(alone)] * 2
    for step, (one, other) in enumerate(zip(*parts, strict=True)):
        both = [np.concatenate(leaves) for leaves in zip(*map(_leaves, (one, other)), strict=True)]
        assert freeze(both) == freeze(_leaves(alone[step]))
    # What a quick host is ahead is not offered again and again.
    assert meeting.rounds <= len(alone) + 1


def _leaves(batch: Any) -> list[Any]:
    return list(batch) if isinstance(batch, tuple) else [batch]


@pytest.mark.parametrize("buffer", [0, 1, 6])
def test_hosts_that_train_together(buffer: int) -> None:
    """No host waits for a step of the others before it has handed out what it has."""
    training = threading.Barrier(2)

    def build(**how: Any) -> IterDataset[Any]:
        return ThreadPrefetchIterDataset(_uneven(1, 2, **how), prefetch_buffer_size=buffer)

    def train(iterator: Any) -> int:
        steps = 0
        try:
            for _ in iterator:
                training.wait(PATIENCE_SECONDS)
                steps += 1
        except BaseException:
            training.abort()
            raise
        return steps

    counts = on_hosts(build, 2, train)
    assert counts == [counts[0]] * 2
    assert counts[0] > 20


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13])
def test_hosts_that_stop_at_the_same_step(steps: int) -> None:
    """Nothing but the steps asked for needs the other hosts."""
    state = state_after(lambda **how: _uneven(0, 4, **how), 4, steps)
    assert state["step"] == steps
    assert state == state_after(lambda **how: _uneven(0, 1, **how), 1, steps)


def test_going_back_together_while_threads_read_ahead() -> None:
    def build(**how: Any) -> IterDataset[Any]:
        return ThreadPrefetchIterDataset(_uneven(1, 2, **how), prefetch_buffer_size=2)

    def back_and_forth(iterator: Any) -> list[Any]:
        start = iterator.get_state()
        runs = []
        for _ in range(4):
            runs.append([batch.tolist() for batch in iterator])
            iterator.set_state(start)
        return runs

    for runs in on_hosts(build, 2, back_and_forth):
        assert runs == [runs[0]] * 4


# Elements that fail.


class Broken(Exception):
    """What a map raises for an element that it does not like."""


def _fail_at(broken: set[int], number: int) -> int:
    if number in broken:
        raise Broken(number)
    return number


def _failing(
    broken: set[int], size: int, filtered: bool, remainder: str, **how: Any
) -> IterDataset[Any]:
    ds = MapDataset.range(160).lanes(LANES, remainder=remainder, **how)
    if filtered:
        ds = ds.filter(lambda number: number != 77)
    return ds.map(lambda number: _fail_at(broken, number)).batch(size)


def _events(iterator: Any) -> list[Any]:
    """Batches, and what was raised in the place of one."""
    events: list[Any] = []
    while True:
        try:
            events.append(freeze(next(iterator)))
        except StopIteration:
            return events
        except Broken as error:
            events.append(error.args)


@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("filtered", [True, False])
def test_a_failure_is_raised_once_by_the_host_that_has_it(filtered: bool, remainder: str) -> None:
    # Number 43 is the sixth of lane 3, which is host 0's.
    def build(broken: set[int], **how: Any) -> IterDataset[Any]:
        return _failing(broken, LANES, filtered, remainder, **how)

    whole = on_hosts(lambda **how: build(set(), **how), 2, _events)
    broken = on_hosts(lambda **how: build({43}, **how), 2, _events)
    assert broken[1] == whole[1]
    assert broken[0].count((43,)) == 1
    assert broken[0][5] == (43,)
    assert broken[0][:5] + broken[0][6:] == whole[0][:5] + whole[0][6:]


def test_several_rows_of_a_lane_that_fails() -> None:
    def build(broken: set[int], **how: Any) -> IterDataset[Any]:
        return _failing(broken, 2 * LANES, True, "drop", **how)

    whole = on_hosts(lambda **how: build(set(), **how), 2, _events)
    broken = on_hosts(lambda **how: build({43}, **how), 2, _events)
    assert broken[1] == whole[1]
    # The other lanes of that host do not notice.
    rest = [_values(event)[:6] for event in broken[0] if event != (43,)]
    assert rest == [_values(event)[:6] for event in whole[0][:2] + whole[0][3:]]


def _values(event: Any) -> list[int]:
    ((_, (_, _, _, values)),) = event[2]
    return list(values)


def test_failures_of_one_step_are_told_together() -> None:
    ds = _failing({40, 41, 42}, LANES, True, "drop")
    iterator = iter(ds)
    for _ in range(5):
        next(iterator)
    with pytest.raises(Broken, match="40") as caught:
        next(iterator)
    notes = "".join(caught.value.__notes__)
    assert "Broken(41)" in notes and "Broken(42)" in notes
    assert next(iterator).tolist() == list(range(48, 56))


def test_states_behind_a_failure() -> None:
    def build(**how: Any) -> IterDataset[Any]:
        return _failing({43}, LANES, True, "drop", **how)

    def state_behind(iterator: Any) -> Any:
        for _ in range(6):
            try:
                next(iterator)
            except Broken:
                assert iterator.get_state()["step"] == 6
        return iterator.get_state()

    for hosts in (1, 2, 4):
        merged = merge_states(on_hosts(build, hosts, state_behind))
        (rest,) = on_hosts(build, 1, list, merged)
        assert [batch[0] for batch in rest[:3]] == [48, 56, 64]


def test_errors_of_agreeing_are_passed_on() -> None:
    class Lost(Exception):
        pass

    def lost(number: int) -> int:
        raise Lost(number)

    ds = MapDataset.range(90).lanes(2, shard_options=ShardOptions(1, 2), agree=lost)
    iterator = iter(ThreadPrefetchIterDataset(ds.filter(_kept).batch(2), prefetch_buffer_size=2))
    for _ in range(2):
        with pytest.raises(Lost):
            next(iterator)
    iterator.close()
