"""Whether each record is seen; against counting what comes."""

from collections import Counter

import pytest

import bushel
from bushel import IterDataset, MapDataset
from bushel.errors import PlanError
from bushel.provenance.where import ARITHMETIC, NOT_KNOWN, REPLAY
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.contract.subclasses import Pairs
from tests.provenance.test_where import NOT_TOLD

MADE_LATER = {"InterleaveIterDataset: made by a map"}


@pytest.mark.parametrize("name", [n for n in PIPELINES if n not in NOT_TOLD | MADE_LATER][::4])
def test_counts_are_those_of_the_steps(name: str) -> None:
    ds = stream_of(name, Kit())
    with iter(ds) as iterator:
        count = sum(1 for _ in iterator)
    answer = bushel.covers(ds, replay=True)
    if answer.counts is None:
        answer = bushel.covers(ds, replay=True, steps=count)
    assert answer.counts is not None
    seen = Counter((record.source, record.key) for record in bushel.where(ds, step=range(count)))
    for number, counts in enumerate(answer.counts):
        assert counts.tolist() == [seen[number, key] for key in range(len(counts))]


@pytest.mark.parametrize(
    ("ds", "words"),
    [
        (
            MapDataset.range(10).shuffle(seed=1).repeat().batch(3),
            "each of 10 records once an epoch",
        ),
        (MapDataset.range(10**9).shuffle(seed=1), "each of 1,000,000,000 records once an epoch"),
        (MapDataset.range(10).batch(3, drop_remainder=True), "once an epoch, but 1 is left out"),
        (
            MapDataset.range(10).repeat(2).batch(8, drop_remainder=True),
            "once an epoch, but for 4 at the end of the last one",
        ),
        (MapDataset.range(10).windows(2), "of 10 records 2 once, 8 more often"),
        (MapDataset.range(4).repeat(3, reseed_each_epoch=False), "each of 4 records 3 times"),
        (MapDataset.range(4).to_iter_dataset().shuffle(2, seed=1), "each of 4 records once"),
    ],
)
def test_sentences(ds: "MapDataset[int] | IterDataset[int]", words: str) -> None:
    assert words in str(bushel.covers(ds))
    assert words in bushel.covers(ds)._repr_html_()


def test_what_a_filter_leaves_is_counted_when_asked() -> None:
    ds = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 3)
    assert bushel.covers(ds).grade == NOT_KNOWN
    answer = bushel.covers(ds, replay=True)
    assert answer.grade == REPLAY
    assert answer.sentences == ("range(0, 10, 1): of 10 records 6 once, 4 never (keys 0, 3, 6, 9)",)
    assert answer.to_dict()["why"] is None


def test_what_cannot_be_known_or_counted() -> None:
    assert bushel.covers(Pairs(MapDataset.range(3).to_iter_dataset())).grade == NOT_KNOWN
    endless = MapDataset.range(10)[::2].repeat()
    with pytest.raises(PlanError, match="endless: say `steps=`"):
        bushel.covers(endless)
    assert "5 once, 5 never" in str(bushel.covers(endless, steps=5))
    with pytest.raises(PlanError, match="cannot be -1"):
        bushel.covers(endless, steps=-1)


def test_two_pipelines() -> None:
    ds = MapDataset.range(100).shuffle(seed=1)
    same = bushel.diff(ds.batch(8), ds.batch(2).map(lambda x: x))
    assert same.same_records and same.compared == 100
    assert "step k became steps 4k to 4k + 3" in str(same)
    assert "the steps are the same" in str(bushel.diff(ds, ds))
    other = bushel.diff(ds.batch(5), MapDataset.concatenate([ds[:50], ds[51:]]).batch(5))
    assert (other.same_records, other.first_steps, other.grade) == (False, (10, 10), ARITHMETIC)
    shorter = bushel.diff(ds, ds[:40])
    assert (shorter.same_records, shorter.first_steps) == (False, (40, 40))
    assert "records differ, from step 40 on" in shorter._repr_html_()


def test_two_pipelines_after_a_filter() -> None:
    ds = MapDataset.range(3000).to_iter_dataset().filter(lambda x: x % 2)
    same = bushel.diff(ds.batch(2), ds.batch(4))
    assert same.same_records and same.grade == REPLAY and same.compared == 1500
    unknown = bushel.diff(Pairs(ds), ds)
    assert unknown.same_records is None and "not known" in str(unknown)
    with pytest.raises(PlanError, match="0 of them tell nothing"):
        bushel.diff(ds, ds, records=0)


def test_texts_about_very_many_sources_are_read_by_people() -> None:
    parts = [MapDataset.range(9).shuffle(seed=number) for number in range(100)]
    covered = bushel.covers(MapDataset.mix(parts))
    assert len(covered.sentences) == 100 and str(covered).endswith("… and 60 sources more")
    assert len(covered.to_dict()["sources"]) == 100
    told = bushel.diff(MapDataset.mix(parts[:30]), MapDataset.mix(parts))
    assert " and 120 more are new, after step" in str(told) and len(str(told)) < 3000
    with pytest.raises(PlanError, match=r"100 sources: say which .* 19 is .*; 80 more follow"):
        bushel.when(MapDataset.mix(parts), key=3)
