"""Time in the queue for a core is told apart from waiting, on a real machine that is busy."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from bushel.run import spent
from bushel.run.spent import Nothing, SchedulerNotes, Spent, Stopwatch, VoluntarySwitches

SPIN = "while True: pass"


def _burn(cpu_seconds: float) -> None:
    end = time.thread_time() + cpu_seconds
    while time.thread_time() < end:
        pass


@pytest.fixture
def crowded() -> Iterator[None]:
    """One core for this thread and three other programs."""
    before = os.sched_getaffinity(0)
    core = min(before)
    os.sched_setaffinity(0, {core})
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(3)]
    try:
        for other in others:
            os.sched_setaffinity(other.pid, {core})
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
        os.sched_setaffinity(0, before)


def test_the_queue_is_not_waiting(crowded: None) -> None:
    began = time.perf_counter()
    stopwatch = Stopwatch()
    _burn(0.3)
    taken = stopwatch.read()
    wall = time.perf_counter() - began
    # Others had the core for some of the time, which is in neither figure.
    assert wall > 1.2 * taken.cpu_seconds
    assert taken.seconds - taken.cpu_seconds < 0.5 * (wall - taken.cpu_seconds)


def test_waiting_is_waiting(crowded: None) -> None:
    ready = threading.Event()
    stopwatch = Stopwatch()
    assert not ready.wait(0.2)
    taken = stopwatch.read()
    assert taken.seconds - taken.cpu_seconds > 0.1


def test_another_thread_is_not_asked() -> None:
    stopwatch = Stopwatch()
    seen: list[Spent] = []
    thread = threading.Thread(target=lambda: seen.append(stopwatch.read()))
    thread.start()
    thread.join()
    assert seen[0].seconds == seen[0].cpu_seconds > 0


def test_where_the_system_counts_switches_only() -> None:
    switches = VoluntarySwitches()
    assert switches.read() is not None
    # It never gave its core away in two seconds, of which it had one: the other was the queue's.
    assert switches.queued(7, 7, 2.0, 1.0) == 1.0
    assert switches.queued(7, 9, 2.0, 1.0) == 0.0


def test_where_the_system_tells_nothing() -> None:
    assert Nothing().read() is None
    assert Nothing().queued(None, None, 2.0, 1.0) == 0.0


def test_notes_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spent, "_SCHEDULER_NOTES", "/proc/no/such/file")
    assert SchedulerNotes().read() is None
    assert SchedulerNotes().queued(None, 3.0, 2.0, 1.0) == 0.0
    spent._system.cache_clear()
    try:
        assert isinstance(spent._system(), VoluntarySwitches)
    finally:
        spent._system.cache_clear()


def test_a_kernel_that_keeps_no_notes_says_zero(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    path = os.path.join(tmp_path, "schedstat")
    for text in ("0 0 0\n", "nonsense", ""):
        with open(path, "w") as file:
            file.write(text)
        monkeypatch.setattr(spent, "_SCHEDULER_NOTES", path)
        assert SchedulerNotes().read() is None
