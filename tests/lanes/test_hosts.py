"""Hosts that share the lanes of a job: slow ones, ones that fail, and ones that wait."""

import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset
from bushel.experimental import ThreadPrefetchIterDataset
from bushel.lanes.merge import merge_states
from bushel.multiprocessing import MultiprocessingOptions
from bushel.sharding import ShardOptions
from tests.contract.events import freeze
from tests.lanes.hosts import Meeting, on_hosts, state_after
from tests.patience import PATIENCE_SECONDS

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


@pytest.mark.parametrize(("buffer", "steps"), [(0, 1), (1, 1), (6, 1), (6, 2)])
def test_hosts_that_train_together(buffer: int, steps: int) -> None:
    """No host waits for a step of the others before it has handed out what it has."""
    training = threading.Barrier(2)

    def build(**how: Any) -> IterDataset[Any]:
        ds = ThreadPrefetchIterDataset(_uneven(1, 2, **how), prefetch_buffer_size=buffer)
        return ds.batch(steps)

    parts = on_hosts(build, 2, lambda iterator: _trained(training, iterator))
    counts = [len(steps) for steps in parts]
    assert counts == [counts[0]] * 2
    assert counts[0] > 15


def _trained(training: threading.Barrier, iterator: Any) -> list[Any]:
    """All steps, each of which takes all hosts."""
    steps = []
    try:
        for batch in iterator:
            training.wait(PATIENCE_SECONDS)
            steps.append(freeze(batch))
    except BaseException:
        training.abort()
        raise
    return steps


def _with_workers(
    workers: list[int], short: int, remainder: str, behind: str, has: int = 120, **how: Any
) -> IterDataset[Any]:
    """Finite, filtered, with something to do after the batch; one host has less than another."""

    def kept(number: int) -> bool:
        return _kept(number) and not (number >= has and number % LANES * 2 // LANES == short)

    ds = MapDataset.range(160).lanes(LANES, remainder=remainder, **how).filter(kept).batch(LANES)
    ds = ds.map(lambda batch: batch)
    if behind == "several steps":
        # Takes two steps for one element, and in the end the one that is left.
        ds = ds.batch(2).map(lambda batches: batches)
    options = MultiprocessingOptions(num_workers=workers[how["shard_options"].shard_index])
    return ds.mp_prefetch(options) if options.num_workers else ds


@pytest.mark.parametrize(
    ("behind", "remainder", "short", "buffer"),
    [
        ("one step", "drop", 0, 0),
        ("one step", "pad", 1, 4),
        ("several steps", "drop", 0, 4),
        ("several steps", "drop", 1, 0),
        ("several steps", "pad", 0, 0),
    ],
)
def test_hosts_with_different_numbers_of_workers(
    behind: str, remainder: str, short: int, buffer: int
) -> None:
    """How far workers are ahead is nothing that other hosts would notice."""
    training = threading.Barrier(2)

    def build(**how: Any) -> IterDataset[Any]:
        ds = _with_workers([0, 2], short, remainder, behind, **how)
        return ThreadPrefetchIterDataset(ds, prefetch_buffer_size=buffer)

    def build_without(**how: Any) -> IterDataset[Any]:
        return _with_workers([0, 0], short, remainder, behind, **how)

    parts = on_hosts(build, 2, lambda iterator: _trained(training, iterator))
    assert parts == on_hosts(build_without, 2, lambda iterator: list(map(freeze, iterator)))
    assert len(parts[0]) == len(parts[1]) > 5


@pytest.mark.parametrize("workers", [[0, 1], [1, 0]])
def test_a_host_without_elements_pads_from_the_beginning(workers: list[int]) -> None:
    def build(workers: list[int], **how: Any) -> IterDataset[Any]:
        return _with_workers(workers, 1, "pad", "one step", has=0, **how)

    training = threading.Barrier(2)
    parts = on_hosts(partial(build, workers), 2, lambda iterator: _trained(training, iterator))
    assert parts == on_hosts(partial(build, [0, 0]), 2, lambda each: list(map(freeze, each)))
    assert len(parts[0]) == len(parts[1]) == 16


def test_nobody_has_an_element() -> None:
    for workers in ([0, 0], [0, 1]):
        assert on_hosts(partial(_empty, workers), 2, list) == [[], []]


def _empty(workers: list[int], **how: Any) -> IterDataset[Any]:
    ds = (
        MapDataset.range(40)
        .lanes(LANES, remainder="pad", **how)
        .filter(lambda number: False)
        .batch(LANES)
    )
    count = workers[how["shard_options"].shard_index]
    ds = ds.map(lambda batch: batch)
    return ds.mp_prefetch(MultiprocessingOptions(num_workers=count)) if count else ds


def test_states_of_hosts_with_different_numbers_of_workers() -> None:
    def build(workers: list[int], **how: Any) -> IterDataset[Any]:
        return _with_workers(workers, 0, "drop", "one step", **how)

    state = state_after(lambda **how: build([2, 0], **how), 2, 5)
    assert state == state_after(lambda **how: build([0, 0], **how), 2, 5)
    rest = on_hosts(lambda **how: build([0, 1], **how), 2, list, state)
    whole = on_hosts(lambda **how: build([0, 0], **how), 2, list)
    assert [list(map(freeze, part)) for part in rest] == [
        list(map(freeze, part[5:])) for part in whole
    ]


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13])
def test_hosts_that_stop_at_the_same_step(steps: int) -> None:
    """Nothing but the steps asked for needs the other hosts."""
    state = state_after(lambda **how: _uneven(0, 4, **how), 4, steps)
    assert state["step"] == steps
    alone = state_after(lambda **how: _uneven(0, 1, **how), 1, steps)
    # The functions of the hosts know which host they are of.
    for signed in (state, alone):
        del signed["bushel"]["made_with"]
    assert state == alone


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


# The last step that all lanes have ends with 159. Of the next one lane 7 alone has too few
# elements, just one: 167.
@pytest.mark.parametrize(
    "broken",
    [{43}, {35}, {35, 43}, {3}, {43, 44, 131}, {152, 159}, {160}, {165}, {167}, {150, 161, 167}],
)
def test_a_step_of_several_rows_that_fails_is_passed_over(broken: set[int]) -> None:
    """All of it, and nothing else: with a memory in the lanes or without."""

    def build(broken: set[int], filtered: bool, **how: Any) -> IterDataset[Any]:
        ds = MapDataset.range(175).lanes(LANES, **how)
        if filtered:
            ds = ds.filter(lambda number: number >= 0)
        return ds.map(lambda number: _fail_at(broken, number)).batch(2 * LANES)

    for hosts in (1, 2):
        plain, general = (
            on_hosts(partial(build, broken, filtered), hosts, _events) for filtered in (False, True)
        )
        assert general == plain
        whole = on_hosts(partial(build, set(), False), hosts, _events)
        for mine, others in zip(general, whole, strict=True):
            assert [event for event in mine if len(event) > 1] == [
                other for event, other in zip(mine, others, strict=True) if len(event) > 1
            ]


def test_states_behind_a_step_of_several_rows_that_fails() -> None:
    ds = _failing({43}, 2 * LANES, True, "drop")
    iterator = iter(ds)
    for _ in range(2):
        next(iterator)
    with pytest.raises(Broken):
        next(iterator)
    state = iterator.get_state()
    rest = [batch.tolist() for batch in iterator]
    assert rest[0][:4] == [48, 56, 49, 57]
    iterator.set_state(state)
    assert [batch.tolist() for batch in iterator] == rest


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
