"""`get_execution_summary`, beside Grain's own, which Grain does not export."""

from typing import Any

import pytest

import bushel
from bushel.errors import PlanError
from bushel.experimental import (
    DatasetOptions,
    ExecutionTrackingMode,
    WithOptionsIterDataset,
    get_execution_summary,
)
from tests.workers.streams import with_workers

grain = pytest.importorskip("grain")


def odd(number: int) -> bool:
    return number % 2 == 1


def pipeline(lib: Any) -> Any:
    stream = lib.MapDataset.range(200).map(abs).to_iter_dataset(lib.ReadOptions(0, 0))
    timing = lib.experimental.ExecutionTrackingMode.STAGE_TIMING
    options = lib.experimental.DatasetOptions(execution_tracking_mode=timing)
    return lib.experimental.WithOptionsIterDataset(stream.filter(odd).batch(4), options)


def test_it_has_the_steps_of_grains_and_counts_all_of_them() -> None:
    from grain._src.python.dataset import dataset  # It is nowhere else.

    theirs, ours = iter(pipeline(grain)), iter(pipeline(bushel))
    assert len(list(theirs)) == len(list(ours)) == 25
    named = {
        node.name.split("(")[0]: node
        for node in dataset.get_execution_summary(theirs).nodes.values()
    }
    nodes = get_execution_summary(ours).nodes
    assert len(named) == len(nodes) == 5
    assert [node.id for node in nodes.values()] == list(nodes)
    assert [node.inputs for node in nodes.values()] == [(1,), (2,), (3,), (4,), ()]
    assert [node.is_output for node in nodes.values()] == [True] + [False] * 4
    of_name = {node.name: node for node in nodes.values()}
    assert of_name["batch(4)"].num_produced_elements == 25
    assert of_name["map(abs)"].num_produced_elements == 200
    assert of_name["map(abs)"].max_processing_time_ns > 0
    assert 0 < sum(node.wait_time_ratio for node in nodes.values()) <= 1
    assert [node.is_prefetch for node in nodes.values()].count(True) == 1
    fields = {field.name for field in next(iter(named.values())).DESCRIPTOR.fields}
    assert set(bushel.grain.execution_summary.NodeSummary.__slots__) <= fields


def test_of_workers_and_of_a_loader() -> None:
    with bushel.iterate(with_workers(bushel.MapDataset.range(400).map(abs), 1)) as iterator:
        assert len(list(iterator)) == 400
        nodes = get_execution_summary(iterator).nodes
    assert {node.name: node.num_produced_elements for node in nodes.values()}["map(abs)"] == 400
    sampler = bushel.samplers.IndexSampler(10, num_epochs=1)
    loader = bushel.DataLoader(data_source=list(range(10)), sampler=sampler)
    with bushel.iterate(loader) as iterator:
        assert len(list(iterator)) == 10
        assert get_execution_summary(iterator).nodes


@pytest.mark.parametrize("filtered", [False, True])
def test_copies_of_a_step_in_lanes_are_one_step(filtered: bool) -> None:
    stream = bushel.MapDataset.range(400).lanes(4).map(abs)
    stream = stream.filter(lambda number: number % 3 > 0) if filtered else stream
    with bushel.iterate(stream.map(abs).batch(8)) as iterator:
        batches = len(list(iterator))
        nodes = list(get_execution_summary(iterator).nodes.values())
    produced = [(node.name, node.num_produced_elements) for node in nodes]
    assert produced[0] == ("batch(8)", batches)
    # (Beyond the last batch, a little may have been read.)
    maps = [count for name, count in produced if name == "map(abs)"]
    assert len(maps) == 2 and maps[0] >= 8 * batches
    assert maps[1] == 400 if filtered else maps[1] == maps[0]


def test_what_has_none() -> None:
    plain = WithOptionsIterDataset(
        bushel.MapDataset.range(3).to_iter_dataset(),
        DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.DISABLED),
    )
    with pytest.raises(PlanError, match="the steps of this iterator are not timed"):
        get_execution_summary(iter(plain))
    with pytest.raises(PlanError, match="and got list"):
        get_execution_summary([])
