"""At which steps a record is seen: `where` the other way round."""

from collections import defaultdict
from itertools import islice
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import DataLoader, IndexSampler, MapDataset, NoSharding, SequentialSampler, ShardOptions
from bushel.errors import PlanError
from bushel.provenance.when import Sighting
from bushel.provenance.where import ARITHMETIC, NOT_KNOWN, REPLAY
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.provenance.test_where import NOT_TOLD

# Made while it runs: its sources have no numbers before that.
MADE_LATER = {"InterleaveIterDataset: made by a map"}


@pytest.mark.parametrize("name", [n for n in PIPELINES if n not in NOT_TOLD | MADE_LATER])
def test_when_is_where_the_other_way_round(name: str) -> None:
    ds = stream_of(name, Kit())
    with iter(ds) as iterator:
        count = sum(1 for _ in iterator)
    answer = bushel.where(ds, step=range(count))
    seen: dict[tuple[int, Any], list[tuple[Any, ...]]] = defaultdict(list)
    for record in answer:
        seen[record.source, record.key].append((record.epoch, record.step, record.row))
    for number, source in enumerate(answer.records.sources):
        # (Some of those that take a run; all that are arithmetic.)
        for key in range(source.length()):
            found = bushel.when(ds, key, source=number, replay=key < 2)
            if found.grade == NOT_KNOWN:
                assert answer.grade == REPLAY and key >= 2
                latest = [step for _, step, _ in found.latest]
                expected = [step for _, step, _ in seen[number, key]]
                if latest and name != "CacheIterDataset: repeated":
                    assert len(expected) <= len(latest)
                    assert all(a <= b for a, b in zip(expected, latest, strict=False))
                break
            assert sorted(map(tuple, found)) == sorted(seen[number, key]), key


def test_an_endless_dataset_is_looked_at_as_far_as_one_asks() -> None:
    ds = MapDataset.range(1000).shuffle(seed=3).repeat().batch(7)
    found = bushel.when(ds, key=421)
    assert found.grade == ARITHMETIC and found.steps is None
    for epoch, seen in enumerate(islice(found, 40)):
        assert seen.epoch == epoch
        assert bushel.where(ds, step=seen.step).keys[seen.row] == 421
    assert "endless: 4 shown" in str(found)
    assert len(bushel.when(ds, key=421, steps=300).to_dict()["seen"]) == 2


def test_a_record_of_a_billion() -> None:
    ds = MapDataset.range(10**9).shuffle(seed=1).repeat().batch(256)
    (first, second) = bushel.when(ds, key=123_456_789).first(2)
    assert (first.epoch, second.epoch) == (0, 1)
    for seen in (first, second):
        assert bushel.where(ds, step=seen.step).keys[seen.row] == 123_456_789


def test_what_is_left_out_is_seen_at_no_step() -> None:
    ds = MapDataset.range(10).batch(4, drop_remainder=True)
    assert str(bushel.when(ds, key=9)) == (
        "key 9 of range(0, 10, 1)   exact, by arithmetic\n  at no step of 2"
    )


@pytest.mark.parametrize(
    "sampler",
    [
        IndexSampler(20, NoSharding(), shuffle=True, num_epochs=3, seed=5),
        IndexSampler(20, ShardOptions(1, 2), shuffle=True, num_epochs=3, seed=5),
        SequentialSampler(20),
    ],
)
def test_loaders(sampler: Any) -> None:
    source = np.arange(100, 120)
    operations = [bushel.Batch(3)]
    loader = DataLoader(data_source=source, sampler=sampler, operations=operations)
    batches = list(loader)
    seen = defaultdict(list)
    for step, batch in enumerate(batches):
        answer = bushel.where(loader, step=step)
        assert answer.keys.tolist() == [value - 100 for value in batch.tolist()]
        for row, key in enumerate(answer.keys.tolist()):
            seen[key].append((step, row))
    for key in range(20):
        assert [(s.step, s.row) for s in bushel.when(loader, key)] == seen[key]
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = iterator.get_state()
    assert bushel.where(iterator).keys.tolist() == bushel.where(loader, step=1).keys.tolist()
    assert bushel.where(loader, state=state).keys.tolist() == (
        bushel.where(loader, step=2).keys.tolist()
    )


class OwnSampler:
    """Records by names, from the last to the first."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return bushel.RecordMetadata(index=index, record_key=f"r{4 - index}")


class Named:
    def __getitem__(self, key: str) -> str:
        return key


def test_a_sampler_of_ones_own() -> None:
    loader = DataLoader(data_source=Named(), sampler=OwnSampler(), shard_options=NoSharding())
    assert list(loader) == ["r4", "r3", "r2", "r1", "r0"]
    assert bushel.where(loader, step=[0, 3]).keys.tolist() == ["r4", "r1"]
    assert bushel.when(loader, key="r1").first(9) == [Sighting(0, 3, 0)]
    ran = bushel.where(loader, step=3, replay=True)
    assert (ran.grade, ran.keys.tolist()) == (REPLAY, ["r1"])


def test_after_a_filter_steps_are_at_the_latest_until_it_is_run() -> None:
    ds = MapDataset.range(100).shuffle(seed=1).to_iter_dataset().filter(lambda x: x % 3).batch(5)
    found = bushel.when(ds, key=50)
    (latest,) = found.latest
    with pytest.raises(PlanError, match="is not known"):
        list(found)
    assert "at the latest, if at all: epoch 0: step" in str(found)
    (seen,) = bushel.when(ds, key=50, replay=True)
    assert seen.step <= latest.step
    assert next(islice(ds, seen.step, None))[seen.row] == 50
    assert list(bushel.when(ds, key=51, replay=True)) == []


def test_what_is_endless_is_not_run_for_ever() -> None:
    ds = MapDataset.range(10).repeat().to_iter_dataset().filter(lambda x: x % 3)
    with pytest.raises(PlanError, match="say `steps=`"):
        bushel.when(ds, key=3, replay=True)
    assert list(bushel.when(ds, key=3, replay=True, steps=50)) == []
    assert len(list(bushel.when(ds, key=4, replay=True, steps=60))) == 10


def test_a_shuffle_after_an_endless_repeat_is_not_known() -> None:
    ds = MapDataset.range(10).repeat().shuffle(seed=1)
    assert "Put the shuffle first" in str(bushel.when(ds, key=3))


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"key": 10}, PlanError, "there is no key 10: range\\(0, 10, 1\\) has 10 records"),
        ({"key": -1}, PlanError, "there is no key -1"),
        ({"key": 1.5}, TypeError, "`key` is the number of a record in range.*and is 1.5"),
        ({"key": "a"}, TypeError, "and is 'a'"),
        ({"key": 1, "source": 1}, PlanError, "`source` is the number of one of 1 source"),
        ({"key": 1, "steps": -1}, PlanError, "cannot be -1"),
        ({"key": 1, "hosts": 2}, PlanError, "has no lanes"),
    ],
)
def test_what_cannot_be_asked(arguments: Any, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        bushel.when(MapDataset.range(10).batch(2), **arguments)


def test_of_several_sources_one_is_named() -> None:
    ds = MapDataset.mix([MapDataset.range(10), MapDataset.range(5)])
    with pytest.raises(PlanError, match=r"2 sources: say which .* 1 is range"):
        bushel.when(ds, key=3)
    assert len(list(bushel.when(ds, key=3, source=1))) == 1
