"""Real processes of JAX jobs: killed, and gone on with by others."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel.sharding import NoSharding
from tests.lanes.corpora import BATCH, finite, mixture
from tests.lanes.jobs import Jobs
from tests.thorough import THOROUGH, slow

for _package in ("jax", "orbax.checkpoint"):
    pytest.importorskip(_package)


@pytest.fixture(autouse=True)
def no_endless_wait() -> None:
    """Jobs have a limit of their own."""


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    try:
        yield started
    finally:
        started.close()


def _ids(steps: int) -> list[list[int]]:
    """The records of each step, in this one process."""
    batches = iter(mixture(shard_options=NoSharding()))
    return [next(batches)["id"].tolist() for _ in range(steps)]


def _check(told: list[list[Any]], start: int, steps: int) -> None:
    """Checks what processes told of the steps that they took together."""
    expected = _ids(steps)
    rows = BATCH // len(told)
    for index, (first, *taken) in enumerate(told):
        assert first == {"start": start}
        assert [step["step"] for step in taken] == list(range(start, steps))
        assert [step["ids"] for step in taken] == expected[start:]
        mine = [batch[index * rows : (index + 1) * rows] for batch in expected[start:]]
        assert [step["mine"] for step in taken] == mine


def test_a_killed_job_goes_on_with_any_number_of_processes(jobs: Jobs) -> None:
    # Every third step is saved.
    codes = jobs.run_and_fail("train", 4, "four", until=100, dies_at=8)
    assert codes[-1] == -signal.SIGKILL and all(codes)
    _check(jobs.told("four", 4), 0, 8)
    codes = jobs.run_and_fail("train", 2, "two", until=100, dies_at=10)
    assert codes[-1] == -signal.SIGKILL and all(codes)
    _check(jobs.told("two", 2), 6, 10)
    more = 8 if THOROUGH else 4
    _check(jobs.run("train", more, "more", until=13), 9, 13)
    _check(jobs.run("train", 1, "one", until=14), 12, 14)


def test_processes_end_together(jobs: Jobs) -> None:
    told = jobs.run("end_together", 4, "all")
    for turn, remainder in enumerate(["drop", "drop", "pad", "pad"]):
        whole = list(finite(remainder, shard_options=NoSharding()))
        assert len(whole) == (5 if remainder == "drop" else 25)
        for index, process in enumerate(told):
            mine = slice(index * BATCH // 4, (index + 1) * BATCH // 4)
            expected = [_part(batch, mine) for batch in whole]
            assert process[turn]["remainder"] == remainder
            assert process[turn]["steps"] == expected
            assert process[turn]["again"] == expected[3:]


def _part(batch: Any, rows: slice) -> Any:
    if isinstance(batch, np.ndarray):
        return batch[rows].tolist()
    return [leaf[rows].tolist() for leaf in batch]


@slow  # (`test_hosts.py` has the same in one process.)
def test_processes_with_different_numbers_of_workers(jobs: Jobs) -> None:
    expected = [{"step": batch.tolist()} for batch in finite("drop", shard_options=NoSharding())]
    for told in jobs.run("differ", 2, "differ"):
        assert told == expected[:3] + expected[2:]


def test_who_stops_before_the_others_is_missed(jobs: Jobs) -> None:
    *others, last = jobs.run("leave", 4, "leave")
    assert last == [{"way": "closes alone"}]
    for told in others:
        ways = {event["way"]: event for event in told}
        assert list(ways) == ["closes", "forgets", "goes back", "closes alone", "ends"]
        for way in ("closes", "forgets", "goes back", "ends"):
            assert "All processes of a job must do the same" in ways[way]["error"]


def test_a_process_that_stops_is_named(jobs: Jobs) -> None:
    codes = jobs.run_and_fail("stop", 4, "stopped")
    assert all(codes)
    *others, stopped = jobs.told("stopped", 4)
    assert not stopped
    for index, (told,) in enumerate(others):
        assert told["error"].startswith(f"process {index} of 4 has waited at step ")
        assert "for process 3, since" in told["error"]
