"""The ledger of bad records: what a task may enter unseen, and which of several steps enters it."""

import json
from pathlib import Path

import pytest

from bushel import MapDataset, MultiprocessingOptions
from bushel.on_error.bad_records import BadRecord
from bushel.on_error.budget import Ledger
from bushel.on_error.policy import GuardNode
from bushel.sources.memory import RangeNode
from tests.bad_parts import parse


def _bad(guard: int) -> BadRecord:
    return BadRecord(guard, 0, "map(f)", "ValueError", "why", None, {})


@pytest.mark.parametrize(
    ("counts", "guards", "has_room"),
    [
        ([0, 0], [0, 0, 1], True),
        ([0, 0], [0, 0, 0], False),
        ([2, 9], [1], True),
        ([2, 0], [0], False),
        # A state may have more than a budget that is smaller by now: no error without another one.
        ([7, 0], [1], True),
        ([7, 0], [], True),
    ],
)
def test_room_for_the_records_of_a_task(
    counts: list[int], guards: list[int], has_room: bool
) -> None:
    source = RangeNode(range(5))
    ledger = Ledger([_guard(source, 2), _guard(source, None)])
    ledger.restore(counts)
    assert ledger.has_room_for([_bad(guard) for guard in guards]) is has_room
    assert ledger.counts == counts


def _guard(source: RangeNode, budget: int | None) -> GuardNode:
    return GuardNode(
        source, skips=True, replacement=None, errors=(ValueError,), budget=budget, quarantine=None
    )


def test_workers_say_whose_records_are_bad(tmp_path: Path) -> None:
    def parse_again(number: int) -> int:
        return parse(number // 10 + 1)

    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    by_position = MapDataset.range(30).map(parse).on_error("skip", quarantine=first)
    stream = by_position.to_iter_dataset().map(parse_again).on_error("skip", quarantine=second)
    with iter(stream.mp_prefetch(MultiprocessingOptions(1))) as iterator:
        assert list(iterator) == [(n + 1) * 10 for n in range(30) if n % 7 not in (2, 3)]
    keys = [
        [json.loads(line)["key"] for line in path.read_text().splitlines()]
        for path in (first, second)
    ]
    assert keys == [[3, 10, 17, 24], [2, 9, 16, 23]]
