"""ElasticIterator: as Grain's, and what it refuses."""

import grain
import numpy as np
import pytest
from grain.experimental import ElasticIterator as GrainElasticIterator

import bushel
from bushel.errors import ClosedError, PlanError, StateError
from bushel.experimental import ElasticIterator

CASES = [(4, 1, 0), (4, 2, 0), (4, 2, 1), (4, 4, 3), (6, 2, 1), (8, 4, 2)]


@pytest.mark.parametrize(("size", "count", "index"), CASES)
@pytest.mark.parametrize("position", [0, 4, 5, 8, 40])
def test_it_is_grains(size: int, count: int, index: int, position: int) -> None:
    ours = ElasticIterator(
        bushel.MapDataset.range(45).shuffle(seed=1).repeat(2).map(lambda x: x * 2),
        size,
        bushel.ShardOptions(index, count),
    )
    theirs = GrainElasticIterator(
        grain.MapDataset.range(45).shuffle(seed=1).repeat(2).map(lambda x: x * 2),
        size,
        grain.sharding.ShardOptions(index, count),
    )
    state = {"global_next_index": position}
    ours.set_state(state)
    theirs.set_state(state)
    expected = list(theirs)
    np.testing.assert_equal(list(ours), expected)
    assert ours.get_state()["global_next_index"] == theirs.get_state()["global_next_index"]
    assert next(iter(ours), None) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_other_numbers_of_hosts_go_on(workers: int) -> None:
    ds = bushel.MapDataset.range(1000).shuffle(seed=5)

    def hosts(count: int) -> list[ElasticIterator]:
        options = bushel.MultiprocessingOptions(workers)
        return [
            ElasticIterator(ds, 8, bushel.ShardOptions(i, count), multiprocessing_options=options)
            for i in range(count)
        ]

    def step(job: list[ElasticIterator]) -> list[int]:
        return sorted(int(x) for host in job for x in next(host))

    alone = hosts(1)
    expected = [step(alone) for _ in range(12)]
    job = hosts(4)
    found = []
    for count in (4, 2, 8, 1):
        states = [host.get_state() for host in job]
        assert all(state == states[0] for state in states)
        for host in job:
            host.close()
        job = hosts(count)
        for host in job:
            host.set_state(states[0])
        found += [step(job) for _ in range(3)]
    for host in [*job, *alone]:
        host.close()
    assert found == expected


def test_it_holds_one_iterator_and_is_a_dataset() -> None:
    elastic = ElasticIterator(bushel.MapDataset.range(20), 4, bushel.ShardOptions(0, 2))
    first, second = iter(elastic), iter(elastic)
    assert first is second
    assert next(first).tolist() == [0, 2]
    assert next(elastic).tolist() == [4, 6]
    mapped = iter(elastic.map(lambda x: x + 100))
    assert next(mapped).tolist() == [108, 110]
    assert mapped.get_state()["iterator"]["global_next_index"] == 12


def test_what_it_refuses() -> None:
    ds = bushel.MapDataset.range(20)
    with pytest.raises(PlanError, match="multiple of 2, and is 5"):
        ElasticIterator(ds, 5, bushel.ShardOptions(0, 2))
    with pytest.raises(PlanError, match="must be positive, and is 0"):
        ElasticIterator(ds, 0, bushel.ShardOptions(0, 2))
    with pytest.raises(PlanError, match="does not support `filter"):
        ElasticIterator(ds.filter(lambda x: x > 1), 4, bushel.ShardOptions(0, 2))
    elastic = ElasticIterator(ds, 4, bushel.ShardOptions(0, 2))
    with pytest.raises(StateError, match="global_next_index"):
        elastic.set_state({"next_index": 3})
    with pytest.raises(StateError, match="another pipeline"):
        other = ElasticIterator(ds.shuffle(seed=1), 4, bushel.ShardOptions(0, 2))
        elastic.set_state(other.get_state())
    elastic.close()
    with pytest.raises(ClosedError):
        next(elastic)
