"""Errors of functions name the file and the record that they are about, where there is one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel.errors import notes_of
from tests.deliver.failing import fails_on_seven, kept

Stream = Callable[[bushel.MapDataset[Any]], Any]


@pytest.fixture
def records(tmp_path: Path) -> bushel.MapDataset[Any]:
    for part in range(2):
        lines = (json.dumps({"id": 5 * part + number}) for number in range(5))
        (tmp_path / f"{part}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return bushel.MapDataset.source(bushel.open(f"{tmp_path}/*.jsonl"))


def notes(dataset: Any) -> list[str]:
    iterator = iter(dataset)
    with pytest.raises(ValueError, match="seven") as raised:
        for _ in iterator:
            pass
    iterator.close()
    return notes_of(raised.value)


NAMED: dict[str, Stream] = {
    "map": lambda ds: ds.map(fails_on_seven),
    "shuffled": lambda ds: ds.shuffle(seed=3).repeat().map(fails_on_seven),
    "of a stream": lambda ds: ds.shuffle(seed=3).to_iter_dataset().map(dict).map(fails_on_seven),
    "before a filter": lambda ds: (
        ds.shuffle(seed=3).map(fails_on_seven).to_iter_dataset().filter(kept).batch(2)
    ),
    "batched": lambda ds: ds.shuffle(seed=1).map(fails_on_seven).batch(3),
    "one of two of a name": lambda ds: ds.map(fails_on_seven).map(fails_on_seven),
    "mixed": lambda ds: bushel.MapDataset.mix([ds.map(dict), ds.shuffle(seed=1)]).map(
        fails_on_seven
    ),
    "in a worker": lambda ds: (
        ds.shuffle(seed=3)
        .map(fails_on_seven)
        .to_iter_dataset()
        .mp_prefetch(bushel.MultiprocessingOptions(num_workers=1))
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_record_is_named(name: str, records: bushel.MapDataset[Any], tmp_path: Path) -> None:
    told = notes(NAMED[name](records))
    assert any(note.startswith("bushel: raised in `map(fails_on_seven)`") for note in told)
    place = f"bushel: it is record 2 of {str(tmp_path / '1.jsonl')!r}, at byte 20."
    assert told.count(place) == 1, told


@pytest.mark.parametrize("name", ["map", "shuffled", "batched", "one of two of a name", "mixed"])
def test_by_position_it_is_named_as_well(name: str, records: bushel.MapDataset[Any]) -> None:
    """By `ds[i]`, the same notes as where the element comes in its turn."""
    dataset = NAMED[name](records)
    position, told = 0, None
    with iter(dataset) as in_turn:
        while told is None:
            try:
                next(in_turn)
                position += 1
            except ValueError as error:
                told = notes_of(error)
    with pytest.raises(ValueError, match="seven") as raised:
        dataset[position]
    assert notes_of(raised.value) == told
    assert sum("it is record 2 of" in note for note in told) == 1


NOT_NAMED: dict[str, Stream] = {
    # Elements are counted anew after what may leave some out, and made of several records here.
    "after a filter": lambda ds: ds.to_iter_dataset().filter(kept).map(fails_on_seven),
    "batches": lambda ds: ds.batch(4).map(lambda batch: [fails_on_seven({"id": 7})]),
    "in memory": lambda ds: bushel.MapDataset.source([{"id": 7}]).map(fails_on_seven),
}


@pytest.mark.parametrize("name", NOT_NAMED)
def test_what_is_not_known_is_not_told(name: str, records: bushel.MapDataset[Any]) -> None:
    told = notes(NOT_NAMED[name](records))
    assert not any("it is record" in note for note in told), told


def test_a_file_that_is_gone_is_not_named(
    records: bushel.MapDataset[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = records.map(fails_on_seven)

    def gone(*_: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(type(dataset.parents[0]._node.source), "places_of", gone)
    assert not any("it is record" in note for note in notes(dataset))
