"""Grain's debug mode: steps are counted, and statistics are told in the log."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import bushel
from bushel import MapDataset, ReadOptions
from bushel.watch import debug
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import make_loader, with_workers

__all__ = ["no_endless_wait", "no_process_left_behind"]

_TITLE = "what an iterator has done so far"
_SHOWN = "py_dataset_visualization_output_dir"


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    bushel.config.update("py_debug_mode", True)
    caplog.set_level(logging.INFO, "bushel")
    yield caplog
    bushel.config.update("py_debug_mode", False)
    bushel.config.update(_SHOWN, None)


def _dataset() -> Any:
    return MapDataset.range(12).map(abs).to_iter_dataset(ReadOptions(0, 0))


def test_at_the_end_and_once(told: pytest.LogCaptureFixture) -> None:
    assert "has no effect" not in told.text
    iterator = iter(_dataset())
    assert list(iterator) == list(range(12))
    assert told.text.count(_TITLE) == 1
    assert "map(abs)" in told.text
    assert "12 elements in" in told.text
    iterator.close()
    iterator.close()
    assert list(iter(MapDataset.range(0))) == []
    assert told.text.count(_TITLE) == 1


def test_when_it_is_closed(told: pytest.LogCaptureFixture) -> None:
    with iter(with_workers(MapDataset.range(400).map(abs).batch(4), 1)) as iterator:
        next(iterator)
    assert told.text.count(_TITLE) == 1
    assert "1 worker, busy" in told.text


def test_every_minute(told: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    now = 1000.0
    monkeypatch.setattr(debug, "perf_counter", lambda: now)
    iterator = iter(MapDataset.range(10**9).map(abs).to_iter_dataset(ReadOptions(0, 0)))
    counts = []
    for minutes in (0.0, 0.9, 1.1, 1.9, 2.0, 2.2):
        now = 1000.0 + 60 * minutes
        refills = iterator._waits.refills  # type: ignore[attr-defined]
        while iterator._waits.refills < refills + 2:  # type: ignore[attr-defined]
            next(iterator)
        counts.append(told.text.count(_TITLE))
    assert counts == [0, 0, 1, 1, 1, 2]
    iterator.close()
    assert told.text.count(_TITLE) == 3


def test_a_loader(told: pytest.LogCaptureFixture) -> None:
    assert len(list(make_loader(bushel.transforms.Batch(10), workers=0))) == 6
    assert told.text.count(_TITLE) == 1


def test_where_information_is_not_seen(told: pytest.LogCaptureFixture) -> None:
    told.set_level(logging.WARNING, "bushel")
    assert list(_dataset()) == list(range(12))
    assert [record.levelname for record in told.records] == ["WARNING"]


def test_with_the_other_setting(told: pytest.LogCaptureFixture) -> None:
    bushel.config.update(_SHOWN, "")
    iterator = iter(_dataset())
    next(iterator)
    assert told.text.count("after its first element") == 1
    assert type(iterator) is debug.LoggingIterator
    assert iterator.stats().steps is not None
    assert list(iterator) == list(range(1, 12))
    assert told.text.count(_TITLE) == 1


def test_pipelines_that_are_shown_keep_their_statistics() -> None:
    bushel.config.update("py_debug_mode", False)
    bushel.config.update(_SHOWN, "")
    with bushel.iterate(_dataset()) as iterator:
        before = iterator.stats()
        next(iterator)
        after = iterator.stats()
    assert before.steps is not None and after.steps is not None
    assert {step.name for step in after.steps} >= {"map(abs)", "range(0, 12, 1)"}
