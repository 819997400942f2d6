"""`python -m benchmarks scale`: a training host with workers on a cluster, in simulation.

The pool is the real one; workers, nodes, their ends and the network are simulated with what Ray
was measured to take. It tells how long a trainer waits, and what its own process spends on a task.
"""

import argparse
import logging
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from benchmarks.simulated_cluster import Faults, SimulatedCluster
from bushel.core.ray_options import RayOptions
from bushel.workers.cluster.pool import ClusterPool
from bushel.workers.fragment import TaskMessage
from bushel.workers.task import Task

_HOUR = 3600.0
# Of few tasks, the last ones count most, which wait for each other.
_LEAST_TASKS_A_WORKER = 50


@dataclass
class Trained:
    """What a simulated training came to, once its workers had begun."""

    simulated_seconds: float
    # Of the pool alone, without the simulation.
    cpu_seconds: float
    tasks: int
    deaths: int
    repeated: int
    doubled: int


class Apart:
    """A simulated cluster, and how long its simulation took."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster, self.cpu_seconds = cluster, 0.0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.cluster, name)

        def timed(*arguments: Any) -> Any:
            began = time.process_time()
            try:
                return method(*arguments)
            finally:
                self.cpu_seconds += time.process_time() - began

        setattr(self, name, timed)
        return timed


def train(workers: int, tasks: int, task_seconds: float, faults: Faults, seed: int) -> Trained:
    """A loop that takes tasks in order as fast as they come."""

    def seconds(chance: random.Random) -> float:
        return task_seconds * chance.uniform(0.7, 1.3)

    cluster = Apart(
        SimulatedCluster(
            seed=seed, nodes=-(-workers // 32) + 1, cpus=32, task_seconds=seconds, faults=faults,
            node_comes_after=60.0,
        )
    )  # fmt: skip
    options = RayOptions(num_workers=workers, start_timeout=1e9)
    pool = ClusterPool([], lambda: cluster, options)
    waiting: deque[Task] = deque()
    given, started, began, simulated = 0, 0.0, 0.0, 0.0
    before = 4 * workers  # Tasks until all workers are at work.
    for number in range(before + tasks):
        if number == before:
            started = cluster.now()
            began, simulated = time.process_time(), cluster.cpu_seconds
        while len(waiting) < 2 * workers and given < before + tasks:
            task = Task(TaskMessage(0, 0, None, given + 1, False), given)
            waiting.append(task)
            pool.submit(task)
            given += 1
        pool.wait(waiting.popleft())
    cpu = time.process_time() - began - (cluster.cpu_seconds - simulated)
    done = Trained(cluster.now() - started, cpu, tasks, pool.deaths, pool.repeated, pool.doubled)
    pool.close()
    return done


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--task-ms", type=float, default=50.0)
    parser.add_argument("--most-workers", type=int, default=10_000)
    options = parser.parse_args(argv)
    logging.getLogger("bushel").setLevel(logging.ERROR)
    none = Faults()
    some = Faults(process=24 * _HOUR, node=72 * _HOUR, memory=240 * _HOUR, frozen=720 * _HOUR)
    many = Faults(process=600.0, node=1800.0, memory=3600.0, frozen=7200.0)
    print(
        "| workers | ends | simulated | share of the ideal | ms of the pool's CPU a task | ended | "
        "twice |"
    )
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for workers in (10, 100, 1000, 10_000):
        if workers > options.most_workers:
            break
        tasks = max(options.tasks, _LEAST_TASKS_A_WORKER * workers)
        for name, faults in (("none", none), ("as usual", some), ("a storm", many)):
            done = train(workers, tasks, options.task_ms / 1e3, faults, seed=1)
            ideal = tasks / workers * options.task_ms / 1e3
            simulated = done.simulated_seconds
            print(
                f"| {workers:,} | {name} | {simulated:,.1f} s | {ideal / simulated:.2f} | "
                f"{1e3 * done.cpu_seconds / done.tasks:.3f} | {done.deaths} | {done.doubled} |",
                flush=True,
            )
    return 0
