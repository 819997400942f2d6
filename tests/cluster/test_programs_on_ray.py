"""Programs with workers on a real Ray cluster: how they end, and what their nodes lack."""

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.errors import WorkerError
from tests.cluster.seen import actors_alive, started
from tests.cluster.steps import pipeline
from tests.thorough import THOROUGH
from tests.workers.processes import wait_until

pytestmark = [
    pytest.mark.skipif(
        not THOROUGH, reason="takes minutes; `make test-all` runs it on a Ray cluster"
    ),
    pytest.mark.usefixtures("seen"),
]


def _on_ray(workers: int, **options: Any) -> bushel.IterDataset[Any]:
    return pipeline().ray_prefetch(bushel.RayOptions(num_workers=workers, **options))


def test_a_killed_driver_leaves_nothing() -> None:
    program = started("""
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
    program = started("""
        import bushel
        from tests.cluster.steps import pipeline
        iterator = iter(pipeline().ray_prefetch(bushel.RayOptions(num_workers=2)))
        print(len(next(iterator)))
    """)
    said, errors = program.communicate(timeout=120)
    assert (said, program.returncode) == ("8\n", 0), errors


def test_classes_of_the_main_module(tmp_path: Path) -> None:
    program = started("""
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
    program = started(
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
    assert "for lack of memory" in said or "before they had begun" in said, said + errors
    assert "memory" in said


def test_workers_of_ray_train_that_have_neither_jax_nor_torch(tmp_path: Path) -> None:
    program = started(f"""
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


def test_the_head_is_lost(tmp_path: Path) -> None:
    """What Ray makes of it: workers go on, and some time later it ends the trainer's process."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # Of sockets, whose paths are short.
    program = started(
        """
        import os, signal, time
        import bushel, ray
        from ray.cluster_utils import Cluster
        from tests.cluster.steps import pipeline
        here = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=here)
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        plain = [batch.tolist() for batch in pipeline()]
        iterator = iter(pipeline().ray_prefetch(bushel.RayOptions(num_workers=2)))
        found = [next(iterator).tolist() for _ in range(20)]
        (head,) = cluster.head_node.all_processes["gcs_server"]
        os.kill(head.process.pid, signal.SIGKILL)
        found += [next(iterator).tolist() for _ in range(20)]
        print("equal" if found == plain[:40] else "different", flush=True)
        try:
            time.sleep(1000)
        finally:
            print("an exception")
        """,
        RAY_TMPDIR=folder,
        # A minute, unless somebody says so. Some batches have to come meanwhile.
        RAY_gcs_rpc_server_reconnect_timeout_s="15",
    )
    try:
        said, errors = program.communicate(timeout=240)
    finally:
        end_all_of(folder)
    assert said.splitlines()[-1:] == ["equal"], said + errors
    assert program.returncode not in (0, None)


def end_all_of(folder: str) -> None:
    """Ends the processes of a cluster that nobody looks after any more."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            told = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            if folder.encode() in told and int(path.name) != os.getpid():
                os.kill(int(path.name), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
