"""What a task costs beside its work: questions to the system, and bytes on the way."""

import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from bushel.core.stream import FixedMarks
from bushel.workers.fragment import Outcome, TaskClock
from tests.workers.processes import linux


def _outcome(positions: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Outcome:
    marks = FixedMarks({"next_index": 0})
    return Outcome(3, [1, 2], positions, None, None, marks, [[2]], [], 0.5, 1, 0.25)


@pytest.mark.parametrize(
    "positions",
    [[], [5], [5, 6, 7], [5, 7], [7, 6, 5], [5, 5, 7], [2**40, 2**40 + 1], [-1, 0, 1]],
)
def test_positions_arrive_as_they_were(positions: list[int]) -> None:
    sent = _outcome(np.array(positions, dtype=np.int64))
    came = pickle.loads(pickle.dumps(sent, protocol=5))
    assert came.positions.tolist() == positions
    assert came.positions.dtype == np.int64
    came.positions = sent.positions
    assert [getattr(came, name) for name in ("task", "values", "kept", "seconds")] == [
        3, [1, 2], [[2]], 0.5,
    ]  # fmt: skip
    assert (came.side_by_side, came.idle_seconds, came.bad, came.metadata) == (1, 0.25, [], None)


def test_positions_in_a_row_take_no_room() -> None:
    few, many = (pickle.dumps(_outcome(np.arange(9, 9 + n)), protocol=5) for n in (1, 8000))
    assert len(many) - len(few) < 16


def _reads() -> int:
    """How often this process has read from a file so far."""
    notes = Path("/proc/self/io").read_text().split()
    return int(notes[notes.index("syscr:") + 1])


@linux
@pytest.mark.parametrize("side_by_side", [False, True])
def test_short_tasks_are_measured_without_asking_the_scheduler(side_by_side: bool) -> None:
    clock = TaskClock(side_by_side)
    before = _reads()
    for _ in range(200):
        clock.start()
        assert clock.read()[0] >= 0
    # Twice for each of the first eight, and of those after one that was interrupted.
    assert 16 <= _reads() - before < 200


def test_work_that_waits_is_found_out() -> None:
    """At the second task at the latest: the first one looks like a machine that is busy."""
    clock = TaskClock(side_by_side=True)
    for _ in range(20):
        clock.start()
        clock.read()
    waited = []
    for _ in range(3):
        clock.start()
        threading.Event().wait(0.003)
        waited.append(clock.read()[1])
    assert waited[1:] == [True, True]


def test_waiting_does_not_matter_where_nothing_is_done_side_by_side() -> None:
    clock = TaskClock(side_by_side=False)
    for _ in range(2):
        clock.start()
        threading.Event().wait(0.003)
        seconds, waited = clock.read()
        assert seconds >= 0.003 and not waited
