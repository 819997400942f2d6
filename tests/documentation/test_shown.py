"""What pages show of programs has the form of what those print today."""

import os
from collections.abc import Iterator

import pytest

from tools import shown

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="this system has no files in memory to be found"
)


@pytest.fixture(scope="module")
def running() -> Iterator[shown.Training]:
    with shown.training(elements=20) as found:
        yield found


def test_top(running: shown.Training) -> None:
    assert shown.form(shown.printed(shown.LIVE, "top")) == shown.form(running.top())


def test_metrics(running: shown.Training) -> None:
    assert shown.form(shown.printed(shown.LIVE, "metrics")) == shown.form(running.metrics())


def test_stats() -> None:
    told = shown.statistics(elements=60)
    assert shown.form(shown.printed(shown.SLOW, "stats")) == shown.form(told)


def test_profile() -> None:
    told = shown.profile(seconds=1.0)
    assert shown.form(shown.printed(shown.SLOW, "profile")) == shown.form(told)


def test_commands_of_recordings() -> None:
    assert shown.form(shown.printed(shown.BATCH, "recorded")) == shown.form(shown.recorded())
