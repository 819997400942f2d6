"""Time in the queue for a core is told apart from waiting, on a real machine that is busy."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from bushel.run import thread_time
from bushel.run.thread_time import Nothing, SchedulerNotes, Spent, Stopwatch, VoluntarySwitches

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
    monkeypatch.setattr(thread_time, "_SCHEDULER_NOTES", "/proc/no/such/file")
    assert SchedulerNotes().read() is None
    assert SchedulerNotes().queued(None, 3.0, 2.0, 1.0) == 0.0
    thread_time._system.cache_clear()
    try:
        assert isinstance(thread_time._system(), VoluntarySwitches)
    finally:
        thread_time._system.cache_clear()


def test_a_kernel_that_keeps_no_notes_says_zero(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    path = os.path.join(tmp_path, "schedstat")
    for text in ("0 0 0\n", "nonsense", ""):
        with open(path, "w") as file:
            file.write(text)
        monkeypatch.setattr(thread_time, "_SCHEDULER_NOTES", path)
        assert SchedulerNotes().read() is None


def test_a_thread_that_has_just_begun_is_told_of_its_queue() -> None:
    """Time on a core is noted by and by: at first it is 0 everywhere."""
    seen: list[float | None] = []
    threads = [threading.Thread(target=lambda: seen.append(SchedulerNotes().read())) for _ in "123"]
    for thread in threads:
        thread.start()
        thread.join()
    assert len(seen) == 3 and None not in seen


def _open_notes() -> list[str]:
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(link for link in links if link.endswith("/schedstat"))


def test_the_notes_are_open_as_long_as_their_thread_lives() -> None:
    before = _open_notes()
    notes = SchedulerNotes()
    during: list[list[str]] = []

    def read() -> None:
        for _ in range(3):
            notes.read()
        during.append(_open_notes())

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(during[0]) == len(before) + 1
    assert _open_notes() == before


FORK = """
import os
from bushel.run.thread_time import SchedulerNotes
notes = SchedulerNotes()
notes.read()
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    notes.read()
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3, 99)
             if os.path.exists(f"/proc/self/fd/{fd}")]
    print([link.split("/")[2] == str(os.getpid()) for link in links if "schedstat" in link])
"""


def test_a_forked_process_reads_its_own_notes() -> None:
    answer = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True)
    assert answer.stdout == b"[True]\n"


def test_one_piece_of_work_that_stood_in_the_queue_does_not_stand_for_all() -> None:
    """Of a hundred pieces one met the turn of another program, which took as long as forty."""
    whole = Spent(0.012, 0.012, queued_seconds=0.004)
    taken = Spent(1e-4, 1e-4, queued_seconds=0.004).standing_for(100, whole)
    assert taken == pytest.approx((0.01, 0.01, 0.004 * 10 / 12))


def test_one_piece_of_work_stands_for_no_more_than_the_whole() -> None:
    """It was slower than the others: a first one, say."""
    whole = Spent(0.012, 0.010, queued_seconds=0.004)
    taken = Spent(1e-3, 1e-3).standing_for(100, whole)
    assert taken == pytest.approx((0.012, 0.012, 0.004))
