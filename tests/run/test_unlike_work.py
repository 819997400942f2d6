"""The choice of threads for work of which no two blocks are alike, and for work that alternates."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from bushel.run.thread_choice import ThreadChoice
from tests.run.machine import Machine, Run

MOST = 16


class Mixed(Run):
    """A stream of blocks that are each made by a machine of its own."""

    def __init__(self, machine: Machine, pick: Callable[[int], Machine], most: int = MOST) -> None:
        super().__init__(machine, ThreadChoice(most, math.ceil(machine.cores)), 0.01)
        self._pick, self._ways = pick, range(most + 1)
        self.took, self.would_take = 0.0, [0.0] * (most + 1)

    def _deliver(self) -> int:
        machine = self.machine = self._pick(self.blocks)
        threads = self.choice.threads if self.choice.threaded else 0
        count = super()._deliver()
        self.took += count * machine.cycle(threads)
        for way in self._ways:
            self.would_take[way] += count * machine.cycle(way)
        return count

    def beside_the_best(self, seconds: float, blocks: int, most: int) -> float:
        """What the next blocks take, to what they would take with the best number of threads."""
        self.took, self.would_take = 0.0, [0.0 for _ in self._ways]
        self.go_on(seconds, least_blocks=blocks)
        return self.took / min(self.would_take[: most + 1])


@pytest.mark.parametrize("cpu", [0.09, 0.8])
def test_long_records_of_which_some_are_heavy_are_no_other_work(cpu: float) -> None:
    """Videos, say: few of them fit in a quarter of a second, and three may all be long."""
    machine, dice = Machine(cpu, cores=4), random.Random(5)
    heavy = replace(machine, cpu=10 * cpu)
    run = Mixed(machine, lambda _: heavy if dice.random() < 0.3 else machine, 4)
    run.go_on(1.5, least_blocks=40)
    assert run.choice.threaded
    assert run.beside_the_best(30.0, 100, 4) <= 1.1


RELEASES, HOLDS = Machine(0.01), Machine(0.04, gil=1.0)
WAITS = Machine(6e-3, gil=0.8, wait=5e-2)


@pytest.mark.parametrize("every", [1, 3, 5, 8, 20])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        # It waits as long, whatever it costs.
        (WAITS, replace(WAITS, cpu=1.8e-3)),
        (RELEASES, replace(RELEASES, cpu=0.1)),
        (replace(HOLDS, cpu=1e-3), HOLDS),
    ],
)
def test_work_that_alternates_is_the_same_work(one: Machine, other: Machine, every: int) -> None:
    """Sources that take turns: the choice is made for both, and not anew with each turn."""
    run = Mixed(one, lambda number: (one, other)[number // every % 2])
    run.go_on(2.0, least_blocks=100)
    changes = len(run.changes)
    assert run.beside_the_best(8.0, 100, MOST) <= 1.1
    assert len(run.changes) - changes <= 4


@pytest.mark.parametrize("cores", [0.5, 1.0])
def test_on_one_core_another_thread_works_while_records_wait(cores: float) -> None:
    """In a worker beside others, say, or in a container that has half a core."""
    machine = Machine(8e-3, wait=2e-3, cores=cores)
    run = Mixed(machine, lambda _: machine)
    run.go_on(2.0)
    assert run.choice.threaded
    assert run.beside_the_best(4.0, 10, MOST) <= 1.1
