"""The ledger of bad records: whether those of a task may be entered without a look at each."""

import pytest

from bushel.on_error.bad_records import BadRecord
from bushel.on_error.budget import Ledger
from bushel.on_error.policy import GuardNode
from bushel.sources.memory import RangeNode


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
