"""A hundred ends of every kind against one stream, on a real Ray cluster on this machine.

    python -m tests.cluster.storm --ends 100 --seed 1

It takes many minutes. It ends with an error if the stream is not that of one process.
"""

import argparse
import collections
import os
import random
import signal
import tempfile
import time
from typing import Any

import numpy as np

import bushel
from bushel.workers.cluster import ray_cluster
from tests.cluster.conftest import Nodes, cluster_here

KINDS = ("actor", "process", "frozen", "raylet", "node", "two")


class _Seen(ray_cluster.RayCluster):
    """Ray as it is, with its actors at hand."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.actors: dict[int, Any] = {}
        self.pids: list[int] = []
        _clusters.append(self)

    def start(self, index: int) -> tuple[Any, Any]:
        self.actors[index], call = super().start(index)
        return self.actors[index], call

    def ready(self, call: Any) -> Any:
        ready = super().ready(call)
        if ready is not None:
            self.pids.append(ready.pid)
        return ready


_clusters: list[_Seen] = []


def _noisy(x: int, rng: np.random.Generator) -> int:
    time.sleep(0.002)
    return x + int(rng.integers(100))


def _stream() -> bushel.IterDataset[Any]:
    ds = bushel.MapDataset.range(1000).seed(3).shuffle().repeat().random_map(_noisy)
    return ds.to_iter_dataset().filter(lambda x: x % 5 != 0).batch(16)


def _end_one(kind: str, cluster: _Seen, nodes: Nodes, chance: random.Random) -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ends", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-seconds", type=float, default=3600.0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    ray_cluster.RayCluster = _Seen  # type: ignore[misc]
    ends = collections.Counter[str]()
    began = time.monotonic()
    with cluster_here(tempfile.mkdtemp(prefix="ray", dir="/tmp")) as nodes:
        nodes.at_least(2)
        there = _stream().ray_prefetch(bushel.RayOptions(num_workers=3))
        with iter(_stream()) as alone, iter(there) as iterator:
            batches = 0
            while ends.total() < arguments.ends:
                for _ in range(chance.randrange(1, 12)):
                    assert next(iterator).tolist() == next(alone).tolist(), batches
                    batches += 1
                if time.monotonic() - began > arguments.most_seconds:
                    break
                kind = chance.choices(KINDS, weights=(4, 4, 1, 1, 1, 2))[0]
                if kind in ("raylet", "node"):
                    nodes.at_least(2)
                _end_one(kind, _clusters[-1], nodes, chance)
                ends[kind] += 1
                print(f"{ends.total()}: {kind}, {time.monotonic() - began:.0f} s", flush=True)
            for _ in range(50):
                assert next(iterator).tolist() == next(alone).tolist(), batches
                batches += 1
    print(f"{ends.total()} ends ({dict(ends)}), {batches} batches, all equal")


if __name__ == "__main__":
    main()
