"""Ray as it is, with its actors, processes and stores at hand; and ways to end them."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bushel.workers.cluster import ray_cluster
from tests.cluster.conftest import Nodes
from tests.workers.processes import wait_until

# What fills a store, a part at a time, and how many parts are enough for any here.
_FILL_BYTES, _MOST_FILLS = 8 << 20, 400


class SeenCluster(ray_cluster.RayCluster):
    """Ray as it is; tests know its actors."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.actors: dict[int, Any] = {}
        self.ready_ones: dict[int, Any] = {}
        self._starting: dict[Any, int] = {}
        self.outcomes = 0
        self.runs: list[Any] = []
        clusters.append(self)

    def start(self, index: int) -> tuple[Any, Any]:
        self.actors[index], call = super().start(index)
        self._starting[call] = index
        self.ready_ones.pop(index, None)
        return self.actors[index], call

    def ready(self, call: Any) -> Any:
        ready = super().ready(call)
        if call in self._starting:
            self.ready_ones[self._starting.pop(call)] = ready
        return ready

    def run(self, worker: Any, message: Any) -> Any:
        self.runs.append(super().run(worker, message))
        return self.runs[-1]

    def outcome(self, call: Any) -> Any:
        outcome = super().outcome(call)
        self.outcomes += 1
        return outcome


clusters: list[SeenCluster] = []


def actors_alive() -> list[Any]:
    """The workers that Ray knows of, whoever started them."""
    from ray._private.state import state

    table = state.actor_table(None).values()
    return [a for a in table if a["ActorClassName"].endswith("Worker") and a["State"] != "DEAD"]


def bytes_in_stores() -> int:
    """Of all nodes together: any of them asks the others."""
    import ray
    from ray._private.internal_api import get_memory_info_reply, get_state_from_address

    here = ray.get_runtime_context()
    state = get_state_from_address(here.gcs_address)
    (node,) = [node for node in ray.nodes() if node["NodeID"] == here.get_node_id()]
    where = node["NodeManagerAddress"], node["NodeManagerPort"]
    stats = get_memory_info_reply(state, *where).store_stats
    return int(stats.object_store_bytes_used)


def kill_actor(cluster: SeenCluster) -> None:
    import ray

    ray.kill(cluster.actors[0])


def kill_process(cluster: SeenCluster) -> None:
    os.kill(max(cluster.ready_ones.items())[1].pid, signal.SIGKILL)


def kill_an_idle_one(cluster: SeenCluster) -> None:
    """Ends a process when all workers have done what they were given."""
    wait_until(lambda: all(map(cluster.is_made, cluster.runs)))
    kill_process(cluster)


def node_with_work(cluster: SeenCluster, nodes: Nodes) -> Any:
    """A node beside the head, with a worker if one has any."""
    used = {ready.node for ready in cluster.ready_ones.values()}
    return max(nodes.workers, key=lambda node: node.node_id in used)


def started(text: str, **environment: str) -> "subprocess.Popen[str]":
    import ray

    root = str(Path(__file__).parents[2])
    variables = os.environ | {
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=variables, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def lose_results(node: Any, calls: Sequence[Any]) -> None:
    """Has a node that goes on lose results that it has, as far as they lie there.

    Its store is filled until it writes them to files, and the files are removed.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    class Filler:
        def __init__(self) -> None:
            self._held: list[Any] = []

        def fill(self) -> None:
            self._held.append(ray.put(np.ones(_FILL_BYTES, np.uint8)))

    there = NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
    filler = ray.remote(Filler).options(num_cpus=0, scheduling_strategy=there).remote()
    for _ in range(_MOST_FILLS):
        told = ray.experimental.get_object_locations(list(calls))
        if all(found["did_spill"] for found in told.values() if node.node_id in found["node_ids"]):
            break
        ray.get(filler.fill.remote())
    folder = ray._private.worker.global_worker.node.get_session_dir_path()
    for path in Path(folder).glob(f"*spilled*{node.node_id}/*"):
        path.unlink()
    ray.kill(filler)
