"""Which records a step is made of: for each pipeline of the contract, against what it hands out."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.provenance.records import Record
from bushel.provenance.where import ARITHMETIC, REPLAY, Where
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


def expected(records: list[Record], answer: Where, element: Any) -> list[int]:
    sources = answer.records.sources
    plain = isinstance(element, (dict, tuple))
    return [
        record.key
        if not isinstance(source := sources[record.source], RangeNode)
        else source.numbers[record.key]
        for record in records
        if not (plain and isinstance(sources[record.source], RangeNode))
    ]


def agree(name: str, records: list[Record], answer: Where, element: Any) -> None:
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


def facts(records: Iterable[Record]) -> list[Any]:
    return [(record.row, record.key, record.source_name, record.lane) for record in records]


def by_step(answer: Where) -> dict[Any, list[Record]]:
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
    with pytest.raises(bushel.errors.PlanError, match="no step"):
        bushel.where(ds, step=len(elements))
