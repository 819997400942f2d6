"""On systems where processes are not forked each worker is started for itself, and all holds."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from bushel import MapDataset
from tests.workers.processes import (
    assert_gone,
    descendants,
    linux,
    running,
    take_until,
    worker_pids,
)
from tests.workers.streams import pids_without_end, with_workers

pytestmark = linux


@pytest.fixture(autouse=True)
def no_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, and where a container does not allow it."""
    names = ["pidfd_open", "sched_getaffinity", "sched_getscheduler", "getresuid", "getresgid"]
    for name in names:
        monkeypatch.delattr(os, name, raising=False)


def test_workers_are_children_of_the_trainer() -> None:
    before = descendants()
    ds = MapDataset.range(10**9).map(lambda _: (os.getpid(), os.getppid()))
    with iter(with_workers(ds, 2)) as iterator:
        seen = set()
        take_until(iterator, lambda pids: seen.add(pids) or len(seen) == 2)  # type: ignore[func-returns-value]
        assert {parent for _, parent in seen} == {os.getpid()}
        assert descendants() - before == {pid for pid, _ in seen}
    assert_gone({pid for pid, _ in seen})


def test_one_that_dies_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with iter(pids_without_end(2)) as iterator:
        pids = worker_pids(iterator, 2)
        victim = min(pids)
        os.kill(victim, signal.SIGKILL)
        take_until(iterator, lambda pid: pid not in pids)
        (warning,) = [record.getMessage() for record in caplog.records]
        assert f"(pid {victim}) was killed by SIGKILL while it had" in warning
        assert victim not in descendants()


def test_closed_before_they_have_begun() -> None:
    before = descendants()
    iterator = iter(pids_without_end(3))
    started = descendants() - before
    assert len(started) == 3
    iterator.close()
    assert_gone(started)


_TRAIN = """
    del os.pidfd_open
    ds = MapDataset.range(10**9).map(lambda _: os.getpid()).to_iter_dataset()
    iterator = iter(ds.mp_prefetch(workers(2)))
    tell(workers=pids_of(iterator, 2))
    for _ in iterator:
        pass
"""


@pytest.mark.parametrize("how", ["by Ctrl-C", "by SIGKILL"])
def test_the_program_ends(how: str, tmp_path: Path) -> None:
    with running(tmp_path, _TRAIN) as program:
        pids = set(program.hear()["workers"])
        if how == "by SIGKILL":
            program.kill(signal.SIGKILL)
            program.wait_for_exit()
        else:
            program.interrupt()
            _, _, err = program.wait()
            assert err.count("Traceback") == 1
        assert_gone(pids)


def test_the_stream_is_the_same() -> None:
    def work(number: int) -> Any:
        return number, str(number)

    ds = MapDataset.range(200).shuffle(seed=1).map(work).batch(3, drop_remainder=False)
    stream = ds.to_iter_dataset()
    found = [(batch[0].tolist(), list(batch[1])) for batch in with_workers(stream, 2)]
    assert found == [(batch[0].tolist(), list(batch[1])) for batch in stream]
