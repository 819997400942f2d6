"""Workers on a real Ray cluster of several nodes, on this machine: whatever ends, one stream.

They take minutes, so `make test-all` runs them; what a simulated cluster can show, `test_pool.py`
shows each time.
"""

import gc
import itertools
import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bushel
from bushel.errors import FatalElementError, WorkerError
from bushel.workers.cluster import ray_cluster
from tests.cluster.conftest import ON_A_CLUSTER, Nodes
from tests.cluster.seen import (
    SeenCluster,
    actors_alive,
    bytes_in_stores,
    clusters,
    kill_actor,
    kill_an_idle_one,
    kill_process,
    lose_results,
    node_with_work,
)
from tests.cluster.steps import (
    DEADLY,
    ends_its_process,
    fails_at_17,
    is_no_fifth,
    large,
    noisy,
    pipeline,
)
from tests.cluster.storm import StormCluster, storm
from tests.contract.events import run_events
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.contract.test_resizing import engines_of
from tests.workers.processes import is_alive, wait_until, workers_of
from tests.workers.random_pipelines import PROGRAMS, Program
from tests.workers.streams import assert_same_events

pytestmark = ON_A_CLUSTER


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
                happen[number](clusters[-1])
    return found


# The stream.


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_stream_and_its_states(workers: int, plain: list[Any]) -> None:
    with iter(pipeline()) as alone, iter(_on_ray(workers)) as there:
        for expected in plain:
            assert next(alone).tolist() == next(there).tolist() == expected
            assert alone.get_state() == there.get_state()
        assert next(there, None) is None


@pytest.mark.parametrize(
    ("name", "workers"), list(zip(list(PIPELINES)[::12], itertools.cycle((1, 2, 5))))
)
def test_any_pipeline(name: str, workers: int) -> None:
    kit = Kit()
    stream = stream_of(name, kit).ray_prefetch(bushel.RayOptions(num_workers=workers))
    assert_same_events(run_events(stream), run_events(stream_of(name, kit)))


@given(program=PROGRAMS, count=st.sampled_from([1, 2, 5]))
@settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=10,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_random_pipelines(program: Program, count: int) -> None:
    options = bushel.RayOptions(num_workers=count)
    there = program.build(lambda ds: ds.ray_prefetch(options))
    assert_same_events(run_events(there), run_events(program.build(lambda ds: ds)))


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


def _without_end() -> bushel.IterDataset[Any]:
    ds = bushel.MapDataset.range(600).seed(3).shuffle().repeat().random_map(noisy)
    return ds.to_iter_dataset().filter(is_no_fifth).batch(8)


def test_workers_here_beside_those_on_the_cluster(nodes: Nodes) -> None:
    happen: list[Callable[[SeenCluster], None]] = [
        lambda _: os.kill(min(workers_of()), signal.SIGKILL),
        kill_actor,
        lambda c: nodes.remove(node_with_work(c, nodes)),
        lambda _: None,
    ]
    options = bushel.RayOptions(num_workers=2, num_local_workers=1)
    with iter(_without_end()) as alone, iter(_without_end().ray_prefetch(options)) as there:
        (engine,) = engines_of(there)
        for something in happen:
            ran_before, since = _tasks_of_a_cluster(), 0
            # Those here go on until some of the cluster have begun, and done something.
            while since < 20 or _tasks_of_a_cluster() == ran_before:
                assert next(there).tolist() == next(alone).tolist()
                assert there.get_state() == alone.get_state()
                since += 1
            something(clusters[-1])
        assert engine.workers == 3 and engine.figures().deaths >= 2
        assert workers_of()
    assert wait_until(lambda: not workers_of())


def _tasks_of_a_cluster() -> int:
    return sum(cluster.outcomes for cluster in clusters)


def test_numbers_of_workers_here_and_there() -> None:
    def prepare(index: int, count: int) -> None:
        os.environ["BUSHEL_TEST_PLACE"] = f"{index} of {count}"

    def place(_: int) -> str:
        time.sleep(0.001)
        return os.environ["BUSHEL_TEST_PLACE"]

    stream = bushel.MapDataset.range(100).repeat().map(place).to_iter_dataset()
    options = bushel.RayOptions(num_workers=2, num_local_workers=2)
    expected = {f"{index} of 4" for index in range(4)}
    found = set()
    with iter(stream.ray_prefetch(options, worker_init_fn=prepare)) as iterator:
        while found != expected:
            found.add(next(iterator))
            assert found <= expected


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


@pytest.mark.parametrize("at", [0, 40])
@pytest.mark.parametrize("what", ["actor", "process", "idle", "raylet", "node", "two"])
def test_what_ends_does_not_show(what: str, at: int, nodes: Nodes, plain: list[Any]) -> None:
    happen: dict[str, Callable[[SeenCluster], None]] = {
        "actor": kill_actor,
        "process": kill_process,
        "idle": kill_an_idle_one,
        "raylet": lambda c: os.kill(Nodes.raylet(node_with_work(c, nodes)), signal.SIGKILL),
        "node": lambda c: nodes.remove(node_with_work(c, nodes)),
        "two": lambda c: (kill_actor(c), kill_process(c), None)[-1],
    }
    assert _through(_on_ray(), {at: happen[what]}) == plain


@pytest.mark.parametrize("here", [0, 1])
def test_a_short_storm(here: int, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "RayCluster", StormCluster)
    happened, batches, figures = storm(nodes, ends=8, seed=here, here=here)
    assert happened.total() == 8 and batches > 50 and figures.tasks


def test_a_frozen_worker(plain: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    stopped: list[int] = []

    def freeze(cluster: SeenCluster) -> None:
        stopped.append(max(cluster.ready_ones.items())[1].pid)
        os.kill(stopped[-1], signal.SIGSTOP)

    assert _through(_on_ray(2), {20: freeze}) == plain
    assert "is late with" in caplog.text
    caplog.clear()
    waited_for = _on_ray(2, hang_timeout=2.0, on_hang="wait")
    assert _through(waited_for, {20: freeze}) == plain
    assert re.search(r"has been at .* for \d+\.\d s\.", caplog.text)
    replaced = _on_ray(1, hang_timeout=2.0, on_hang="replace")
    assert _through(replaced, {20: freeze}) == plain
    with pytest.raises(WorkerError, match="taken for one that hangs"):
        _through(_on_ray(1, hang_timeout=2.0, on_hang="raise"), {20: freeze})
    assert wait_until(lambda: not any(map(is_alive, stopped)))


def test_results_that_are_lost_with_their_node(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    far = [nodes.add(resources={"far": 1}) for _ in range(2)]
    stream = bushel.MapDataset.range(400).map(large).to_iter_dataset()
    options = bushel.RayOptions(num_workers=2, resources={"far": 1})
    before = bytes_in_stores()
    with iter(stream.ray_prefetch(options)) as iterator:
        found = [int(next(iterator)[0]) for _ in range(20)]
        # Made, and not asked for: what nobody fetched lies where it was made.
        wait_until(lambda: bytes_in_stores() - before >= 4 << 20)
        pool = engines_of(iterator)[0]._pool[0]
        assert all(worker.tasks for worker in pool._roster)
        for worker in clusters[-1].ready_ones.values():
            os.kill(worker.pid, signal.SIGSTOP)
        gone = far.pop()
        nodes.remove(gone)
        nodes.add(resources={"far": 1})
        for worker in clusters[-1].ready_ones.values():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGCONT)
        found += [int(array[0]) for array in iterator]
    assert found == list(range(400))
    # (They are told of with the worker that had made them, which is gone with the node, too.)
    assert "is gone" in caplog.text


def test_results_that_are_lost_on_a_node_that_goes_on(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """Ray asks the node for ten minutes, and then says so."""
    import ray

    there = nodes.add(cpus=1, store_bytes=96 << 20, resources={"loses": 1})
    stream = bushel.MapDataset.range(300).map(large).to_iter_dataset()
    options = bushel.RayOptions(num_workers=1, resources={"loses": 1})
    with iter(stream.ray_prefetch(options)) as iterator:
        found = [int(next(iterator)[0]) for _ in range(20)]
        pool = engines_of(iterator)[0]._pool[0]
        (worker,) = pool._roster
        calls = [assigned.call for assigned in worker.tasks]
        assert calls
        ray.wait(calls, num_returns=len(calls), fetch_local=False)
        lose_results(there, calls)
        found += [int(array[0]) for array in iterator]
    assert found == list(range(300))
    told = rf"worker 0, process \d+ on .* \(node {there.node_id[:8]}\) had done positions \d+ to "
    told += r"\d+, and the result is lost: it has not come for \d+ s\. It is done again\."
    assert re.search(told, caplog.text)
    assert "is gone" not in caplog.text
    nodes.remove(there)


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
        drained.append(node_with_work(cluster, nodes).node_id)
        gcs = GcsClient(address=ray.get_runtime_context().gcs_address)
        gcs.drain_node(drained[0], 2, "it goes", 2**60)
        cluster._drained_at = -1e9

    def look(cluster: SeenCluster) -> None:
        after.append(cluster.draining())

    assert _through(_on_ray(), {20: drain, 60: look}) == plain
    assert after == [set(drained)]
    # A node that drains ends by itself once no worker is left on it; it may be about to.
    for node in nodes.workers:
        if node.node_id == drained[0]:
            nodes.remove(node)


def test_more_workers_than_room(plain: list[Any]) -> None:
    assert _through(_on_ray(9), {}) == plain


def test_no_room_at_all() -> None:
    there_is_none = r"no worker has found a place.*'none': 1.*nodes, with"
    with pytest.raises(WorkerError, match=there_is_none):
        next(iter(_on_ray(1, resources={"none": 1}, start_timeout=3)))


# Where workers are, and with what.


def test_labels_and_variables(nodes: Nodes) -> None:
    chosen = nodes.add(labels={"pool": "cpu"})
    stream = bushel.MapDataset.range(60).map(lambda x: (x, os.environ.get("BUSHEL_TEST_SAID")))
    options = bushel.RayOptions(
        num_workers=2,
        label_selector={"pool": "cpu"},
        runtime_env={"env_vars": {"BUSHEL_TEST_SAID": "something"}},
    )
    found = list(stream.to_iter_dataset().ray_prefetch(options))
    assert found == [(x, "something") for x in range(60)]
    assert {ready.node for ready in clusters[-1].ready_ones.values()} == {chosen.node_id}
    nodes.remove(chosen)


def test_a_source_in_memory_is_sent_once(nodes: Nodes) -> None:
    there = nodes.add(cpus=3, resources={"together": 3})
    source = np.arange(4 << 20).reshape(-1, 64)
    before = bytes_in_stores()
    stream = bushel.MapDataset.source(source).repeat().map(lambda row: int(row[0]))
    options = bushel.RayOptions(num_workers=3, resources={"together": 1})
    with iter(stream.to_iter_dataset().ray_prefetch(options)) as iterator:
        for number, first in enumerate(iterator):
            assert first == number % len(source) * 64
            if engines_of(iterator)[0]._pool[0].settled:
                break
        # Once here, and once there: those of a node have it together.
        assert bytes_in_stores() - before < 2.5 * source.nbytes
    nodes.remove(there)


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
    # What is under way lies on the worker's node, and what comes next of each worker on the
    # trainer's, too, and each worker may be at one task more than was meant when it was given out;
    # then there is what Ray has not cleared away since the last second. All would be gigabytes.
    task = 32 << 20
    most, under_way = 12 * task, 2 * 3 * task
    with iter(stream.ray_prefetch(bushel.RayOptions(num_workers=2))) as iterator:
        for _ in range(60):
            next(iterator)
            assert bytes_in_stores() - before < most
        wait_until(lambda: bytes_in_stores() - before <= under_way)
        for _ in range(20):
            assert bytes_in_stores() - before <= under_way
    wait_until(lambda: bytes_in_stores() <= before)
    assert bytes_in_stores() <= before


def test_a_forgotten_iterator_leaves_nothing() -> None:
    before = bytes_in_stores()
    iterator = iter(_on_ray(2))
    next(iterator)
    assert actors_alive()
    del iterator
    clusters.clear()
    gc.collect()
    wait_until(lambda: not actors_alive() and bytes_in_stores() <= before)
    assert not actors_alive()
    assert bytes_in_stores() <= before
