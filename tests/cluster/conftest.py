"""A real cluster on this machine: several of Ray's nodes, each with processes of its own."""

import fcntl
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.thorough import THOROUGH

# What tests on a real cluster are marked with.
ON_A_CLUSTER = [
    pytest.mark.skipif(
        not THOROUGH, reason="takes minutes; `make test-all` runs it on a Ray cluster"
    ),
    pytest.mark.usefixtures("seen"),
]

# Paths of sockets may not be long.
_SHORT = "/tmp"
# Of each node: two tasks for each worker, and some that are not cleared away yet.
_STORE_BYTES = 256 << 20
# Held by the process of a run that has the cluster.
_LOCK = Path(tempfile.gettempdir(), f"bushel-tests-ray-{os.getuid()}.lock")


# A node of Ray's gives up its start after half a minute, which a busy machine may well take.
_STARTS = 4


def _started(start: Callable[[], Any]) -> Any:
    """What Ray starts: once more where it could not, without what is left of the time before."""
    import psutil

    def children() -> "set[psutil.Process]":
        return set(psutil.Process().children(recursive=True))

    before = children()
    for more in reversed(range(_STARTS)):
        try:
            return start()
        except Exception:  # Ray has no type of its own for it.
            for process in children() - before:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                    process.wait()
            if not more:
                raise
    raise AssertionError


class Nodes:
    """The cluster: nodes come and go."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.head = cluster.head_node

    @property
    def workers(self) -> list[Any]:
        """The nodes beside the head that have not been killed."""
        return [
            node
            for node in self._cluster.worker_nodes
            if node.all_processes["raylet"][0].process.poll() is None
        ]

    def add(self, cpus: int = 2, store_bytes: int = _STORE_BYTES, **more: Any) -> Any:
        def add_node() -> Any:
            return self._cluster.add_node(
                num_cpus=cpus, object_store_memory=store_bytes, include_dashboard=False, **more
            )

        return _started(add_node)

    def remove(self, node: Any) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

    @staticmethod
    def raylet(node: Any) -> int:
        """The process of a node's own, without which the node is gone."""
        process = node.all_processes["raylet"][0].process
        return int(process.pid)

    def at_least(self, count: int) -> None:
        """Sees that there are so many nodes beside the head that are alive."""
        for _ in range(count - len(self.workers)):
            self.add()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A cluster: one at a time on this machine, whichever process of a run has the tests of it."""
    if find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    with (
        open(_LOCK, "w") as lock,
        tempfile.TemporaryDirectory(prefix="ray", dir=_SHORT, ignore_cleanup_errors=True) as folder,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        with cluster_here(folder) as made:
            yield made


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, nodes: Nodes) -> Iterator[None]:
    """Workers that tests can end, on a cluster of at least three nodes; none is left after it."""
    from bushel.workers.cluster import ray_cluster
    from tests.cluster.seen import SeenCluster, actors_alive, clusters
    from tests.workers.processes import wait_until

    monkeypatch.setattr(ray_cluster, "RayCluster", SeenCluster)
    nodes.at_least(2)
    yield
    clusters.clear()
    gc.collect()
    wait_until(lambda: not actors_alive())
    assert not actors_alive()


@contextmanager
def cluster_here(folder: str) -> Iterator[Nodes]:
    """Starts a cluster of a head and a node, to which this program is connected."""
    home = Path(folder, "home")
    home.mkdir()
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": folder,
        "HOME": str(home),
        # What others take of this machine's memory is no concern of these tests.
        "RAY_memory_monitor_refresh_ms": "0",
    }
    keep = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    import ray
    from ray.cluster_utils import Cluster

    def make_cluster() -> Any:
        return Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "object_store_memory": _STORE_BYTES,
                "include_dashboard": False,
            },
        )

    cluster = _started(make_cluster)
    try:
        made = Nodes(cluster)
        made.add()
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        yield made
    finally:
        ray.shutdown()
        cluster.shutdown()
        for name, value in keep.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
