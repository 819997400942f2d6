"""Which records a step is made of: for each pipeline of the contract, against what it hands out."""

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset, ShardOptions
from bushel.errors import PlanError
from bushel.provenance.records import StepRecord
from bushel.provenance.where import ARITHMETIC, NOT_KNOWN, REPLAY, Where
from bushel.sources.memory import RangeNode
from tests.contract.pipelines import PIPELINES, Kit, stream_of

# Streams of a user's own: nobody knows what they read.
NOT_TOLD = {
    "IterDataset: subclass",
    "IterDataset: subclass in the middle",
}
# A random-access dataset of a user's own: its positions are known, not what it reads for them.
ITS_OWN_KEYS = {"MapDataset: subclass"}
# Rows of several sequences, of which some cells are of none.
PADDED = ("Pack", ".pack", "ConcatThenSplit", "_by_tokens", "bucket_by", "packed")


def ids_in(element: Any) -> list[int]:
    """The ids that are in an element, in order."""
    found: list[int] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "id" in value:
                found.extend(np.ravel(value["id"]).tolist())
        elif isinstance(value, tuple):
            for part in value:
                look(part)

    look(element)
    if found or isinstance(element, (dict, tuple)):
        return found
    return [int(number) for number in np.ravel(element)]


def expected(records: list[StepRecord], answer: Where, element: Any) -> list[int]:
    sources = answer.records.sources
    plain = isinstance(element, (dict, tuple))
    return [
        record.key
        if not isinstance(source := sources[record.source], RangeNode)
        else source.numbers[record.key]
        for record in records
        if not (plain and isinstance(sources[record.source], RangeNode))
    ]


def agree(name: str, records: list[StepRecord], answer: Where, element: Any) -> None:
    if element is None:
        return
    if "Zip" in name:  # One element of each after the other.
        records = sorted(records, key=lambda record: record.source)
    ids, keys = ids_in(element), expected(records, answer, element)
    if any(word in name for word in PADDED):
        assert {number for number in ids if number > 0} <= set(keys), (ids, keys)
        # Of some, only their other feature is in the row; or a token that was replaced.
        rest = {key for key in keys if key} - set(ids)
        if -1 not in ids:
            pairs = [float(x) for some in element.get("pair", ()) for x in np.ravel(some)]
            assert all(key in pairs or key / 2 in pairs for key in rest), (ids, keys)
        elif "id_segment_ids" in element:
            assert element["id_segment_ids"].max() == len(keys)
        return
    assert len(ids) == len(keys), (ids, keys)
    for number, key in zip(ids, keys, strict=True):
        # (Doubled once or twice on the way; and what stands in for one that fails is -1.)
        assert number in (key, 2 * key, 4 * key, -1), (ids, keys)


def facts(records: Iterable[StepRecord]) -> list[Any]:
    return [(record.row, record.key, record.source_name, record.lane) for record in records]


def by_step(answer: Where) -> dict[Any, list[StepRecord]]:
    found = defaultdict(list)
    for record in answer:
        found[record.step].append(record)
    return found


@pytest.mark.parametrize("name", [name for name in PIPELINES if name not in NOT_TOLD])
def test_where_is_what_comes(name: str) -> None:
    ds = stream_of(name, Kit("columns" if len(name) % 2 else "rows"))
    elements, states, last = [], [], []
    with iter(ds) as iterator:
        while True:
            states.append(iterator.get_state())
            try:
                elements.append(next(iterator))
            except StopIteration:
                break
            last.append(bushel.where(iterator) if len(last) % 5 < 2 else None)
    if name in ITS_OWN_KEYS:
        assert "a dataset of your own" in str(bushel.where(ds, step=0))
        return
    answer = bushel.where(ds, step=range(len(elements)))
    assert answer.grade in (ARITHMETIC, REPLAY)
    found = by_step(answer)
    for step, element in enumerate(elements):
        agree(name, found[step], answer, element)
        if step in (0, len(elements) // 2, len(elements) - 1):
            one = bushel.where(ds, state=states[step])
            assert facts(one) == facts(found[step])
        if last[step] is not None:
            assert facts(last[step]) == facts(found[step])
    ran = bushel.where(ds, step=range(len(elements)), replay=True)
    assert ran.grade == REPLAY
    assert facts(ran) == facts(answer)
    with pytest.raises(PlanError, match="no step"):
        bushel.where(ds, step=len(elements))


@pytest.mark.parametrize("name", sorted(NOT_TOLD))
def test_a_stream_of_ones_own_is_not_known(name: str) -> None:
    answer = bushel.where(stream_of(name, Kit()), step=0)
    assert answer.grade == NOT_KNOWN and not len(answer)
    assert "an iterator of your own" in str(answer) and "own" in answer._repr_html_()
    assert answer.to_dict()["records"] == []


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"step": 5}, PlanError, "there is no step 5: the dataset has 5 steps"),
        ({"step": [0, 7]}, PlanError, "no step 7"),
        ({"step": -1}, PlanError, "counted from 0, and cannot be -1"),
        ({"step": 1.0}, TypeError, "the number of a step, counted from 0, and is 1.0"),
        ({}, TypeError, "wants to know which step"),
        ({"step": 0, "hosts": 2}, PlanError, "has no lanes"),
        ({"step": 0, "state": {"next_index": 99}}, IndexError, "99"),
        ({"step": 1, "state": {"next_index": 3}, "state_step": 3}, PlanError, "no way back"),
    ],
)
def test_what_cannot_be_asked(arguments: Any, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        bushel.where(MapDataset.range(10).batch(2), **arguments)


def test_what_is_no_dataset() -> None:
    with pytest.raises(TypeError, match="takes a dataset, a DataLoader, or an iterator"):
        bushel.where([1, 2], step=0)
    with pytest.raises(PlanError, match="has not delivered a step yet"):
        bushel.where(iter(MapDataset.range(3)))


def test_a_step_of_an_endless_dataset_far_away() -> None:
    ds = MapDataset.range(1000).shuffle(seed=1).repeat().batch(8)
    answer = bushel.where(ds, step=10**12)
    assert answer.keys.tolist() == ds[10**12].tolist()
    with pytest.raises(PlanError, match="has no end"):
        bushel.where(ds, step=slice(10, None))
    assert bushel.where(ds, step=slice(10, 12)).keys.tolist() == [*ds[10], *ds[11]]


def test_files_records_and_bytes(tmp_path: Path) -> None:
    for part in range(3):
        lines = (f'{{"id": {part * 10 + number}}}\n' for number in range(10))
        (tmp_path / f"{part}.jsonl").write_text("".join(lines))
    source = bushel.open(f"{tmp_path}/*.jsonl")
    ds = MapDataset.source(source).shuffle(seed=3).batch(4)
    for record, number in zip(bushel.where(ds, step=2), ds[2]["id"].tolist(), strict=True):
        assert record.file is not None and record.key == number
        stored = Path(record.file).read_bytes()[record.start : record.stop]
        assert json.loads(stored) == {"id": number}
        assert record.record == number % 10


def test_lanes_say_who_has_what() -> None:
    def keep(x: int) -> bool:
        return x % 3 != 0

    plain = MapDataset.range(64).lanes(4, shard_options=ShardOptions(1, 2)).batch(8)
    for ds in (plain, MapDataset.range(64).repeat().lanes(4).filter(keep).batch(8)):
        answer = bushel.where(ds, step=1, hosts=2)
        assert [record.lane for record in answer] == [0, 0, 1, 1, 2, 2, 3, 3]
        assert [record.host for record in answer] == [0, 0, 0, 0, 1, 1, 1, 1]
        assert all(record.key % 4 == record.lane for record in answer)
    mine = bushel.where(plain, step=1)
    assert {record.host for record in mine} == {1}
    assert mine.keys.tolist() == next(islice(plain, 1, None)).tolist()
    with pytest.raises(PlanError, match="cannot be owned by 3 hosts"):
        bushel.where(plain, step=0, hosts=3)


def test_html_takes_nothing_for_markup() -> None:
    class Source(list[int]):
        def place_of(self, key: int) -> tuple[str, int, int]:
            return "<script>alert(1)</script>", key, 0

    page = bushel.where(MapDataset.source(Source([1, 2])), step=0)._repr_html_()
    assert "&lt;script&gt;" in page and "<script" not in page


def test_what_nobody_looks_at_is_not_run() -> None:
    def refuse(element: Any) -> Any:
        raise AssertionError("it was called")

    parts = [MapDataset.range(9).map(refuse), MapDataset.range(9, 20).map(refuse)]
    mixed = bushel.IterDataset.mix([part.to_iter_dataset() for part in parts])
    answer = bushel.where(mixed.shuffle(4, seed=1).map(refuse).batch(3), step=1)
    assert answer.grade == REPLAY and answer.notes == ("no data was read for it",)


def test_a_function_that_returns_none_is_seen_by_a_replay() -> None:
    ds = MapDataset.range(10).map(lambda x: x if x % 2 else None)
    assert bushel.where(ds, step=1).notes
    assert bushel.where(ds, step=1, replay=True).keys.tolist() == [3]
