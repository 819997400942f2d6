"""States of lanes: what is merged, and what is refused."""

from typing import Any

import pytest

from bushel import DatasetIterator, IterDataset, MapDataset
from bushel.errors import StateError
from bushel.lanes.merge import merge_states
from tests.lanes.hosts import on_hosts, state_after


def _build(lanes: int = 4, batch: int = 4, **how: Any) -> IterDataset[Any]:
    return MapDataset.range(96).lanes(lanes, **how).filter(lambda x: x % 5 != 0).batch(batch)


def _states(hosts: int, steps: int) -> list[Any]:
    def work(iterator: Any) -> Any:
        for _ in range(steps):
            next(iterator)
        return iterator.get_state()

    return on_hosts(_build, hosts, work)


def test_a_state_has_the_lanes_of_its_host() -> None:
    one, other = _states(2, 3)
    assert list(one["lanes"]) == ["0", "1"]
    assert list(other["lanes"]) == ["2", "3"]
    merged = merge_states([one, other])
    assert list(merged["lanes"]) == ["0", "1", "2", "3"]
    assert merged["step"] == 3
    # In whatever order they come, and as often.
    assert merge_states([other, one, other]) == merged


def test_lanes_are_in_the_order_of_their_numbers() -> None:
    state = state_after(lambda **how: _build(12, 12, **how), 4, 2)
    assert list(state["lanes"]) == [str(lane) for lane in range(12)]


def test_states_of_different_steps_are_not_merged() -> None:
    with pytest.raises(StateError, match=r"at /step host 0 has 2 and host 1 has 3.*of different"):
        merge_states([_states(2, 2)[0], _states(2, 3)[1]])


def test_states_of_different_pipelines_are_not_merged() -> None:
    one = state_after(_build, 1, 2)
    other = state_after(lambda **how: _build(batch=8, **how), 1, 2)
    with pytest.raises(StateError, match=r"at /bushel/pipeline/3 host 0 has .*batch.4.* host 1"):
        merge_states([one, other])


def test_shards_are_not_merged() -> None:
    states = []
    for shard in range(2):
        iterator = iter(MapDataset.range(10)[shard::2].to_iter_dataset())
        next(iterator)
        states.append(iterator.get_state())
    with pytest.raises(StateError, match=r"a part of its own .a shard.*MapDataset.lanes"):
        merge_states(states)


def test_lanes_that_differ_are_not_merged() -> None:
    (one, _), (other, _) = _states(2, 2), _states(2, 3)
    with pytest.raises(StateError, match=r"lane 0 is in two of these states, and differs"):
        merge_states([one, {**other, "step": 2}])


@pytest.mark.parametrize("states", [[], ["x"], [b"{}"], [None, {}], [{}, 3]])
def test_what_is_no_state_is_not_merged(states: Any) -> None:
    with pytest.raises(StateError, match=r"no states to merge|and one is a"):
        merge_states(states)


@pytest.mark.parametrize("names", [("lanes", "b"), ("0", "1")])
def test_parts_of_a_mixture_may_have_any_name(names: tuple[str, str]) -> None:
    def build(**how: Any) -> IterDataset[Any]:
        parts = {name: MapDataset.range(96).repeat().lanes(4, **how) for name in names}
        batches = {name: part.filter(lambda x: x % 5 != 0).batch(4) for name, part in parts.items()}
        return IterDataset.mix(batches, dict.fromkeys(names, 1.0))

    for hosts in (1, 2, 4):
        assert state_after(build, hosts, 5) == state_after(build, 1, 5)


class _Doubled(IterDataset[Any]):
    """A stream of the user's own, whose states hold those of what it reads from."""

    def __iter__(self) -> Any:
        return _DoubledIterator(iter(self._parent))


class _DoubledIterator(DatasetIterator[Any]):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner, self._count = inner, 0

    def __next__(self) -> Any:
        value = next(self._inner) * 2
        self._count += 1
        return value

    def get_state(self) -> Any:
        return {"inner": self._inner.get_state(), "count": self._count}

    def set_state(self, state: Any) -> None:
        self._inner.set_state(state["inner"])
        self._count = state["count"]


def test_streams_of_the_users_own_are_merged() -> None:
    def build(**how: Any) -> IterDataset[Any]:
        return _Doubled(_build(**how)).map(lambda x: x + 1)

    state = state_after(build, 1, 3)
    assert sorted(state["iterator"]["inner"]["lanes"]) == ["0", "1", "2", "3"]
    for hosts in (2, 4):
        assert state_after(build, hosts, 3) == state
    one, other = on_hosts(build, 2, lambda iterator: (next(iterator), iterator.get_state())[1])
    with pytest.raises(StateError, match=r"at /iterator/count host 0 has 1 and host 1 has 7"):
        merge_states([one, {**other, "iterator": {**other["iterator"], "count": 7}}])


def test_states_with_damaged_lanes_are_not_merged() -> None:
    one, other = _states(2, 3)
    without = {name: value for name, value in other.items() if name != "lanes"}
    for damaged in ({**other, "lanes": [1]}, {**other, "lanes": None}, without):
        for states in ([one, damaged], [damaged, one]):
            with pytest.raises(StateError, match=r"these states cannot be put together: at /"):
                merge_states(states)


def test_each_host_has_files_of_its_own() -> None:
    one, other = ({**state, "bushel": {"version": 1}} for state in _states(2, 3))
    one["bushel"]["made_with"], other["bushel"]["made_with"] = {"a": 1}, {"b": 2}
    assert merge_states([one, other])["bushel"] == {"version": 1, "made_with": {"a": 1}}
    del other["bushel"]["made_with"]
    assert merge_states([one, other])["bushel"] == {"version": 1, "made_with": {"a": 1}}


# Restoring.


def test_another_number_of_lanes_is_another_pipeline() -> None:
    state = state_after(_build, 2, 3)
    for lanes in (2, 8):
        with pytest.raises(StateError, match=rf"was `lanes\(4\)` and is `lanes\({lanes}\)` now"):
            iter(_build(lanes, 8)).set_state(state)


def test_a_state_of_some_hosts_is_refused() -> None:
    one, other = _states(2, 3)
    iterator = iter(_build())
    for state in (one, other):
        with pytest.raises(StateError, match=r"lanes 0 to 3, and the state has none for lane [02]"):
            iterator.set_state(state)
    # The iterator stays where it was.
    assert next(iterator).tolist() == [4, 1, 2, 3]


def test_a_state_within_a_step_is_for_as_many_lanes() -> None:
    def build(**how: Any) -> IterDataset[Any]:
        return MapDataset.range(96).lanes(4, **how).filter(lambda x: x % 5 != 0)

    state = state_after(build, 2, 3)
    assert (state["step"], state["row"], state["width"]) == (1, 1, 2)
    with pytest.raises(StateError, match=r"after 1 of the 2 elements.*this host has 4 of each"):
        iter(build()).set_state(state)
    assert on_hosts(build, 2, list, state)[0][0] == 9


def _lanes(**lane: Any) -> dict[str, Any]:
    return {str(number): lane for number in range(4)}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({}, "no 'lanes'"),
        ({"step": 1}, "no 'lanes'"),
        ({"lanes": _lanes(next_index=1)}, "no 'step'"),
        ({"lanes": [], "step": 0}, "'lanes' in a state must be a dict"),
        ({"lanes": {}, "step": 0}, "none for lane 0: it has none"),
        ({"lanes": dict.fromkeys("0123"), "step": 0}, "a state is a dict"),
        ({"lanes": _lanes(), "step": 0}, "no 'next_index'"),
        ({"lanes": _lanes(next_index=-1), "step": 0}, "must not be negative"),
        ({"lanes": _lanes(next_index=25), "step": 0}, "the dataset has only 24"),
        ({"lanes": _lanes(next_index=1), "step": "1"}, "'step' in a state must be a whole number"),
        ({"lanes": _lanes(next_index=1), "step": -1}, "must not be negative"),
        ({"lanes": _lanes(next_index=1), "step": 2**62}, "which no job can reach"),
        ({"lanes": _lanes(next_index=1), "step": 1, "row": 1}, "within a step"),
        ({"lanes": _lanes(next_index=1), "step": 1, "row": 4, "width": 4}, "within a step"),
        ({"lanes": _lanes(next_index=1), "step": 1, "row": [], "width": 4}, "a whole number"),
    ],
)
def test_damaged_states_are_refused(state: Any, says: str) -> None:
    iterator = iter(_build())
    next(iterator)
    with pytest.raises(StateError, match=says):
        iterator.set_state(state)
    # The iterator stays where it was.
    assert next(iterator).tolist() == [8, 9, 6, 7]
