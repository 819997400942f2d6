"""The pool on a cluster that is not there: whatever ends, the stream is the same."""

import os
import platform
import random
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bushel
from benchmarks.simulated_cluster import Faults, SimulatedCluster
from bushel.cli.main import main
from bushel.workers.cluster import ray_cluster
from bushel.workers.cluster.cluster import ResultLost
from bushel.write import write_job
from bushel.write.shard_counts import ShardCounts
from tests.contract.events import events_of, run_events
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.property.profile import tried
from tests.thorough import examples
from tests.workers.streams import assert_same_events

Make = Callable[..., list[SimulatedCluster]]


def _noisy(x: int, rng: np.random.Generator) -> int:
    return x + int(rng.integers(100))


def _pipeline() -> bushel.IterDataset[Any]:
    ds = bushel.MapDataset.range(400).seed(3).shuffle().repeat(2).random_map(_noisy)
    return ds.to_iter_dataset().filter(lambda x: x % 5 != 0).batch(8).map(lambda b: b * 2)


PLAIN = [batch.tolist() for batch in _pipeline()]
# Of records, or of elements that are sent to workers.
POSITIONS = r"positions (?:\d+ to \d+|from \d+ on)"


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Has `ray_prefetch` run on simulated clusters, which are in the list."""
    made: list[SimulatedCluster] = []

    def make(**how: Any) -> list[SimulatedCluster]:
        def cluster(options: Any, luggage: Any, paths: Any) -> SimulatedCluster:
            made.append(SimulatedCluster(luggage, **how))
            return made[-1]

        monkeypatch.setattr(ray_cluster, "RayCluster", cluster)
        return made

    yield make


def _with(options: bushel.RayOptions, step_seconds: float = 0.0, made: Any = ()) -> list[Any]:
    seen = []
    with iter(_pipeline().ray_prefetch(options)) as iterator:
        for batch in iterator:
            seen.append(batch.tolist())
            for cluster in made:
                cluster.spend(step_seconds)
    return seen


def test_one_stream(simulated: Make) -> None:
    made = simulated()
    for workers in (1, 2, 5):
        assert _with(bushel.RayOptions(num_workers=workers)) == PLAIN
    assert len(made) == 3


@settings(tried, max_examples=examples(12))
@given(
    seed=st.integers(0, 10**6),
    workers=st.integers(1, 9),
    process=st.sampled_from([10.0, 60.0, float("inf")]),
    node=st.sampled_from([20.0, 100.0, float("inf")]),
    memory=st.sampled_from([60.0, float("inf")]),
    frozen=st.sampled_from([100.0, float("inf")]),
    step=st.sampled_from([0.0, 0.3]),
)
def test_whatever_ends(
    seed: int, workers: int, process: float, node: float, memory: float, frozen: float, step: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        made: list[SimulatedCluster] = []

        def cluster(options: Any, luggage: Any, paths: Any) -> SimulatedCluster:
            made.append(
                SimulatedCluster(
                    luggage,
                    seed=seed,
                    faults=Faults(process, node, memory, frozen),
                    task_seconds=lambda r: r.choice([0.01, 0.05, 0.05, 0.3]),
                    start_seconds=0.1,
                )
            )
            return made[-1]

        patch.setattr(ray_cluster, "RayCluster", cluster)
        options = bushel.RayOptions(num_workers=workers, start_timeout=1e6)
        assert _with(options, step, made) == PLAIN
    assert made[0].most_under_way <= workers


@pytest.mark.parametrize("name", PIPELINES)
def test_any_pipeline_resumed_anywhere(name: str, simulated: Make) -> None:
    simulated(start_seconds=0.1, faults=Faults(process=0.3), seed=len(name))
    inline = stream_of(name, Kit())
    expected = run_events(inline)
    half = len(expected) // 2
    there = inline.ray_prefetch(bushel.RayOptions(num_workers=2))
    with iter(inline) as plain, iter(there) as iterator:
        assert_same_events(events_of(iterator), expected)
        for _ in range(half):
            next(plain)
        iterator.set_state(plain.get_state())
        assert_same_events(events_of(iterator), expected[half:])


def test_states_go_on_with_local_workers_and_back(simulated: Make) -> None:
    simulated()
    rng = random.Random(5)
    on_a_cluster = _pipeline().ray_prefetch(bushel.RayOptions(num_workers=3))
    local = _pipeline().mp_prefetch(bushel.MultiprocessingOptions(num_workers=2))
    for one, other in ((on_a_cluster, local), (local, on_a_cluster), (on_a_cluster, _pipeline())):
        stop = rng.randrange(1, len(PLAIN) - 1)
        with iter(one) as iterator:
            seen = [next(iterator).tolist() for _ in range(stop)]
            state = iterator.get_state()
        with iter(other) as iterator:
            iterator.set_state(state)
            assert seen + [batch.tolist() for batch in iterator] == PLAIN


def test_a_late_task_is_done_by_two(simulated: Make, caplog: pytest.LogCaptureFixture) -> None:
    late = iter([0.05, 500.0])
    made = simulated(task_seconds=lambda _: next(late, 0.05))
    assert _with(bushel.RayOptions(num_workers=3)) == PLAIN
    assert made[0].now() < 100
    assert "is late with" in caplog.text


def test_a_lost_result_is_made_again(
    simulated: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a worker that is there, on a node that is there: a store may lose what it has."""
    simulated()
    outcome = SimulatedCluster.outcome
    lost: list[Any] = []

    def loses_some(self: SimulatedCluster, call: Any) -> Any:
        if call.message.task in (3, 7) and call.message.task not in lost:
            lost.append(call.message.task)
            raise ResultLost("the store has lost it.")
        return outcome(self, call)

    monkeypatch.setattr(SimulatedCluster, "outcome", loses_some)
    there = _pipeline().ray_prefetch(bushel.RayOptions(num_workers=2))
    with bushel.iterate(there, stats=True) as iterator:
        assert [batch.tolist() for batch in iterator] == PLAIN
        (workers,) = iterator.stats().workers
    assert lost == [3, 7]
    assert (workers.deaths, workers.repeated_tasks) == (0, 2)
    told = rf"worker \d, process 1 on .*simulated \(node .*\) had done {POSITIONS}, and "
    told += r"the result is lost: the store has lost it\. It is done again\."
    assert len(re.findall(told, caplog.text)) == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_a_result_that_never_comes_is_made_again(
    workers: int, simulated: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker is done, its node is there, and the cluster says nothing for minutes."""
    gone: list[int] = []

    def never_comes(message: Any) -> bool:
        # (The same task, the first two times that it is done; and another one, once.)
        is_lost = message.task in (3, 7) and gone.count(message.task) < (
            2 if message.task == 3 else 1
        )
        gone.extend([message.task] * is_lost)
        return is_lost

    made = simulated(never_comes=never_comes)
    assert _with(bushel.RayOptions(num_workers=workers)) == PLAIN
    assert sorted(gone) == [3, 3, 7]
    told = rf"worker \d, process 1 on .*simulated \(node .*\) had done {POSITIONS}, and "
    told += r"the result is lost: it has not come for \d+ s\. It is done again\."
    assert re.search(told, caplog.text)
    # Twice as long the second time, for a network that is slow; where others are there, they
    # do it meanwhile.
    assert made[0].now() < (120 if workers == 1 else 60)


@pytest.mark.parametrize("why", ["process", "node", "memory"])
def test_ends_are_told_with_node_and_task(
    why: str, simulated: Make, caplog: pytest.LogCaptureFixture
) -> None:
    simulated(start_seconds=0.1, seed=2, faults=Faults(**{why: 0.5}))
    options = bushel.RayOptions(num_workers=2, start_timeout=1e6)
    with bushel.iterate(_pipeline().ray_prefetch(options), stats=True) as iterator:
        assert [batch.tolist() for batch in iterator] == PLAIN
        (workers,) = iterator.stats().workers
    of_whom = r"worker \d, process 1 on \d+-simulated \(node \d+-\w+\) is gone "
    had = rf"while it had {POSITIONS}.*: simulated\."
    assert re.search(of_whom + rf"\({why}\) {had}", caplog.text)
    assert workers.deaths >= len(re.findall(rf"is gone \({why}\)", caplog.text)) > 0
    assert workers.repeated_tasks > 0


def test_one_that_hangs_is_replaced_or_raised(simulated: Make) -> None:
    for on_hang in ("replace", "raise"):
        late = iter([0.05, 1e9])
        simulated(task_seconds=lambda _, late=late: next(late, 0.05))
        options = bushel.RayOptions(num_workers=1, hang_timeout=5.0, on_hang=on_hang)
        if on_hang == "replace":
            assert _with(options) == PLAIN
        else:
            with pytest.raises(bushel.errors.WorkerError, match=r"worker 0.*for .* s.*hangs"):
                _with(options)


def test_no_place_at_all(simulated: Make) -> None:
    simulated(nodes=0)
    none = r"no worker has found a place.*0 simulated"
    with pytest.raises(bushel.errors.WorkerError, match=none):
        _with(bushel.RayOptions(num_workers=2, start_timeout=20))


def test_no_memory_for_any(simulated: Make) -> None:
    simulated(faults=Faults(memory=0.001))
    with pytest.raises(bushel.errors.WorkerError, match=r"10 workers in a row.*\(memory\)"):
        _with(bushel.RayOptions(num_workers=2))


def test_room_for_some(simulated: Make, caplog: pytest.LogCaptureFixture) -> None:
    simulated(nodes=1, cpus=1, task_seconds=lambda _: 20.0)
    assert _with(bushel.RayOptions(num_workers=4)) == PLAIN
    assert "3 of 4 workers have no place" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_workers": 0}, bushel.errors.PlanError, "at least 1, and is 0"),
        ({"num_workers": "2"}, TypeError, "must be an integer, and is '2'"),
        ({"on_hang": "cry"}, bushel.errors.PlanError, "on_hang must be one of"),
        ({"hang_timeout": 0}, bushel.errors.PlanError, "hang_timeout must be positive"),
        ({"num_cpus": -1}, bushel.errors.PlanError, "num_cpus must not be negative"),
        ({"address": "ray://head:10001"}, bushel.errors.PlanError, "through a proxy"),
    ],
)
def test_options_that_cannot_be(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        bushel.RayOptions(**arguments)


def test_what_is_no_option() -> None:
    stream = bushel.MapDataset.range(3).to_iter_dataset()
    with pytest.raises(TypeError, match=r"ray_prefetch\(RayOptions\(num_workers=2\)\)"):
        stream.ray_prefetch(bushel.MultiprocessingOptions(2))  # type: ignore[arg-type]


def test_written_by_a_cluster(simulated: Make, tmp_path: Path) -> None:
    squares = bushel.MapDataset.range(100).map(lambda x: {"x": x, "square": x * x})
    made = simulated(faults=Faults(process=3.0), task_seconds=lambda _: 1.0)
    there = squares.write(
        tmp_path / "there/a-*.jsonl", shards=9, workers=bushel.RayOptions(num_workers=3)
    )
    here = squares.write(tmp_path / "here/a-*.jsonl", shards=9, workers=0)
    assert made and there.records == here.records == 100
    shards = sorted(path.name for path in (tmp_path / "here").glob("*.jsonl"))
    assert len(shards) == 9
    for name in shards:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert bushel.open(str(tmp_path / "there"))[99] == {"x": 99, "square": 99 * 99}


def test_written_by_a_cluster_from_a_shell(
    simulated: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = simulated(task_seconds=lambda _: 1.0)
    pipeline = tmp_path / "prepare.py"
    pipeline.write_text("import bushel\nds = bushel.MapDataset.range(100)\n")
    run = ["run", f"{pipeline}:ds", "--to", f"{tmp_path}/a-*.jsonl", "--shards", "5"]
    assert main([*run, "--ray-workers", "3"]) == 0
    assert made[0].started == 3 and "100 records in 5 shards" in capsys.readouterr().out
    assert list(bushel.open(str(tmp_path))) == list(range(100))
    assert main([*run, "--ray-workers", "3", "--workers", "2"]) == 1
    assert "give one" in capsys.readouterr().err


def test_progress_of_other_machines(
    simulated: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers there do not see the counts that are shared here."""
    simulated(task_seconds=lambda _: 1.0)
    totals: list[int] = []

    @contextmanager
    def shown(what: str, total: int, unit: str, counts: ShardCounts, *_: Any) -> Iterator[None]:
        yield
        totals.append(counts.total())

    def elsewhere(self: ShardCounts) -> dict[str, Any]:
        return {**vars(self), "_path": "/of/another/machine", "_mapped": None}

    monkeypatch.setattr(write_job, "shown", shown)
    monkeypatch.setattr(ShardCounts, "__getstate__", elsewhere)
    options = bushel.RayOptions(num_workers=3)
    bushel.MapDataset.range(100).write(tmp_path / "a-*.jsonl", shards=5, workers=options)
    assert totals == [100]


def test_a_loader_with_workers_on_a_cluster(simulated: Make) -> None:
    made = simulated(faults=Faults(process=3.0))

    def loader(**workers: Any) -> bushel.DataLoader[Any]:
        sampler = bushel.IndexSampler(60, shuffle=True, seed=1, num_epochs=2)
        source = bushel.MapDataset.range(60)
        batch = [bushel.transforms.Batch(7)]
        return bushel.DataLoader(data_source=source, sampler=sampler, operations=batch, **workers)

    there = loader(worker_options=bushel.RayOptions(num_workers=3))
    assert [b.tolist() for b in there] == [b.tolist() for b in loader()]
    assert made and there.multiprocessing_options.num_workers == 3
    with iter(there) as one, iter(loader()) as other:
        next(one), next(other)
        assert one.get_state() == other.get_state()
    with pytest.raises(bushel.errors.PlanError, match="leave out `worker_count`"):
        loader(worker_options=bushel.RayOptions(), worker_count=2)
    with pytest.raises(TypeError, match="must be `RayOptions`"):
        loader(worker_options=3)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_workers_keep_their_memory() -> None:
    """Arrays that die are not given back to the system, page by page."""
    text = """
        import resource, sys
        import numpy as np
        from bushel.workers.kept_memory import keep_memory
        if sys.argv[1] == "keeps":
            keep_memory()
        def faults(rounds):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(rounds):
                arrays = [np.ones(1 << 20, np.uint8) for _ in range(8)]
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        faults(4)
        print(faults(20))
    """
    found = {}
    for how in ("keeps", "not"):
        run = [sys.executable, "-c", textwrap.dedent(text), how]
        bare = {name: said for name, said in os.environ.items() if not name.startswith("MALLOC_")}
        found[how] = int(subprocess.run(run, capture_output=True, check=True, env=bare).stdout)
    assert found["keeps"] < 100 < found["not"]


class _NoCluster(types.SimpleNamespace):
    """Ray on a machine where no cluster is."""

    def is_initialized(self) -> bool:
        return False

    def init(self, **how: Any) -> None:
        self.asked = how
        raise ConnectionError("nobody answers")


def test_none_is_started_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = _NoCluster()
    monkeypatch.setattr(ray_cluster, "ray_package", lambda: ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address, said, asked in (
        (None, None, "auto"),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        ("10.0.0.2:6379", "10.0.0.1:6379", "10.0.0.2:6379"),
    ):
        if said is not None:
            monkeypatch.setenv("RAY_ADDRESS", said)
        words = f"no Ray cluster at '{asked}': nobody answers.*`ray start --head`.*address='local'"
        with pytest.raises(bushel.errors.WorkerError, match=words):
            next(iter(_pipeline().ray_prefetch(bushel.RayOptions(address=address))))
        assert ray.asked["address"] == asked
    monkeypatch.setenv("RAY_ADDRESS", "ray://10.0.0.1:10001")
    with pytest.raises(bushel.errors.PlanError, match="every batch would pass a proxy"):
        next(iter(_pipeline().ray_prefetch()))


def test_another_numpy_is_told_of(
    simulated: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    simulated()
    ready = SimulatedCluster.ready

    def older(self: SimulatedCluster, call: Any) -> Any:
        return ready(self, call)._replace(numpy="1.0")

    monkeypatch.setattr(SimulatedCluster, "ready", older)
    assert _with(bushel.RayOptions(num_workers=1)) == PLAIN
    assert "has numpy 1.0 and this program has" in caplog.text


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(bushel.errors.MissingPackageError, match=r"bushel\[ray\]"):
        next(iter(_pipeline().ray_prefetch()))


def test_ray_is_imported_by_whoever_uses_it() -> None:
    text = "import bushel, sys; bushel.RayOptions(); print('ray' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_explain_says_where_and_statistics_count(simulated: Make) -> None:
    simulated()
    there = _pipeline().ray_prefetch(bushel.RayOptions(num_workers=2))
    assert "its workers are on the cluster" in str(bushel.explain(there))
    with bushel.iterate(there, stats=True) as iterator:
        count = len(list(iterator))
        assert count == len(PLAIN)
        [step] = [step for step in iterator.stats().steps if "_noisy" in step.name]
    assert step.records == 800
