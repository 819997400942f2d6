"""What threads bring by the clock, where that is less than their blocks promise."""

import pytest

from bushel.run.thread_choice import ThreadChoice
from bushel.run.thread_time import Spent
from tests.run.machine import Machine, Run

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


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(Machine(1e-3, own_lock=1.0, wait=4e-3, user=8e-3), id="a lock of its own"),
        pytest.param(Machine(1e-3, gil=1.0, wait=1.5e-3, user=3e-3), id="the interpreter's lock"),
        pytest.param(Machine(5e-3, own_lock=1.0, user=2e-3), id="little to hide it in"),
    ],
)
def test_one_thread_does_what_several_would_only_take_turns_with(machine: Machine) -> None:
    """That several are no faster than one shows only once they were tried."""
    run = Run(machine, ThreadChoice(MOST, machine.cores), block_seconds=0.01)
    most = 0
    for _ in range(200):
        run.go_on(0.0, least_blocks=1)
        most = max(most, run.choice.threads if run.choice.threaded else 0)
    assert most > 1
    assert run.choice.threaded
    assert run.choice.threads == 1


def test_work_that_takes_no_time_at_all() -> None:
    """As a clock may say that is coarse, or that jumps. (The gain is used as a logarithm.)"""
    choice = ThreadChoice(MOST, 2)
    choice.learn_work(1, Spent(0.0, 0.0, 0.0))
    choice.learn_lock(10, 0, 1, 0.0, 0.0)
    assert choice._gain_by_lock(2, 0.0) == 1.0
