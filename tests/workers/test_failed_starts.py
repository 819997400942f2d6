"""Workers that end before they begin: when that is bad luck, and when to give up."""

from types import SimpleNamespace
from typing import Any

from bushel.workers.failed_starts import _MOST_FAILED, FailedStarts


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
