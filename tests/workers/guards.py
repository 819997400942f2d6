"""What tests with worker processes are held to: none outlives its test, and none hangs it."""

import gc
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.failed import has_failed
from tests.nursery import kept_pids
from tests.patience import PATIENCE_SECONDS
from tests.thorough import THOROUGH
from tests.workers.processes import descendants, wait_until

# A test that waits for a worker which never answers is to fail, and the others to go on.
_LIMIT_SECONDS = 6 * PATIENCE_SECONDS if THOROUGH else PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test after which a process is left, be it only one that nobody waited for."""
    if not Path("/proc/self/stat").exists():
        yield
        return
    before = descendants()
    yield
    if has_failed(request):
        return
    if _left(before):
        gc.collect()
    wait_until(lambda: not _left(before))
    left = _left(before)
    assert not left, f"processes left behind: {left}"


def _left(before: set[int]) -> set[int]:
    return descendants() - before - kept_pids()


@pytest.fixture(autouse=True)
def no_endless_wait() -> Iterator[None]:
    """Fails a test that takes far too long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(number: int, frame: FrameType | None) -> None:
        # No Exception, which the test might take for one of the pipeline's.
        pytest.fail(f"this test takes longer than {_LIMIT_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_SECONDS, _LIMIT_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
