"""Counting and timing never shows: the same elements, errors and states with it and without."""

import json

import pytest

import bushel
from bushel import ReadOptions
from tests.contract.events import events_of, is_error, run_events
from tests.contract.pipelines import PIPELINES, Kit, by_turns, stream_of

HOW = {"inline, broken": Kit(broken=(4, 5, 9)), "threads": Kit(read=ReadOptions(2, 4))}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_same_with_statistics(name: str) -> None:
    for how, kit in by_turns(name, HOW.items()):
        ds = stream_of(name, kit)
        expected = run_events(ds)
        with bushel.iterate(ds) as iterator:
            assert events_of(iterator) == expected, how
            stats = iterator.stats()
        assert stats.elements == sum(not is_error(event) for event in expected), how
        assert stats.steps is not None and all(step.seconds >= 0 for step in stats.steps)
        assert "Your loop waited" in str(stats)
        json.dumps(stats.to_dict())
