"""What every test is held to: nothing that it started may outlive it."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from _pytest.doctest import DoctestModule

from tests.failed import has_failed, note_failure
from tests.nursery import kept_nursery, one_nursery
from tests.patience import PATIENCE_SECONDS

__all__ = ["kept_nursery", "one_nursery"]

# The modules that were imported when all tests were found.
COLLECTED_WITH = pytest.StashKey[frozenset[str]]()
_A_MOMENT_SECONDS = 0.2
# So many modules bring objects enough for collections to take long: JAX, TensorFlow, torch.
_MANY_MODULES = 300
# So do modules, caches and what libraries keep: so many more of Python's blocks of memory make it
# some thousandths of a second, and hundreds of tests collect.
_MANY_BLOCKS = 50_000

# For the many processes that tests start: numpy's threads look for work, on cores that others
# want, for as long as it takes to import the rest of numpy. No test multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell that starts the tests in the background lets them ignore interrupts, which the programs
# that tests start would inherit; some of them are interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[Any], list[Any]]:
    """Leaves out a look for doctests in tests: there are none, and it takes seconds."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


class _Spared:
    """What collections of garbage pass over: the tests, and the modules that they import.

    Many tests collect garbage, and to look through all of that takes longer than most tests.
    """

    def __init__(self) -> None:
        self._modules = self._blocks = 0
        self._file: object = None

    def see_to_modules(self, file: object) -> None:
        """Spares what is there, if much was imported, or kept by the tests of another file."""
        is_other, self._file = file is not self._file, file
        if len(sys.modules) - self._modules > _MANY_MODULES or (
            # (To count the blocks takes a thousandth of a second.)
            is_other and sys.getallocatedblocks() - self._blocks > _MANY_BLOCKS
        ):
            gc.collect()  # What is spared is never collected.
            gc.freeze()
            self._modules, self._blocks = len(sys.modules), sys.getallocatedblocks()


_spared = _Spared()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects no garbage while tests are found: there is none, and to look takes a fifth of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spares all tests, of which there are thousands, and notes what it took to find them."""
    _spared.see_to_modules(session)
    session.config.stash[COLLECTED_WITH] = frozenset(sys.modules)


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
    _spared.see_to_modules(request.path)
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
