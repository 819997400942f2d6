"""Workers on a real Ray cluster of several nodes, on this machine: whatever ends, one stream.

They take minutes, so `make test-all` runs them; what a simulated cluster can show, `test_pool.py`
shows each time.
"""

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.errors import FatalElementError, WorkerError
from bushel.workers.cluster import ray_cluster
from tests.cluster.conftest import Nodes
from tests.cluster.steps import (
    DEADLY,
    ends_its_process,
    fails_at_17,
    large,
    pipeline,
)
from tests.contract.events import run_events
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.thorough import THOROUGH
from tests.workers.processes import is_alive, wait_until
from tests.workers.streams import assert_same_events

pytestmark = pytest.mark.skipif(
    not THOROUGH, reason="takes minutes; `make test-all` runs it on a Ray cluster"
)


class SeenCluster(ray_cluster.RayCluster):
    """Ray as it is; tests know its actors."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.actors: dict[int, Any] = {}
        self.ready_ones: dict[int, Any] = {}
        self._starting: dict[Any, int] = {}
        _clusters.append(self)

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


_clusters: list[SeenCluster] = []


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch, nodes: Nodes) -> Iterator[list[SeenCluster]]:
    monkeypatch.setattr(ray_cluster, "RayCluster", SeenCluster)
    nodes.at_least(2)
    yield _clusters
    _clusters.clear()
    gc.collect()
    wait_until(lambda: not actors_alive())
    assert not actors_alive()


def actors_alive() -> list[Any]:
    """The workers that Ray knows of, whoever started them."""
    from ray._private.state import state

    table = state.actor_table(None).values()
    return [a for a in table if a["ActorClassName"].endswith("Worker") and a["State"] != "DEAD"]


def bytes_in_stores() -> int:
    import grpc
    import ray
    from ray._private.internal_api import get_memory_info_reply, get_state_from_address

    state = get_state_from_address(ray.get_runtime_context().gcs_address)
    total = 0
    for node in ray.nodes():
        where = node["NodeManagerAddress"], node["NodeManagerPort"]
        # One that another test ended may not be known to be gone yet; it holds nothing.
        with suppress(grpc.RpcError):
            if node["Alive"]:
                stats = get_memory_info_reply(state, *where).store_stats
                total += int(stats.object_store_bytes_used)
    return total


@pytest.fixture(scope="module")
def plain() -> list[Any]:
    return [batch.tolist() for batch in pipeline()]


def _on_ray(workers: int = 3, **options: Any) -> bushel.IterDataset[Any]:
    return pipeline().ray_prefetch(bushel.RayOptions(num_workers=workers, **options))


def _through(
    stream: bushel.IterDataset[Any], happen: dict[int, Callable[[SeenCluster], None]]
) -> list[Any]:
    """The whole stream, while at some elements something happens to its cluster."""
    found = []
    with iter(stream) as iterator:
        for number, batch in enumerate(iterator):
            found.append(batch.tolist())
            if number in happen:
                happen[number](_clusters[-1])
    return found


# The stream.


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_stream_and_its_states(workers: int, plain: list[Any]) -> None:
    with iter(pipeline()) as alone, iter(_on_ray(workers)) as there:
        for expected in plain:
            assert next(alone).tolist() == next(there).tolist() == expected
            assert alone.get_state() == there.get_state()
        assert next(there, None) is None


@pytest.mark.parametrize("name", list(PIPELINES)[::12])
def test_any_pipeline(name: str) -> None:
    kit = Kit()
    stream = stream_of(name, kit).ray_prefetch(bushel.RayOptions(num_workers=2))
    assert_same_events(run_events(stream), run_events(stream_of(name, kit)))


def test_states_go_on_anywhere(plain: list[Any]) -> None:
    rng = random.Random(7)
    local = pipeline().mp_prefetch(bushel.MultiprocessingOptions(num_workers=2))
    for one, other in (
        (_on_ray(2), local),
        (local, _on_ray(3)),
        (_on_ray(1), pipeline()),
        (pipeline(), _on_ray(4)),
    ):
        stop = rng.randrange(1, len(plain) - 1)
        with iter(one) as iterator:
            found = [next(iterator).tolist() for _ in range(stop)]
            state = iterator.get_state()
        with iter(other) as iterator:
            iterator.set_state(state)
            assert found + [batch.tolist() for batch in iterator] == plain


def test_two_drivers_with_lanes_are_one() -> None:
    def of(host: int, hosts: int) -> bushel.IterDataset[Any]:
        shard = bushel.sharding.ShardOptions(host, hosts)
        ds = bushel.MapDataset.range(100).seed(1).shuffle().lanes(4, shard_options=shard)
        return ds.map(lambda x: x * 3).batch(8)

    options = bushel.RayOptions(num_workers=1)
    with iter(of(0, 2).ray_prefetch(options)) as first, iter(of(1, 2).ray_prefetch(options)) as two:
        both = [np.concatenate(parts).tolist() for parts in zip(first, two, strict=True)]
    assert both == [batch.tolist() for batch in of(0, 1)]


# What ends.


def _kill_actor(cluster: SeenCluster) -> None:
    import ray

    ray.kill(cluster.actors[0])


def _kill_process(cluster: SeenCluster) -> None:
    os.kill(max(cluster.ready_ones.items())[1].pid, signal.SIGKILL)


def _node_with_work(cluster: SeenCluster, nodes: Nodes) -> Any:
    """A node beside the head, with a worker if one has any."""
    used = {ready.node for ready in cluster.ready_ones.values()}
    return max(nodes.workers, key=lambda node: node.node_id in used)


@pytest.mark.parametrize("at", [0, 40])
@pytest.mark.parametrize("what", ["actor", "process", "raylet", "node", "two"])
def test_what_ends_does_not_show(what: str, at: int, nodes: Nodes, plain: list[Any]) -> None:
    happen: dict[str, Callable[[SeenCluster], None]] = {
        "actor": _kill_actor,
        "process": _kill_process,
        "raylet": lambda c: os.kill(Nodes.raylet(_node_with_work(c, nodes)), signal.SIGKILL),
        "node": lambda c: nodes.remove(_node_with_work(c, nodes)),
        "two": lambda c: (_kill_actor(c), _kill_process(c), None)[-1],
    }
    assert _through(_on_ray(), {at: happen[what]}) == plain


def test_a_frozen_worker(plain: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    stopped: list[int] = []

    def freeze(cluster: SeenCluster) -> None:
        stopped.append(max(cluster.ready_ones.items())[1].pid)
        os.kill(stopped[-1], signal.SIGSTOP)

    assert _through(_on_ray(2), {20: freeze}) == plain
    assert "is late with" in caplog.text
    replaced = _on_ray(1, hang_timeout=2.0, on_hang="replace")
    assert _through(replaced, {20: freeze}) == plain
    with pytest.raises(WorkerError, match="taken for one that hangs"):
        _through(_on_ray(1, hang_timeout=2.0, on_hang="raise"), {20: freeze})
    assert wait_until(lambda: not any(map(is_alive, stopped)))


def test_an_element_that_ends_its_process_is_named() -> None:
    stream = bushel.MapDataset.range(400).map(ends_its_process).to_iter_dataset()
    found: list[Any] = []
    with iter(stream.ray_prefetch(bushel.RayOptions(num_workers=2))) as iterator:
        with pytest.raises(FatalElementError, match=rf"position {DEADLY}.*map\(ends_its_process\)"):
            found.extend(iterator)
        assert found == list(range(DEADLY))


def test_an_exception_is_that_of_local_workers() -> None:
    stream = bushel.MapDataset.range(40).map(fails_at_17).to_iter_dataset()
    with pytest.raises(KeyError) as raised:
        list(stream.ray_prefetch(bushel.RayOptions(num_workers=2)))
    assert any("map(fails_at_17)" in note for note in raised.value.__notes__)


def test_a_node_that_drains_gets_no_tasks(nodes: Nodes, plain: list[Any]) -> None:
    import ray
    from ray._raylet import GcsClient

    drained: list[str] = []
    after: list[set[str]] = []

    def drain(cluster: SeenCluster) -> None:
        drained.append(_node_with_work(cluster, nodes).node_id)
        gcs = GcsClient(address=ray.get_runtime_context().gcs_address)
        gcs.drain_node(drained[0], 2, "it goes", 2**60)
        cluster._drained_at = -1e9

    def look(cluster: SeenCluster) -> None:
        after.append(cluster.draining())

    assert _through(_on_ray(), {20: drain, 60: look}) == plain
    assert after == [set(drained)]
    nodes.remove(next(node for node in nodes.workers if node.node_id == drained[0]))


def test_more_workers_than_room(plain: list[Any]) -> None:
    assert _through(_on_ray(9), {}) == plain


def test_no_room_at_all() -> None:
    there_is_none = r"no worker has found a place.*'none': 1.*free on them is"
    with pytest.raises(WorkerError, match=there_is_none):
        next(iter(_on_ray(1, resources={"none": 1}, start_timeout=3)))


# Arrays, memory, what is left.


def test_batches_may_be_written_to() -> None:
    stream = bushel.MapDataset.range(40).map(large).to_iter_dataset()
    kept = []
    with iter(stream.ray_prefetch(bushel.RayOptions(num_workers=2))) as iterator:
        for number, array in enumerate(iterator):
            assert (array == number).all()
            array[:] = -number
            kept.append(array)
    assert [int(array[0]) for array in kept] == [-number for number in range(40)]
    assert all((array == array[0]).all() for array in kept)
    with iter(stream.ray_prefetch(bushel.RayOptions(num_workers=1, writable=False))) as iterator:
        views = list(iterator)
    assert not any(array.flags.writeable for array in views)
    assert all((array == number).all() for number, array in enumerate(views))


def test_a_slow_consumer_is_waited_for() -> None:
    stream = bushel.MapDataset.range(4000).map(large).to_iter_dataset()
    before = bytes_in_stores()
    # 32 tasks of 8 MB, in the stores of the worker's node and of the trainer's; all of it would
    # be gigabytes.
    most = 512 << 20
    with iter(stream.ray_prefetch(bushel.RayOptions(num_workers=2))) as iterator:
        for _ in range(60):
            next(iterator)
            assert bytes_in_stores() - before < most
        for _ in range(20):
            assert bytes_in_stores() - before < most
    wait_until(lambda: bytes_in_stores() <= before)
    assert bytes_in_stores() <= before


def test_a_forgotten_iterator_leaves_nothing() -> None:
    before = bytes_in_stores()
    iterator = iter(_on_ray(2))
    next(iterator)
    assert actors_alive()
    del iterator
    _clusters.clear()
    gc.collect()
    wait_until(lambda: not actors_alive() and bytes_in_stores() <= before)
    assert not actors_alive()
    assert bytes_in_stores() <= before


# Programs of their own.


def _program(text: str, **environment: str) -> "subprocess.Popen[str]":
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


def test_a_killed_driver_leaves_nothing() -> None:
    program = _program("""
        import bushel, time
        from tests.cluster.steps import pipeline
        iterator = iter(pipeline().ray_prefetch(bushel.RayOptions(num_workers=2)))
        print(len(next(iterator)), flush=True)
        time.sleep(1000)
    """)
    assert program.stdout is not None
    said = program.stdout.readline()
    alive = actors_alive()
    program.kill()
    _, errors = program.communicate()
    assert said == "8\n", errors
    assert alive
    wait_until(lambda: not actors_alive())
    assert not actors_alive()


def test_a_program_that_just_ends() -> None:
    program = _program("""
        import bushel
        from tests.cluster.steps import pipeline
        iterator = iter(pipeline().ray_prefetch(bushel.RayOptions(num_workers=2)))
        print(len(next(iterator)))
    """)
    said, errors = program.communicate(timeout=120)
    assert (said, program.returncode) == ("8\n", 0), errors


def test_classes_of_the_main_module(tmp_path: Path) -> None:
    program = _program("""
        import bushel
        from dataclasses import dataclass
        @dataclass
        class Point:
            x: int
        stream = bushel.MapDataset.range(20).map(lambda x: Point(x)).to_iter_dataset()
        found = list(stream.ray_prefetch(bushel.RayOptions(num_workers=2)))
        assert {type(each) for each in found} == {Point}
        assert found == [Point(x) for x in range(20)]
        print("equal")
    """)
    said, errors = program.communicate(timeout=120)
    # Ray itself prints there, of nodes that other tests ended.
    assert said.endswith("equal\n"), said + errors


def test_a_path_that_nodes_do_not_have(tmp_path: Path) -> None:
    path = tmp_path / "some.npy"
    np.save(path, np.arange(20))
    lines = tmp_path / "some.jsonl"
    lines.write_text('{"x": 1}\n' * 20)
    options = bushel.RayOptions(num_workers=2)
    mapped = bushel.MapDataset.source(np.load(path, mmap_mode="r")).to_iter_dataset()
    opened = bushel.MapDataset.source(bushel.open(str(lines))).to_iter_dataset()
    of_a_map, of_lines = (iter(each.ray_prefetch(options)) for each in (mapped, opened))
    path.rename(tmp_path / "another.npy")
    lines.rename(tmp_path / "another.jsonl")
    with pytest.raises(WorkerError, match=r"the node of process .* does not have .*some\.jsonl"):
        next(of_lines)
    with pytest.raises(WorkerError, match=r"(?s)process .*node .*could not begin.*some\.npy"):
        next(of_a_map)


def test_a_module_that_nodes_do_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "only_here.py"
    module.write_text("def plus_one(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    module.unlink()
    stream = bushel.MapDataset.range(20).map(only_here.plus_one).to_iter_dataset()
    with pytest.raises(WorkerError, match=r"(?s)node .*could not begin.*only_here"):
        next(iter(stream.ray_prefetch(bushel.RayOptions(num_workers=2))))


def test_another_bushel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bushel, "__version__", "0.0.1")
    with pytest.raises(WorkerError, match=r"process .*node.* has Python .* has .*bushel 0\.0\.1"):
        next(iter(_on_ray(1)))


def test_init_function_of_workers() -> None:
    def prepare(index: int, count: int) -> None:
        os.environ["BUSHEL_TEST_PLACE"] = f"{index} of {count}"

    stream = bushel.MapDataset.range(200).map(lambda _: os.environ["BUSHEL_TEST_PLACE"])
    options = bushel.RayOptions(num_workers=2)
    found = set(stream.to_iter_dataset().ray_prefetch(options, worker_init_fn=prepare))
    assert found <= {"0 of 2", "1 of 2"} and found


def test_a_node_short_of_memory_is_not_blamed_on_an_element() -> None:
    program = _program(
        """
        import bushel
        from tests.cluster.steps import pipeline
        options = bushel.RayOptions(num_workers=1, address="local")
        try:
            list(pipeline().ray_prefetch(options))
        except bushel.errors.WorkerError as error:
            print(error)
        """,
        # Of a cluster of its own, each of whose workers takes too much.
        RAY_memory_usage_threshold="0.01",
        RAY_memory_monitor_refresh_ms="50",
        RAY_task_oom_retries="0",
    )
    said, errors = program.communicate(timeout=240)
    assert "for want of memory" in said or "before they had begun" in said, said + errors
    assert "memory" in said


def test_workers_of_ray_train_that_have_neither_jax_nor_torch(tmp_path: Path) -> None:
    program = _program(f"""
        import json, sys
        from pathlib import Path
        import bushel, ray, ray.train
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
        folder = Path({str(tmp_path)!r})

        def batches(**hosts):
            ds = bushel.MapDataset.range(300).seed(1).shuffle()
            return ds.lanes(4, **hosts).filter(lambda x: x % 3 > 0).batch(8)

        def train(config):
            rank = ray.train.get_context().get_world_rank()
            found = [batch.tolist() for batch in batches()]
            (folder / str(rank)).write_text(json.dumps([found, "torch" in sys.modules]))

        ray.init(address="local", num_cpus=4, include_dashboard=False)
        scaling = ray.train.ScalingConfig(num_workers=2)
        run = ray.train.RunConfig(name="run", storage_path=str(folder))
        DataParallelTrainer(train, scaling_config=scaling, run_config=run).fit()
        alone = [b.tolist() for b in batches(shard_options=bushel.sharding.NoSharding())]
        (zero, _), (one, torch) = (json.loads((folder / rank).read_text()) for rank in "01")
        assert len(zero) == len(one) == len(alone), (len(zero), len(one), len(alone))
        assert [a + b for a, b in zip(zero, one)] == alone
        print("equal", torch)
    """)
    said, errors = program.communicate(timeout=240)
    assert said.endswith("equal False\n"), said + errors
