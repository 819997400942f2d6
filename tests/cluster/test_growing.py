"""Workers of a cluster that come and go while a stream is read, as nodes do."""

import random
from collections import deque
from typing import Any

import pytest

import bushel
from benchmarks.simulated_cluster import Faults, SimulatedCluster
from bushel.core.ray_options import cluster_bounds
from bushel.experimental import AutotuneParameter
from bushel.workers.cluster import ray_cluster
from bushel.workers.cluster.pool import ClusterPool
from bushel.workers.fragment import TaskMessage
from bushel.workers.task import Task
from bushel.workers.tuning import Changes, Tuning
from tests.cluster.steps import noisy_at_once, pipeline
from tests.contract.test_resizing import engines_of


@pytest.mark.parametrize("seed", range(3))
def test_another_number_of_workers_does_not_show(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[SimulatedCluster] = []

    def cluster(options: Any, luggage: Any, paths: Any) -> SimulatedCluster:
        faults = Faults(process=30.0, node=60.0)
        made.append(SimulatedCluster(luggage, seed=seed, faults=faults, start_seconds=0.1))
        return made[-1]

    monkeypatch.setattr(ray_cluster, "RayCluster", cluster)
    chance = random.Random(seed)
    stream = pipeline(noisy_at_once).ray_prefetch(
        bushel.RayOptions(num_workers=2, start_timeout=1e6)
    )
    with iter(pipeline(noisy_at_once)) as alone, iter(stream) as there:
        (engine,) = engines_of(there)
        for expected in alone:
            assert next(there).tolist() == expected.tolist()
            assert there.get_state() == alone.get_state()
            if chance.random() < 0.3:
                engine.resize(chance.randint(1, 9), "the test says so")
        assert next(there, None) is None
    assert made[0].started > 9


class _Loop:
    """A trainer with workers on a simulated cluster, whose number is tuned."""

    def __init__(self, number: Any, task_seconds: float = 0.1, **how: Any) -> None:
        self.cluster = SimulatedCluster(
            task_seconds=lambda _: task_seconds, start_seconds=0.5, **how
        )
        options = bushel.RayOptions(num_workers=number, start_timeout=20.0)
        self.pool = ClusterPool([], lambda: self.cluster, options)
        self.changes = Changes(self.cluster.now)
        bounds = cluster_bounds(number)
        self._tuning = Tuning(bounds, 1e12, self.changes, self.cluster.now, lambda: None)
        self._tasks: deque[Task] = deque()
        self._next = 0

    def run(self, seconds: float, step_seconds: float) -> int:
        """Trains for so long with steps of so long; the number of workers at the end."""
        end = self.cluster.now() + seconds
        while self.cluster.now() < end:
            while len(self._tasks) < 2 * self.pool.size:
                task = Task(TaskMessage(0, 0, None, self._next + 1, False), self._next)
                self._next += 1
                self._tasks.append(task)
                self.pool.submit(task)
            began = self.cluster.now()
            outcome = self.pool.wait(self._tasks.popleft())
            waited = self.cluster.now() - began
            self._tuning.add(self.pool, waited, outcome.idle_seconds, 1, 1 << 20)
            self.cluster.spend(step_seconds)
        return self.pool.size


def test_as_many_as_the_loop_needs() -> None:
    loop = _Loop("auto", nodes=8, cpus=4)
    # Tasks of 100 ms and steps of 10: eleven, with what is to spare.
    assert 10 <= loop.run(60, 0.01) <= 14
    # Steps of 50 ms: three or four.
    assert 2 <= loop.run(200, 0.05) <= 5
    assert 10 <= loop.run(60, 0.01) <= 14
    assert "waited" in loop.changes.made[0].why


def test_no_more_than_there_is_room_for() -> None:
    loop = _Loop("auto", nodes=2, cpus=3)
    assert loop.run(60, 0.001) == 6


def test_nodes_that_come_and_go() -> None:
    loop = _Loop("auto", task_seconds=1.0, nodes=1, cpus=4)
    assert loop.run(60, 0.01) == 4
    for _ in range(3):
        loop.cluster.add_node()
    assert loop.run(200, 0.01) == 16
    loop.cluster.remove_nodes(keep=1)
    assert loop.run(100, 0.01) == 4
    assert any("no place for" in change.why for change in loop.changes.made)


def test_room_that_is_not_there_yet_is_asked_for() -> None:
    loop = _Loop(AutotuneParameter(1, 12), nodes=1, cpus=4)
    loop.cluster.places = lambda: None  # type: ignore[method-assign]
    assert loop.run(3, 0.001) == 12
    # Nodes that were asked for come within the time that workers may take to find a place.
    for _ in range(2):
        loop.cluster.add_node()
    assert loop.run(60, 0.001) == 12
    assert sum(worker.ready is not None for worker in loop.pool._roster) == 12


def test_a_node_that_drains_is_left_before_it_goes() -> None:
    loop = _Loop(2, nodes=2, cpus=2)
    loop.run(5, 0.01)
    (going, *_) = {worker.ready.node for worker in loop.pool._roster if worker.ready}
    loop.cluster.drain(going)
    loop.run(10, 0.01)
    nodes = [worker.ready.node for worker in loop.pool._roster if worker.ready]
    assert len(nodes) == 2 and going not in nodes
    assert not loop.pool.deaths and not loop.pool.repeated


def test_the_last_node_works_while_it_drains() -> None:
    loop = _Loop(2, nodes=1, cpus=2)
    loop.run(5, 0.01)
    loop.cluster.drain("0000-simulated")
    before = loop._next
    loop.run(5, 0.01)
    assert loop._next - before > 50
