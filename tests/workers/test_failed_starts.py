"""Workers that end before they begin: when that is bad luck, and when to give up."""

from types import SimpleNamespace
from typing import Any

from bushel.workers.failed_starts import (
    _KILLED_SECONDS,
    _MOST_FAILED,
    _MOST_KILLED,
    FailedStarts,
)


def _worker(index: int) -> Any:
    """What is asked of a worker process that ended by itself."""
    return SimpleNamespace(
        index=index,
        process=None,
        hung=False,
        refused=None,
        was_killed=lambda: False,
        exit=lambda: "ended with code 1",
    )


def test_so_many_in_a_row_in_one_place_are_enough() -> None:
    failed = FailedStarts()
    for _ in range(_MOST_FAILED - 1):
        assert failed.count(_worker(0)) is None
    error = failed.count(_worker(0))
    assert error is not None and "ended with code 1" in str(error)


def test_workers_that_begin_elsewhere_give_hope() -> None:
    failed = FailedStarts()
    for _ in range(_MOST_FAILED - 1):
        assert failed.count(_worker(0)) is None
    failed.begun(_worker(1))
    assert failed.count(_worker(0)) is None


def _killed(index: int) -> Any:
    return SimpleNamespace(**vars(_worker(index)) | {"was_killed": lambda: True})


def test_whoever_kills_may_stop() -> None:
    """So many in a row are too many, but not within seconds: a busy machine starts slowly."""
    now = 0.0
    failed = FailedStarts(lambda: now)
    for _ in range(4 * _MOST_KILLED):
        assert failed.count(_killed(0)) is None
        now += 0.9 * _KILLED_SECONDS / (4 * _MOST_KILLED)
    now = _KILLED_SECONDS
    assert failed.count(_killed(0)) is not None


def test_as_long_as_the_work_gets_on_starts_may_be_killed() -> None:
    now = 0.0
    failed = FailedStarts(lambda: now)
    for _ in range(20):
        for _ in range(_MOST_KILLED - 1):
            assert failed.count(_killed(0)) is None
            now += _KILLED_SECONDS
        failed.work_got_on()
    # Not so for one that ends by itself, which will do so again.
    assert failed.count(_worker(0)) is not None
    for _ in range(_MOST_KILLED - 2):
        assert failed.count(_killed(0)) is None
    now += _KILLED_SECONDS
    assert failed.count(_killed(0)) is not None
