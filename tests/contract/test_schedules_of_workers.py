"""The same with workers: neither how they are asked shows, nor how they go about it."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.contract.pipelines import PIPELINES, stream_of
from tests.contract.schedule import schedule, scheduled_worker
from tests.contract.test_schedules import KITS, READ, Walk, one_by_one, seed_of, seeds
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
    seed = seed_of(name, seed)
    chance = random.Random(seed)
    kit = chance.choice(KITS)
    expected = one_by_one(PIPELINES[name](kit))
    ds = stream_of(name, replace(kit, read=chance.choice(READ))).mp_prefetch(
        workers(2, per_worker_buffer_size=chance.choice([1, 3])), scheduled_worker(seed)
    )
    with schedule(seed):
        Walk(ds, expected, chance, notes=False).go(chance.choice([0, 3, 6]))
