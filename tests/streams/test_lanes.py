"""Packing within lanes: rows depend on the pipeline, and not on the number of hosts."""

from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset
from bushel.experimental import (
    BestFitPackIterDataset,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    RepeatIterDataset,
)
from tests.lanes.hosts import on_hosts, state_after, take
from tests.workers.guards import no_endless_wait

__all__ = ["no_endless_wait"]

LANES, MOST = 4, 6


def _document(number: int) -> Any:
    return {"x": np.full(number % 5 + 1, number)}


def _documents(**how: Any) -> IterDataset[Any]:
    ds = MapDataset.range(300).shuffle(seed=2).lanes(LANES, **how)
    return ds.filter(lambda number: number % 7 > 0).map(_document)


def _first(**how: Any) -> IterDataset[Any]:
    ds = FirstFitPackIterDataset(
        _documents(**how), length_struct={"x": 8}, num_packing_bins=3, seed=4
    )
    return ds.batch(2 * LANES)


def _best(**how: Any) -> IterDataset[Any]:
    ds = BestFitPackIterDataset(
        RepeatIterDataset(_documents(**how)), length_struct={"x": 8}, num_packing_bins=3
    )
    return ds.batch(LANES)


def _split(**how: Any) -> IterDataset[Any]:
    ds = ConcatThenSplitIterDataset(_documents(**how), length_struct={"x": 8})
    return ds.batch(2 * LANES)


every_pipeline = pytest.mark.parametrize("build", [_first, _best, _split])


def _together(parts: list[list[Any]]) -> list[Any]:
    assert len({len(batches) for batches in parts}) == 1
    return [
        {name: np.concatenate([batch[name] for batch in step]).tolist() for name in step[0]}
        for step in zip(*parts, strict=True)
    ]


@every_pipeline
@pytest.mark.parametrize("hosts", [2, 4])
def test_rows_depend_on_the_pipeline_alone(build: Any, hosts: int) -> None:
    alone = _together(on_hosts(build, 1, take(MOST)))
    assert len(alone) == MOST
    assert _together(on_hosts(build, hosts, take(MOST))) == alone


@every_pipeline
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2)])
def test_states_of_other_numbers_of_hosts(build: Any, before: int, after: int) -> None:
    alone = _together(on_hosts(build, 1, take(MOST)))
    for steps in (0, 3):
        state = state_after(build, before, steps)
        assert state == state_after(build, after, steps)
        rest = _together(on_hosts(build, after, take(MOST - steps), state))
        assert rest == alone[steps:]


def test_lanes_are_shuffled_differently() -> None:
    """No two lanes draw the same numbers."""
    ds = MapDataset.range(64).map(lambda n: {"x": n // LANES}).lanes(LANES)
    packed = FirstFitPackIterDataset(ds, length_struct={"x": 1}, num_packing_bins=16)
    rows = [row["x"][0] for row in packed]
    lanes = [rows[lane::LANES] for lane in range(LANES)]
    assert all(sorted(lane) == list(range(16)) for lane in lanes)
    assert len({tuple(lane) for lane in lanes}) == LANES
