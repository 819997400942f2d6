"""Workers are forked from a process that has nothing of anybody's, and can be missed."""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset
from bushel.workers import launch
from bushel.workers.start import Started
from tests.thorough import usually
from tests.workers import parts
from tests.workers.processes import (
    assert_gone,
    descendants,
    is_alive,
    linux,
    nurseries,
    running,
    take_until,
    told,
    wait_until,
    worker_pids,
    workers_of,
)
from tests.workers.streams import pids_without_end, with_workers

pytestmark = linux


def _the_nursery() -> int:
    (nursery,) = nurseries()
    return nursery


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
    assert_gone({pid})


def _take_until_replaced(iterator: Any, victim: int, count: int) -> set[int]:
    """Takes elements until there are as many workers as there were; returns their pids."""
    seen: set[int] = set()
    take_until(iterator, lambda pid: seen.add(pid) or len(seen - {victim}) == count)  # type: ignore[func-returns-value]
    return seen - {victim}


# What a worker has.


def _files(pid: int) -> list[tuple[str, int]]:
    """The open files of a process beside the three that all of them have: kind and inode."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        if int(path.name) > 2:
            found.append((os.readlink(path).partition(":")[0], path.stat().st_ino))
    return sorted(found)


def _kinds(pid: int) -> list[str]:
    return [kind for kind, _ in _files(pid)]


def test_nobody_holds_what_belongs_to_another() -> None:
    with iter(pids_without_end(4)) as iterator:
        pids = worker_pids(iterator, 4)
        victim = min(pids)
        _kill(victim)
        # One that was forked when there were others.
        pids = _take_until_replaced(iterator, victim, 4)
        nursery = _the_nursery()
        # It watches over its children, hears what the trainer says, and ends with it.
        assert wait_until(lambda: _kinds(nursery) == ["anon_inode"] * 4 + ["pipe", "socket"])
        for pid in pids:
            kinds = _kinds(pid)
            assert [kinds.count(kind) for kind in ("socket", "pipe", "anon_inode")] == [1, 1, 0]
        files = [file for pid in pids for file in _files(pid)]
        assert len(files) == len(set(files))


def test_a_worker_computes_with_all_threads() -> None:
    """Those of linear algebra are started when numpy is imported, and do not survive a fork."""

    def multiply(number: int) -> Any:
        matrix = np.full((700, 700), float(number))
        return float((matrix @ matrix)[0, 0]), float(np.linalg.norm(matrix))

    with iter(with_workers(MapDataset.range(6).map(multiply), 2)) as iterator:
        for number, (product, norm) in enumerate(iterator):
            assert product == number**2 * 700.0
            assert norm == pytest.approx(number * 700.0)


def test_workers_draw_different_numbers(tmp_path: Path) -> None:
    """Though the nursery may have imported who draws them."""
    (tmp_path / "sitecustomize.py").write_text("import random, numpy.random\n")
    text = """
        os.environ["PYTHONPATH"] = os.getcwd() + os.pathsep + os.environ["PYTHONPATH"]

        def draw(number):
            import random
            return os.getpid(), np.random.random(), random.random()

        ds = MapDataset.range(10**9).map(draw).to_iter_dataset().mp_prefetch(workers(3))
        first = {}
        for pid, *drawn in ds:
            first.setdefault(pid, drawn)
            if len(first) == 3:
                break
        tell(first=list(first.values()))
    """
    first = told(tmp_path, text)["first"]
    for drawn in zip(*first, strict=True):
        assert len(set(drawn)) == 3


def test_one_that_comes_later_stands_where_the_others_stand(tmp_path: Path) -> None:
    text = """
        os.environ["STAGE"] = "first"
        ds = MapDataset.range(10**9).map(lambda _: (os.getpid(), os.getcwd(), os.environ["STAGE"]))
        iterator = iter(ds.to_iter_dataset().mp_prefetch(workers(1)))
        before = next(iterator)
        os.chdir("/")
        os.environ["STAGE"] = "second"
        os.kill(before[0], signal.SIGKILL)
        while (after := next(iterator))[0] == before[0]:
            pass
        tell(before=before[1:], after=after[1:])
    """
    with running(tmp_path, text) as program:
        answer = program.hear()
        assert program.wait_for_exit() == 0
    assert answer["before"] == answer["after"] == [str(tmp_path), "first"]


# How many there are.


def test_many_workers() -> None:
    with iter(pids_without_end(24)) as iterator:
        iterator.start_prefetch()
        assert wait_until(lambda: len(workers_of()) == 24)
        pids = workers_of()
        nursery = _the_nursery()
        assert {next(iterator) for _ in range(50)} <= pids
    assert_gone(pids | {nursery})


def test_each_pipeline_has_workers_of_its_own() -> None:
    with iter(pids_without_end(1)) as one:
        first = next(one)
        nursery = _the_nursery()
        with iter(pids_without_end(1)) as other:
            second = next(other)
            assert second != first
            assert nurseries() == {nursery}
        assert_gone({second})
        assert nurseries() == {nursery}
        assert next(one) == first


def test_one_who_ends_it_disturbs_nobody_else() -> None:
    with iter(pids_without_end(1)) as one:
        first = next(one)
        os.kill(_the_nursery(), signal.SIGSTOP)
        other = iter(pids_without_end(1))
        other.start_prefetch()
        other.close()  # Of a worker that is not there yet, it is the nursery that is killed.
        assert next(one) == first
        with iter(pids_without_end(1)) as another:
            assert next(another) != first
        os.kill(first, signal.SIGKILL)
        take_until(one, lambda pid: pid != first)


# When it is gone.


def test_workers_go_on_without_it(caplog: pytest.LogCaptureFixture) -> None:
    expected = [number**2 for number in range(2000)]
    ds = MapDataset.range(2000).map(lambda number: (number**2, os.getpid()))
    with iter(with_workers(ds, 2)) as iterator:
        taken = [next(iterator)]
        workers = workers_of()
        _kill(_the_nursery())
        taken += iterator
        assert {pid for _, pid in taken} <= workers
    assert [value for value, _ in taken] == expected
    assert_gone(workers)
    assert not caplog.records


def test_another_one_takes_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with iter(pids_without_end(2)) as iterator:
        pids = worker_pids(iterator, 2)
        first = _the_nursery()
        _kill(first)
        victim = min(pids)
        _kill(victim)
        later = _take_until_replaced(iterator, victim, 2)
        assert pids - {victim} <= later
        second = _the_nursery()
        assert second != first
        assert workers_of() == later - pids
    assert_gone(pids | later | {second})
    (warning,) = [record.getMessage() for record in caplog.records]
    # Nobody was there to see how it ended.
    assert f"(pid {victim}) ended while it had" in warning


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_it_tells_how_a_worker_ended(number: int, caplog: pytest.LogCaptureFixture) -> None:
    with iter(pids_without_end(2)) as iterator:
        victim = min(worker_pids(iterator, 2))
        _kill(victim, number)
        _take_until_replaced(iterator, victim, 2)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert f"(pid {victim}) was killed by {signal.Signals(number).name} while" in warning


def test_orphans_that_were_left_to_the_program(tmp_path: Path) -> None:
    """The first process of a container is given them, and learns how they end."""
    text = """
        import ctypes, logging
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        PR_SET_CHILD_SUBREAPER = 36
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        ds = MapDataset.range(10**9).map(lambda _: (os.getpid(), os.getppid()))
        with iter(ds.to_iter_dataset().mp_prefetch(workers(1))) as iterator:
            victim, nursery = next(iterator)
            os.kill(nursery, signal.SIGKILL)
            while next(iterator) != (victim, os.getpid()):
                pass
            os.kill(victim, signal.SIGSEGV)
            while next(iterator)[0] == victim:
                pass
        try:
            print(os.waitpid(-1, os.WNOHANG), "is left")
        except ChildProcessError:
            print("nobody is left")
    """
    with running(tmp_path, text) as program:
        code, out, err = program.wait()
    assert code == 0, err
    warning, rest = out.splitlines()
    assert "was killed by SIGSEGV while it had" in warning
    assert rest == "nobody is left"


def test_closing_while_it_is_stopped() -> None:
    iterator = iter(pids_without_end(2))
    pids = worker_pids(iterator, 2)
    nursery = _the_nursery()
    os.kill(nursery, signal.SIGSTOP)
    iterator.close()
    assert_gone(pids | {nursery})


def test_the_thread_that_started_it_may_end() -> None:
    """What ends it is the end of the program, not that of a thread."""
    iterators: list[Any] = []

    def start() -> None:
        iterators.append(iter(pids_without_end(1)))
        next(iterators[0])

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with iterators[0] as iterator:
        nursery, victim = _the_nursery(), next(iterator)
        _kill(victim)
        take_until(iterator, lambda pid: pid != victim)
        assert _the_nursery() == nursery


def test_its_death_counts_once_for_all_that_it_was_asked_for() -> None:
    """However many wait to be born."""
    ds = pids_without_end(4)
    nursery = _the_nursery()
    os.kill(nursery, signal.SIGSTOP)
    with iter(ds) as iterator:
        iterator.start_prefetch()
        os.kill(nursery, signal.SIGSEGV)
        os.kill(nursery, signal.SIGCONT)
        assert_gone({nursery})
        assert next(iterator) in workers_of()


def test_killed_again_and_again() -> None:
    ds = MapDataset.range(400).map(parts.square)
    others = descendants()  # Python's own, which another test may have needed.
    with iter(with_workers(ds, 2)) as iterator:
        for number, element in enumerate(iterator):
            assert element == number**2
            if number % 100 == 50:
                pids = descendants() - others
                for pid in sorted(pids):
                    os.kill(pid, signal.SIGKILL)
                assert_gone(pids)


_TRAIN = """
    iterator = iter(
        MapDataset.range(10**9).map(lambda _: os.getpid()).to_iter_dataset().mp_prefetch(workers(3))
    )
    tell(workers=pids_of(iterator, 3))
    time.sleep(3600)
"""


@pytest.mark.parametrize(
    "dead",
    usually(
        ["nobody", "the nursery", "a worker", "all are stopped"], "the nursery", "all are stopped"
    ),
)
def test_the_program_is_killed(dead: str, tmp_path: Path) -> None:
    with running(tmp_path, _TRAIN) as program:
        workers = program.hear()["workers"]
        (nursery,) = nurseries(program.pid)
        pids = {nursery, *workers}
        assert len(pids) == 4
        if dead == "the nursery":
            _kill(nursery)
        elif dead == "a worker":
            # The nursery says so, and is not heard.
            _kill(workers[0])
            assert wait_until(lambda: workers[0] not in descendants(program.pid))
        elif dead == "all are stopped":
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
        assert sum(map(is_alive, pids)) == (3 if dead in ("the nursery", "a worker") else 4)
        program.kill(signal.SIGKILL)
        program.wait_for_exit()
        assert_gone(pids)
        # They leave without a word.
        assert program.wait()[1:] == ("", "")


def test_a_child_of_the_program_does_not_keep_it(tmp_path: Path) -> None:
    """One that was forked, lives on, and has let go of everything."""
    text = """
        import warnings
        warnings.simplefilter("ignore")
        iterator = iter(MapDataset.range(10**9).to_iter_dataset().mp_prefetch(workers(1)))
        next(iterator)
        if not os.fork():
            tell(ready=True)
            time.sleep(3600)
        time.sleep(3600)
    """
    with running(tmp_path, text) as program:
        assert program.hear() == {"ready": True}
        pids = nurseries(program.pid) | workers_of(program.pid)
        assert len(pids) == 2
        program.kill(signal.SIGKILL)
        program.wait_for_exit()
        assert_gone(pids)


@pytest.fixture(autouse=True)
def _every_warning_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "bushel")


@linux
def test_a_worker_that_nobody_waits_for_leaves_no_file() -> None:
    """An interrupt may come when a worker was asked for, and nobody knows of it yet."""
    before = len(os.listdir("/proc/self/fd"))
    _lose_a_worker()
    assert len(os.listdir("/proc/self/fd")) == before


def _lose_a_worker() -> None:
    nursery = launch.start_nursery()
    started: Any = Started(0, 1, nursery)
    assert wait_until(lambda: nursery.read() or started.process.pidfd >= 0)
    started._close_files()
    nursery.end()
