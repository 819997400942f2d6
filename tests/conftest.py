"""What every test is held to: nothing that it started may outlive it."""

import gc
import multiprocessing
import os
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from _pytest.doctest import DoctestModule

from tests.failed import has_failed, note_failure
from tests.nursery import kept_nursery, one_nursery
from tests.patience import PATIENCE_SECONDS

__all__ = ["kept_nursery", "one_nursery"]

_A_MOMENT_SECONDS = 0.2

# For the many processes that tests start: numpy's threads look for work, on cores that others
# want, for as long as it takes to import the rest of numpy. No test multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[Any], list[Any]]:
    """Leaves out a look for doctests in tests: there are none, and it takes seconds."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Takes note of tests that have failed, for the guards."""
    report = yield
    note_failure(item, report)
    return report


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a thread of bushel's, or a child process, behind.

    A thread that has been told to stop may still be at its last block, so it is joined. What
    nobody refers to any more is collected, which tells its threads. One that has not been told
    never ends.
    """
    before = set(threading.enumerate())
    yield
    if has_failed(request):
        return
    for thread in _started_since(before):
        thread.join(_A_MOMENT_SECONDS)
    if _started_since(before):
        gc.collect()
    for thread in _started_since(before):
        thread.join(PATIENCE_SECONDS)
    threads = _started_since(before)
    assert not threads, f"threads left behind: {[thread.name for thread in threads]}"
    children = multiprocessing.active_children()
    assert not children, f"processes left behind: {children}"


def _started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and thread.name.startswith("bushel")
    ]
