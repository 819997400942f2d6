"""How many workers there should be, decided on machines that are made up."""

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.run.worker_choice import (
    NOTHING_LEARNED,
    Decision,
    Glance,
    Learned,
    WorkerBudget,
    decide,
    refused,
)
from tests.property.profile import tried
from tests.thorough import examples

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Machine:
    """A trainer and its workers, by arithmetic: nothing is run.

    An element takes `work` seconds of a worker, of which `on_core` on a core, and `own` seconds
    of the trainer. `serial` seconds of it only one can do at a time. Others use `load` cores.
    Each worker has so many `threads`, and the share of its time on a core that is `locked` only
    one of them can have at a time.
    """

    work: float
    own: float
    cores: int
    serial: float = 0.0
    on_core: float = 1.0
    load: float = 0.0
    # Each worker beyond the cores costs the others so much.
    crowd: float = 0.02
    noise: float = 0.0
    own_on_core: float = 1.0
    worker_bytes: int = 50 * MEBIBYTE
    ahead_bytes: int = MEBIBYTE
    threads: int = 1
    locked: float = 1.0

    @property
    def alone(self) -> float:
        """Seconds an element of a worker that nobody is in the way of."""
        return max(self.work / self.threads, self.work * self.on_core * self.locked)

    @property
    def wants(self) -> float:
        """The cores that such a worker uses."""
        return self.work * self.on_core / self.alone

    def cycle(self, workers: int, chance: random.Random | None = None) -> float:
        """Seconds an element, with so many workers."""
        return max(self._times(workers, chance))

    def _times(self, workers: int, chance: random.Random | None = None) -> tuple[float, float]:
        """Seconds an element by the trainer alone, and by the workers alone."""
        own_noise, work_noise = (1.0, 1.0)
        if chance is not None and self.noise:
            own_noise, work_noise = (math.exp(chance.gauss(0, self.noise)) for _ in range(2))
        # The share of a core that each gets which wants one, others included.
        wanted = workers * self.wants + self.load
        share = min(1.0, self.cores / wanted)
        crowding = 1 + self.crowd * max(0.0, wanted - self.cores)
        computes = min(1.0, self.wants)
        work = self.alone * (computes / share + 1 - computes) * crowding
        # Nobody has more than the cores that are left.
        free = max(0.2, self.cores - self.load)
        by_cores = (self.work * self.on_core + self.own * self.own_on_core) * crowding / free
        own = self.own / min(1.0, share + 0.5)
        return own * own_noise, max(work / workers, self.serial, by_cores) * work_noise

    def seen(self, workers: int, seconds: float, chance: random.Random) -> Glance:
        """What is seen of it in a stretch of time."""
        own, others = self._times(workers, chance)
        cycle = max(own, others)
        elements = max(1, round(seconds / cycle))
        # Those that wait for the serial part, or for a core, are not idle.
        idle = workers * max(0.0, cycle - others)
        crowding = 1 + self.crowd * max(0.0, workers * self.wants + self.load - self.cores)
        computed = self.work * self.on_core * crowding / cycle
        used = computed + self.own * self.own_on_core / cycle + self.load
        free = max(0.0, self.cores - used) + abs(chance.gauss(0, self.noise))
        return Glance(
            workers,
            elements * cycle,
            elements * (cycle - own),
            elements * idle,
            elements,
            min(free, self.cores),
            self.worker_bytes,
            self.ahead_bytes,
            computed / workers,
        )

    def best(self, budget: WorkerBudget) -> tuple[int, float]:
        """The fewest workers that are as fast as can be, and how fast that is; all are tried."""
        cycles = {n: self.cycle(n) for n in range(budget.least, _fits(self, budget) + 1)}
        fastest = min(cycles.values())
        return min(n for n, cycle in cycles.items() if cycle <= fastest * 1.0001), fastest


def _fits(machine: Machine, budget: WorkerBudget) -> int:
    each = machine.worker_bytes + machine.ahead_bytes
    return int(max(budget.least, min(budget.most, budget.memory_bytes // each)))


@dataclass
class Run:
    """A tuner at work on a machine."""

    machine: Machine
    budget: WorkerBudget
    workers: int
    chance: random.Random
    learned: Learned = NOTHING_LEARNED
    changes: int = 0
    seconds: float = 0.0

    def go(self, stretches: int, each_seconds: float = 0.5) -> list[Decision]:
        made = []
        for _ in range(stretches):
            seen = self.machine.seen(self.workers, each_seconds, self.chance)
            self.seconds += seen.seconds
            self.learned, decision = decide(self.learned, seen, self.budget)
            if decision is not None:
                assert decision.workers != self.workers
                assert decision.why
                self.workers = decision.workers
                made.append(decision)
            assert self.budget.least <= self.workers <= self.budget.most
        return made


def run_on(machine: Machine, seed: int = 0, **more: Any) -> Run:
    more.setdefault("most", machine.cores)
    budget = WorkerBudget(least=1, cores=machine.cores, **more)
    first = max(1, min(4, machine.cores // 2, budget.most))
    return Run(machine, budget, first, random.Random(seed))


machines = st.builds(
    Machine,
    work=st.floats(1e-4, 1.0),
    own=st.floats(1e-4, 1.0),
    cores=st.sampled_from([1, 2, 4, 8, 16, 64, 128]),
    serial=st.sampled_from([0.0, 0.0, 1e-3, 1e-2, 0.1]),
    on_core=st.sampled_from([1.0, 1.0, 0.5, 0.2, 0.05, 0.01]),
    load=st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 7.0]),
    noise=st.sampled_from([0.0, 0.01, 0.03, 0.05]),
    own_on_core=st.sampled_from([1.0, 0.1]),
    worker_bytes=st.sampled_from([10 * MEBIBYTE, 50 * MEBIBYTE, 2000 * MEBIBYTE]),
    ahead_bytes=st.sampled_from([1000, MEBIBYTE, 500 * MEBIBYTE]),
    threads=st.sampled_from([1, 1, 2, 16]),
    locked=st.sampled_from([1.0, 0.5, 0.05]),
    # Workers whose number is tuned have threads for what waits: those share a core.
).filter(lambda machine: machine.wants <= 1)


@settings(tried, max_examples=examples(60))
@given(
    machines,
    st.integers(0, 1 << 30),
    st.sampled_from([math.inf, 40.0, 8.0, 2.5]),
    st.sampled_from([1, 8]),
)
def test_near_the_best_of_any_machine_in_a_few_changes(
    machine: Machine, seed: int, workers_of_memory: float, most_a_core: int
) -> None:
    memory = workers_of_memory * (machine.worker_bytes + machine.ahead_bytes)
    most = min(most_a_core * machine.cores, 128)
    run = run_on(machine, seed, memory_bytes=memory, most=most)
    made = run.go(60)
    assert len(made) <= 5, made
    fewest, fastest = run.machine.best(run.budget)
    assert run.workers <= _fits(machine, run.budget)
    # Where others have all the cores, more workers would take them from those.
    if machine.load < 0.75 * machine.cores:
        assert machine.cycle(run.workers) <= 1.1 * fastest, (run.workers, fewest, made)
    later = run.go(300)
    assert len(later) <= 2, later


@settings(tried, max_examples=examples(20))
@given(machines, st.integers(0, 1 << 30))
def test_a_trainer_that_is_slower_has_few(machine: Machine, seed: int) -> None:
    slow = replace(machine, own=machine.work * 1.5, serial=0.0, load=0.0)
    run = run_on(slow, seed)
    run.workers = run.budget.most
    run.go(120)
    assert run.workers <= max(2, math.ceil(slow.work / slow.own / 0.75) + 1)
    assert slow.cycle(run.workers) <= 1.1 * slow.best(run.budget)[1]


def test_work_that_changes_is_followed() -> None:
    light = Machine(work=0.01, own=0.1, cores=16, noise=0.02)
    run = run_on(light)
    run.go(100)
    assert run.workers == 1
    for work, least, most in ((0.8, 8, 12), (0.01, 1, 1), (0.4, 4, 6)):
        run.machine = replace(light, work=work)
        assert len(run.go(200)) <= 5
        assert least <= run.workers <= most
        assert len(run.go(300)) <= 2


def test_a_source_that_serves_one_at_a_time_gets_no_more() -> None:
    run = run_on(Machine(work=0.1, own=0.0001, cores=64, serial=0.1))
    made = run.go(60)
    assert len(made) <= 2
    assert run.workers <= 4
    # After two minutes it is tried again, once.
    assert not run.go(150)
    assert len(run.go(200)) <= 2


def test_those_that_have_just_come_may_be_slow_at_first() -> None:
    """As was seen: everybody waits for the first tasks of a new worker, for a second or so."""
    machine = Machine(work=0.4, own=0.001, cores=2)
    run = run_on(machine)
    (more,) = run.go(3)
    assert more.workers == 2
    run.machine = replace(machine, work=1.6)
    assert run.go(4) == []
    run.machine = machine
    assert run.go(300) == []
    # But not for good.
    run = run_on(machine)
    run.go(3)
    run.machine = replace(machine, work=1.6)
    (back,) = run.go(60)
    assert back.workers == 1


def test_a_pause_of_the_loop_is_no_reason() -> None:
    run = run_on(Machine(work=0.4, own=0.1, cores=16, noise=0.02))
    run.go(60)
    workers = run.workers
    for _ in range(50):
        run.go(9)
        # An evaluation of ten minutes, in which a few elements were taken.
        pause = Glance(run.workers, 600.0, 0.0, 600.0 * run.workers, 4, 15.0)
        run.learned, decision = decide(run.learned, pause, run.budget)
        assert decision is None
    assert run.workers == workers


def test_work_that_waits_has_more_workers_than_cores() -> None:
    waiting = Machine(work=0.4, own=0.001, cores=2, on_core=0.05, noise=0.01)
    run = run_on(waiting, most=16)
    assert len(run.go(60)) == 1
    assert run.workers == 16
    assert run.go(300) == []
    # Work that computes has one for each core, whatever the bound.
    computing = run_on(replace(waiting, on_core=1.0), most=16)
    computing.go(60)
    assert computing.workers <= 3


def test_cores_that_others_use_are_not_taken() -> None:
    run = run_on(Machine(work=0.4, own=0.001, cores=8, load=8.0, noise=0.02))
    assert run.go(300) == []


def test_a_budget_that_is_too_small_is_kept_at_once() -> None:
    machine = Machine(work=0.4, own=0.001, cores=16)
    run = run_on(machine, memory_bytes=3.5 * (machine.worker_bytes + MEBIBYTE))
    run.workers = 16
    (decision,) = run.go(1)
    assert decision.workers == 3 and "memory" in decision.why
    assert run.go(200) == []


def test_no_more_than_the_system_allows() -> None:
    run = run_on(Machine(work=0.4, own=0.001, cores=16))
    (decision,) = run.go(3)
    assert decision.workers == 16
    run.workers = 6
    run.learned = refused(run.learned, 6)
    assert run.go(200) == []


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_stretch_without_an_element_tells_nothing(seconds: float) -> None:
    nothing = Glance(2, seconds, seconds, 0.0, 0)
    learned, decision = decide(NOTHING_LEARNED, nothing, WorkerBudget(1, 4, 4))
    assert learned is NOTHING_LEARNED and decision is None


def test_the_reason_has_the_numbers() -> None:
    run = run_on(Machine(work=0.4, own=0.1, cores=16))
    run.workers = 1
    (decision,) = run.go(3)
    assert decision.why == "the loop waited 75 % of its time and workers were busy 100 % of theirs"
    assert decision.workers == 5
