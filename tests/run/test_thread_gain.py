"""What threads bring by the clock, where that is less than their blocks promise."""

import pytest

from bushel.run.thread_choice import ThreadChoice
from bushel.run.thread_time import Spent

MOST = 16


@pytest.mark.parametrize("handing", [0.5, 1.0])
def test_threads_that_wait_for_something_else_are_given_up_by_the_clock(handing: float) -> None:
    """In a worker, say: blocks take no longer on threads, and elements come later all the same."""
    cpu = 1e-3
    choice = ThreadChoice(MOST, 2)
    threaded = []
    for _ in range(20_000):
        threaded.append(choice.threaded)
        seconds = cpu * (1.0 + handing) if choice.threaded else cpu * 1.1
        if choice.looking:
            choice.learn_lock(1000, 0, 1, seconds, 0.0)
            continue
        if choice.watching:
            choice.learn_work(1, Spent(cpu, cpu, 0.0), choice.threads if choice.threaded else 0)
        choice.learn_cycle(1, seconds, 0.0)
    assert any(threaded)
    assert sum(threaded[2000:]) < 0.15 * 18_000
