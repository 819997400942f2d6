"""A hundred ends of every kind against one stream, on a real Ray cluster on this machine.

    python -m tests.cluster.storm --ends 100 --seed 1

It takes many minutes. It ends with an error if the stream is not that of one process.
"""

import argparse
import collections
import logging
import os
import random
import signal
import tempfile
import time
from typing import Any

import numpy as np

import bushel
from bushel.run.worker_figures import WorkerFigures
from bushel.workers.cluster import ray_cluster
from tests.cluster.conftest import Nodes, cluster_here
from tests.cluster.seen import lose_results

# What happens, and how often of 15 times.
KINDS = {"actor": 4, "process": 4, "two": 2, "frozen": 2, "raylet": 1, "node": 1, "lost": 1}
# Elements of a batch are so wide that results lie in the stores of nodes, where they can be lost.
_WIDTH = 1 << 12


class StormCluster(ray_cluster.RayCluster):
    """Ray as it is, with its actors at hand."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.actors: dict[int, Any] = {}
        self.pids: list[int] = []
        # What was asked for last: some of it is under way, and some of that is done.
        self.calls: collections.deque[Any] = collections.deque(maxlen=12)
        _clusters.append(self)

    def start(self, index: int) -> tuple[Any, Any]:
        self.actors[index], call = super().start(index)
        return self.actors[index], call

    def ready(self, call: Any) -> Any:
        ready = super().ready(call)
        if ready is not None:
            self.pids.append(ready.pid)
        return ready

    def run(self, worker: Any, message: Any) -> Any:
        self.calls.append(super().run(worker, message))
        return self.calls[-1]


_clusters: list[StormCluster] = []


def _noisy(x: int, rng: np.random.Generator) -> int:
    time.sleep(0.002)
    return x + int(rng.integers(100))


def _wide(x: int) -> Any:
    return np.arange(x, x + _WIDTH)


def _stream() -> bushel.IterDataset[Any]:
    ds = bushel.MapDataset.range(1000).seed(3).shuffle().repeat().random_map(_noisy).map(_wide)
    return ds.to_iter_dataset().filter(lambda row: row[0] % 5 != 0).batch(16)


def _end_one(kind: str, cluster: StormCluster, nodes: Nodes, chance: random.Random) -> None:
    import ray

    if kind in ("actor", "two"):
        ray.kill(chance.choice(list(cluster.actors.values())))
    if kind in ("process", "two", "frozen"):
        number = signal.SIGSTOP if kind == "frozen" else signal.SIGKILL
        for pid in reversed(cluster.pids):
            try:
                os.kill(pid, number)
                break
            except ProcessLookupError:
                continue
    if kind == "raylet":
        os.kill(Nodes.raylet(chance.choice(nodes.workers)), signal.SIGKILL)
    if kind == "node":
        nodes.remove(chance.choice(nodes.workers))
    if kind == "lost":
        lose_results(chance.choice(nodes.workers), list(cluster.calls))


def _compare(one: Any, other: Any, number: int) -> None:
    assert np.array_equal(next(one), next(other)), number


def storm(
    nodes: Nodes, ends: int, seed: int, most_seconds: float = 3600.0, here: int = 0
) -> tuple[collections.Counter[str], int, WorkerFigures]:
    """Ends so much at random while a stream is read; what happened, batches, what workers did.

    `here` are workers of this machine beside three of the cluster.
    """
    chance = random.Random(seed)
    happened = collections.Counter[str]()
    began = time.monotonic()
    nodes.at_least(2)
    # (Some are frozen for good: without a limit, in the end there would be no others.)
    options = bushel.RayOptions(
        num_workers=3, hang_timeout=30.0, on_hang="replace", num_local_workers=here
    )
    there = _stream().ray_prefetch(options)
    with iter(_stream()) as alone, bushel.iterate(there, stats=True) as iterator:
        batches = 0
        while happened.total() < ends:
            for _ in range(chance.randrange(1, 12)):
                _compare(iterator, alone, batches)
                batches += 1
            while not _clusters[-1].pids:  # (Those here have begun before.)
                _compare(iterator, alone, batches)
                batches += 1
            if time.monotonic() - began > most_seconds:
                raise SystemExit(f"only {happened.total()} ends within {most_seconds:.0f} s")
            kind = chance.choices(list(KINDS), weights=list(KINDS.values()))[0]
            if kind in ("raylet", "node", "lost"):
                nodes.at_least(2)
            _end_one(kind, _clusters[-1], nodes, chance)
            happened[kind] += 1
            print(f"{happened.total()}: {kind}, {time.monotonic() - began:.0f} s", flush=True)
        for _ in range(50):
            _compare(iterator, alone, batches)
            batches += 1
        (workers,) = iterator.stats().workers
    _clusters.clear()
    return happened, batches, workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ends", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-seconds", type=float, default=3600.0)
    parser.add_argument("--here", type=int, default=0, help="workers of this machine beside those")
    asked = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    ray_cluster.RayCluster = StormCluster  # type: ignore[misc]
    with cluster_here(tempfile.mkdtemp(prefix="ray", dir="/tmp")) as nodes:
        happened, batches, workers = storm(
            nodes, asked.ends, asked.seed, asked.most_seconds, asked.here
        )
    print(f"{happened.total()} ends ({dict(happened)}), {batches} batches, all equal")
    print(f"{workers.deaths} workers were replaced, {workers.repeated_tasks} tasks done again")


if __name__ == "__main__":
    main()
