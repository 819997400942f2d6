"""Any pipeline in lanes, on any number of hosts: the same records in every step."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.experimental import WindowShuffleIterDataset
from bushel.sharding import ShardOptions
from tests.lanes.hosts import on_hosts, state_after, take
from tests.lanes.pipelines import NothingComes, Program, host_counts, programs
from tests.property.profile import tried

# So many steps of a stream without end are looked at.
MOST = 8


def _together(parts: list[list[Any]]) -> list[Any]:
    """The batches of all hosts, put together; they have the same number of them."""
    assert len({len(batches) for batches in parts}) == 1, [len(batches) for batches in parts]
    return [_whole(step) for step in zip(*parts, strict=True)]


def _whole(batches: tuple[Any, ...]) -> Any:
    if isinstance(batches[0], tuple):
        return tuple(np.concatenate(part).tolist() for part in zip(*batches, strict=True))
    return np.concatenate(batches).tolist()


def _expected(program: Program) -> list[Any]:
    return program.expected(MOST if program.endless else 1000)


def _expected_or_passed_over(program: Program) -> list[Any]:
    try:
        return _expected(program)
    except NothingComes:
        assume(False)
        raise


def _run(program: Program, hosts: int, done: int = 0, state: Any = None) -> list[Any]:
    most = MOST - done if program.endless else 1000
    return _together(on_hosts(program.batches, hosts, take(most), state))


@given(programs(), st.data())
@tried
def test_steps_depend_on_the_pipeline_alone(program: Program, data: st.DataObject) -> None:
    expected = _expected_or_passed_over(program)
    hosts = data.draw(host_counts(program.lanes))
    assert _run(program, hosts) == expected


@given(programs(), st.data())
@tried
def test_any_number_of_hosts_goes_on(program: Program, data: st.DataObject) -> None:
    expected = _expected_or_passed_over(program)
    counts = host_counts(program.lanes)
    first, second, third = data.draw(st.tuples(counts, counts, counts))
    one = data.draw(st.integers(0, len(expected)))
    two = data.draw(st.integers(one, len(expected)))
    state = state_after(program.batches, first, one)
    # Who saved it does not show in a state, nor how often the job was moved.
    later = state_after(program.batches, second, two - one, state)
    assert later == state_after(program.batches, third, two)
    assert _run(program, third, two, later) == expected[two:]


_WITH_WORKERS = {
    "filter, on two hosts": (2, Program(90, False, (("filter", (True, True, False)),), 4, 2)),
    "mixture": (1, Program(70, True, (("filter", (True, False)), ("mix", (1, 2))), 4, 3)),
    "windows, padded": (1, Program(90, False, (("window", 5), ("flat_map", (1, 2))), 6, 2, "pad")),
    "positions alone": (1, Program(90, False, (("map", 3), ("random_map", 5)), 8, 2)),
}


@pytest.mark.parametrize("name", _WITH_WORKERS)
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_show(name: str, workers: int) -> None:
    hosts, program = _WITH_WORKERS[name]
    expected = _expected(program)
    state = state_after(program.batches, hosts, 2)
    program = replace(program, workers=workers)
    assert _run(program, hosts, 2, state) == expected[2:]
    if workers == 2:
        assert state_after(program.batches, 1, 2) == state


@given(programs(), st.integers(1, 16), st.integers(0, 16))
@settings(tried, max_examples=max(10, tried.max_examples // 4))
def test_threads_do_not_show(program: Program, threads: int, buffer: int) -> None:
    expected = _expected_or_passed_over(program)
    options = ReadOptions(threads, max(threads, buffer))
    most = MOST if program.endless else 1000
    got = on_hosts(lambda **how: program.batches(read_options=options, **how), 1, take(most))
    assert _together(got) == expected


# What needs only the position, and what has to be looked at.


@given(
    st.integers(0, 100),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 3),
    st.sampled_from(["drop", "pad"]),
    st.lists(st.sampled_from(["map", "random_map", "map_with_index", "seed"]), max_size=3),
    st.data(),
)
@tried
def test_the_quick_way_is_the_slow_way(
    length: int, lanes: int, rows: int, remainder: str, kinds: list[str], data: st.DataObject
) -> None:
    def build(slow: bool, **how: Any) -> IterDataset[Any]:
        ds = MapDataset.range(length).lanes(lanes, remainder=remainder, **how)
        if slow:
            ds = ds.filter(lambda _: True)
        for number, kind in enumerate(kinds):
            if kind == "map":
                ds = ds.map(lambda x: x * 3)
            elif kind == "random_map":
                ds = ds.random_map(lambda x, rng: x + int(rng.integers(1000)), seed=number)
            elif kind == "map_with_index":
                ds = ds.map_with_index(lambda i, x: x + 7 * i)
            else:
                ds = ds.seed(number)
        return ds.batch(lanes * rows)

    hosts = data.draw(host_counts(lanes))
    slow = _together(on_hosts(lambda **how: build(True, **how), hosts, take(1000)))
    assert _together(on_hosts(lambda **how: build(False, **how), hosts, take(1000))) == slow
    done = data.draw(st.integers(0, len(slow)))
    state = state_after(lambda **how: build(False, **how), hosts, done)
    other = data.draw(host_counts(lanes))
    rest = on_hosts(lambda **how: build(False, **how), other, take(1000), state)
    assert _together(rest) == slow[done:]


@pytest.mark.parametrize("kept", [True, False])
def test_the_quick_way_is_taken(kept: bool) -> None:
    ds = MapDataset.range(64).lanes(4).map(lambda x: x)
    if not kept:
        ds = ds.filter(lambda x: True)
    state = iter(ds.batch(4)).get_state()
    # Where each position makes one element, the position is all there is to know.
    assert ("next_index" in state) == kept
    assert ("lanes" in state) == (not kept)


# Elements one by one.


def test_elements_one_by_one() -> None:
    ds = MapDataset.range(20).lanes(4)
    assert list(ds) == list(range(20))
    assert list(ds.filter(lambda x: x != 5)) == [
        0,
        1,
        2,
        3,
        4,
        9,
        6,
        7,
        8,
        13,
        10,
        11,
        12,
        17,
        14,
        15,
    ]
    # Each host has its lanes of every step.
    parts = on_hosts(lambda **how: MapDataset.range(22).lanes(4, **how), 2, list)
    assert parts == [[0, 1, 4, 5, 8, 9, 12, 13, 16, 17], [2, 3, 6, 7, 10, 11, 14, 15, 18, 19]]


@pytest.mark.parametrize("filtered", [True, False])
def test_states_between_elements(filtered: bool) -> None:
    def build(**how: Any) -> IterDataset[Any]:
        ds = MapDataset.range(40).lanes(4, **how)
        return ds.filter(lambda x: x % 7 != 0) if filtered else ds

    everything = list(build())
    iterator = iter(build())
    for done in range(len(everything) + 1):
        state = json.loads(json.dumps(iterator.get_state()))
        again = iter(build())
        again.set_state(state)
        assert again.get_state() == state
        assert list(again) == everything[done:]
        if done % 4 == 0:  # Between two steps: other hosts can go on, too.
            parts = on_hosts(build, 2, list, state)
            pairs = [zip(part[::2], part[1::2], strict=True) for part in parts]
            steps = zip(*pairs, strict=True)
            assert [x for step in steps for pair in step for x in pair] == everything[done:]
        next(iterator, None)


# What lanes have to do with each other: nothing.


def test_every_record_comes_once() -> None:
    def build(**how: Any) -> IterDataset[Any]:
        ds = MapDataset.range(1000).shuffle(seed=4).lanes(8, remainder="pad", **how)
        ds = ds.filter(lambda x: x % 3 != 1)
        return WindowShuffleIterDataset(ds, window_size=10, seed=1).batch(24)

    seen: list[int] = []
    for batches in on_hosts(build, 4, list):
        for values, mask in batches:
            assert values.shape == mask.shape == (6,)
            assert not values[~mask].any()
            seen += values[mask].tolist()
    assert sorted(seen) == [x for x in range(1000) if x % 3 != 1]


def test_dropping_leaves_out_less_than_a_step_of_a_lane() -> None:
    def build(**how: Any) -> IterDataset[Any]:
        return MapDataset.range(1000).lanes(8, **how).filter(lambda x: x % 3 != 1).batch(24)

    seen = [x for batches in on_hosts(build, 2, list) for batch in batches for x in batch.tolist()]
    assert len(set(seen)) == len(seen)
    # Lanes have 83 or 84 elements, of which a step takes 3.
    assert len(seen) == 83 // 3 * 24


def test_random_numbers_of_lanes_differ() -> None:
    ds = MapDataset.source([0] * 64).lanes(16).filter(lambda x: True)
    numbers = np.concatenate(list(ds.random_map(lambda x, rng: rng.random(), seed=1).batch(16)))
    assert len(set(numbers.tolist())) == 64
    indices = np.concatenate(list(ds.map_with_index(lambda i, x: i).batch(16)))
    assert sorted(indices.tolist()) == list(range(64))


def test_windows_of_lanes_differ() -> None:
    ds = MapDataset.range(32 * 8).map(lambda x: x // 8).lanes(8)
    steps = list(WindowShuffleIterDataset(ds, window_size=32, seed=1).batch(8))
    orders = {tuple(order) for order in np.stack(steps).T.tolist()}
    assert len(orders) == 8
    assert all(sorted(order) == list(range(32)) for order in orders)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_every_step_has_the_proportions(named: bool, rows: int) -> None:
    lanes, weights = 20, (1, 3, 6)

    def build(**how: Any) -> IterDataset[Any]:
        parts = [
            MapDataset.source([part]).repeat().lanes(lanes, **how).filter(lambda x: True)
            for part in range(3)
        ]
        if named:
            names = ("a", "b", "c")
            mixed = IterDataset.mix(
                dict(zip(names, parts, strict=True)), dict(zip(names, weights, strict=True))
            )
        else:
            mixed = IterDataset.mix(parts, weights)
        return mixed.batch(lanes * rows)

    for hosts in (1, 4):
        for batch in _together(on_hosts(build, hosts, take(30))):
            assert np.bincount(batch).tolist() == [2 * rows, 6 * rows, 12 * rows]
    # And every lane has them in the course of time.
    steps = np.stack(take(10)(iter(build())))
    for lane in steps.reshape(10, lanes, rows).transpose(1, 0, 2).reshape(lanes, -1):
        assert np.bincount(lane).tolist() == [rows, 3 * rows, 6 * rows]


# Odd sizes.


@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("length", [0, 1, 3, 8])
def test_more_lanes_than_records(length: int, filtered: bool, remainder: str) -> None:
    def build(**how: Any) -> IterDataset[Any]:
        ds = MapDataset.range(5, 5 + length).lanes(64, remainder=remainder, **how)
        return (ds.filter(lambda x: True) if filtered else ds).batch(64)

    got = _together(on_hosts(build, 4, list))
    if remainder == "drop" or not length:
        assert got == []
    else:
        rows = list(range(5, 5 + length)) + [0] * (64 - length)
        assert got == [(rows, [True] * length + [False] * (64 - length))]


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_hosts_of_which_nothing_is_left(remainder: str) -> None:
    def build(**how: Any) -> IterDataset[Any]:
        ds = MapDataset.range(40).lanes(4, remainder=remainder, **how)
        return ds.filter(lambda x: x % 4 == 1).batch(4)

    got = _together(on_hosts(build, 4, list))
    if remainder == "drop":
        assert got == []
    else:
        assert got == [([0, x, 0, 0], [False, True, False, False]) for x in range(1, 40, 4)]


def test_padding_has_the_types_of_the_elements() -> None:
    element = {
        "array": np.ones((2, 3), np.int8),
        "scalar": np.float32(2),
        "day": np.datetime64("2020-01-01"),
        "number": 7,
        "text": "abc",
        "nothing": None,
        "pair": (True, b"xy"),
    }
    ds = MapDataset.source([element] * 5).lanes(4, remainder="pad")
    for slow in (False, True):
        full, last = list((ds.filter(lambda _: True) if slow else ds).batch(4))
        assert full[1].all() and last[1].tolist() == [True, False, False, False]
        for name in ("array", "scalar", "day", "number"):
            assert last[0][name].dtype == full[0][name].dtype
            assert (last[0][name][0] == full[0][name][0]).all()
            assert not last[0][name][1:].astype(np.int64).any()
        assert last[0]["text"].tolist() == ["abc", "", "", ""]
        assert last[0]["nothing"] is None
        assert last[0]["pair"][0].tolist() == [True, False, False, False]


def test_streams_far_out() -> None:
    ds = MapDataset.range(10**12).shuffle(seed=1).repeat().lanes(64)

    def build(slow: bool) -> IterDataset[Any]:
        lanes = ds.filter(lambda _: True) if slow else ds
        return lanes.random_map(lambda x, rng: (x, rng.random()), seed=3).batch(128)

    step = 10**13
    quick, slow = iter(build(False)), iter(build(True))
    quick.set_state({"next_index": step})
    lane = {"parent": {"next_index": 2 * step}, "index_for_rng": 2 * step}
    slow.set_state({"lanes": {str(number): lane for number in range(64)}, "step": step})
    for _ in range(3):
        for one, other in zip(next(quick), next(slow), strict=True):
            np.testing.assert_array_equal(one, other)


def test_very_many_lanes() -> None:
    ds = MapDataset.range(3 * 1024).lanes(1024).filter(lambda _: True).batch(1024)
    assert [batch.tolist() for batch in ds] == np.arange(3 * 1024).reshape(3, 1024).tolist()


def test_none_is_an_element_where_each_position_makes_one() -> None:
    ds = MapDataset.range(8).map(lambda x: None if x == 5 else x).lanes(4)
    assert list(ds) == [0, 1, 2, 3, 4, None, 6, 7]
    # After a filter, as in any stream, it is one that was left out.
    assert list(ds.filter(lambda _: True)) == [0, 1, 2, 3]
    assert list(ds.batch(4, batch_fn=list)) == [[0, 1, 2, 3], [4, None, 6, 7]]
    parts = [
        list(
            MapDataset.range(8).map(lambda x: x or None).lanes(4, shard_options=ShardOptions(i, 2))
        )
        for i in range(2)
    ]
    assert parts == [[None, 1, 4, 5], [2, 3, 6, 7]]
