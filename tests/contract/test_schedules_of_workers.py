"""The same with workers: neither how they are asked shows, nor how they go about it."""

import pytest
from hypothesis import given, settings

from tests.contract.pipelines import PIPELINES
from tests.contract.schedule import schedule
from tests.contract.test_schedules import Walk, draw, seeds
from tests.property.profile import tried
from tests.thorough import THOROUGH, rare_examples
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import workers

__all__ = ["no_endless_wait", "no_process_left_behind"]

# Each starts processes; so there is one for each way to spread a pipeline, more or less.
SOME = (
    "MapDataset.batch: drop_remainder",
    "MapDataset.filter: nearly all",
    "IterDataset.random_map: filtered",
    "IterDataset.batch: filtered",
    "FlatMapIterDataset: filtered",
    "WindowShuffleIterDataset: filtered",
    "ZipIterDataset: not strict",
    "IterDataset.mix: of mixes",
    "IterDataset: subclass in the middle",
)


@pytest.mark.parametrize("name", PIPELINES if THOROUGH else SOME)
@settings(tried, max_examples=rare_examples(1))
@given(seeds)
def test_the_same_with_workers(name: str, seed: int) -> None:
    drawn = draw(name, seed)
    buffer = drawn.chance.choice([1, 3])
    ds = drawn.with_workers(workers(2, per_worker_buffer_size=buffer))
    with schedule(drawn.seed):
        moves = drawn.chance.choice([0, 3, 6])
        Walk(ds, drawn.expected, drawn.chance, notes=False).go(moves)
