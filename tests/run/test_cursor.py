"""A cursor takes any number of elements, and what it puts back comes again."""

import random
from typing import Any

import pytest

from bushel.core.cursor import Cursor, Taken
from bushel.dataset import stream_node
from bushel.run.build import build_stream
from tests.contract.events import Event, freeze, freeze_error, freeze_state, run_events
from tests.contract.parts import is_not_third
from tests.contract.pipelines import Kit

KITS = {"whole": Kit(), "columns": Kit("columns"), "broken": Kit("rows", (0, 4, 5, 9, 39))}


def _take(cursor: Cursor, count: int) -> tuple[Any, list[Event]]:
    """Takes elements, and tells what they are and the state after each."""
    taken = cursor.take(count)
    return taken, _events_of(taken)


def _events_of(taken: Taken) -> list[Event]:
    events = [
        (freeze(row), freeze_state(taken.at(used)))
        for used, row in enumerate(taken.block.rows(), start=1)
    ]
    if taken.failure is not None:
        assert taken.failure.error is not None
        state = freeze_state(taken.at(len(events) + 1))
        events.append((freeze_error(taken.failure.error), state))
    return events


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
def test_what_is_put_back_comes_again(kit: Kit, seed: int) -> None:
    ds = kit.stream(40).filter(is_not_third)
    expected = run_events(ds)
    chance = random.Random(seed)
    cursor = Cursor(build_stream(stream_node(ds)))
    states = [freeze_state(cursor.state()), *(state for _, state in expected)]
    at = 0
    while True:
        taken, events = _take(cursor, chance.choice([1, 2, 3, 7, 30]))
        if not events:
            break
        assert events == expected[at : at + len(events)]
        assert freeze_state(cursor.state()) == states[at + len(events)]
        if chance.random() < 0.6:
            kept = chance.randint(0, len(taken.block))
            cursor.put_back(taken, kept)
            at += kept
        else:
            at += len(events)
        assert freeze_state(cursor.state()) == states[at]
    assert at == len(expected)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
def test_what_is_cut_is_what_would_be_taken(kit: Kit, seed: int) -> None:
    ds = kit.stream(40).filter(is_not_third)
    expected = run_events(ds)
    chance = random.Random(seed)
    cursor = Cursor(build_stream(stream_node(ds)))
    at = cuts = 0
    while True:
        count = chance.choice([1, 2, 3, 7])
        block = cursor.cut(count)
        if block is not None:
            assert len(block) == count and block.failure is None
            rows = [freeze(row) for row in block.rows()]
            cuts += 1
        else:
            # Now and then with more than is needed, of which something is left to cut.
            rows = [row for row, _ in _events_of(cursor.take(count, ahead=20))]
            if not rows:
                break
        assert rows == [row for row, _ in expected[at : at + len(rows)]]
        at += len(rows)
        assert freeze_state(cursor.state()) == expected[at - 1][1]
    assert at == len(expected)
    assert cuts


def test_a_restore_forgets_what_was_put_back() -> None:
    cursor = Cursor(build_stream(stream_node(Kit().stream(40))))
    start = cursor.state()
    for _ in range(3):
        taken, _ = _take(cursor, 10)
        cursor.put_back(taken, 5)
    cursor.restore(start)
    _, events = _take(cursor, 40)
    assert events == run_events(Kit().stream(40))
