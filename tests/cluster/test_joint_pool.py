"""Workers here and on a cluster that is not there: whoever does a task, the stream is the same."""

import os
import random
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bushel
from benchmarks.simulated_cluster import Faults, SimulatedCluster
from bushel.core.tuned_options import AutotuneParameter
from bushel.errors import FatalElementError, PlanError, WorkerError
from bushel.workers.cluster import ray_cluster
from bushel.workers.cluster.cluster import TaskFault
from bushel.workers.cluster.joint_pool import JointPool
from tests.cluster.steps import DEADLY, ends_its_process, noisy_at_once, pipeline
from tests.cluster.test_pool import Make, simulated
from tests.contract.events import events_of, run_events
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.contract.test_resizing import engines_of
from tests.contract.test_schedules_of_workers import SOME
from tests.property.profile import tried
from tests.thorough import THOROUGH, rare_examples
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.processes import is_alive, linux, wait_until, workers_of
from tests.workers.streams import assert_same_events
from tests.write.parts import record

__all__ = ["no_endless_wait", "no_process_left_behind", "simulated"]

pytestmark = linux


@pytest.fixture(scope="module")
def plain() -> list[Any]:
    return [batch.tolist() for batch in pipeline(noisy_at_once)]


def _joint(here: int = 1, there: Any = 2, **options: Any) -> bushel.IterDataset[Any]:
    options = {"start_timeout": 1e6, **options}
    return pipeline(noisy_at_once).ray_prefetch(
        bushel.RayOptions(num_workers=there, num_local_workers=here, **options)
    )


def _read(stream: bushel.IterDataset[Any], made: list[SimulatedCluster]) -> list[Any]:
    found = []
    with iter(stream) as iterator:
        for batch in iterator:
            found.append(batch.tolist())
            made[-1].spend(0.02)
    return found


@pytest.mark.parametrize(("here", "there"), [(1, 1), (2, 3)])
def test_one_stream(here: int, there: int, simulated: Make, plain: list[Any]) -> None:
    made = simulated(start_seconds=0.1)
    with bushel.iterate(_joint(here, there), stats=True) as iterator:
        (engine,) = engines_of(iterator)
        assert engine.workers == engine.most_workers == here + there
        for expected in plain:
            assert next(iterator).tolist() == expected
            made[0].spend(0.02)
        (workers,) = iterator.stats().workers
    # Both did some of it, and nothing twice.
    assert 0 < made[0].ran < workers.tasks
    assert (workers.deaths, workers.repeated_tasks) == (0, 0)


def test_those_here_begin_before_the_cluster_does(simulated: Make, plain: list[Any]) -> None:
    made = simulated(start_seconds=1e6)
    assert _read(_joint(), made) == plain
    assert made[0].started == 2 and not made[0].ran


def test_without_any_place_on_the_cluster(
    simulated: Make, plain: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Even beyond `start_timeout`, which is for those who would have no worker at all."""
    made = simulated(nodes=0)
    with iter(_joint(start_timeout=20.0)) as iterator:
        for expected in plain:
            assert next(iterator).tolist() == expected
            made[0].spend(1.0)
    assert "2 of 2 workers have no place on the cluster" in caplog.text


@settings(tried, max_examples=rare_examples(4))
@given(
    seed=st.integers(0, 10**6),
    here=st.integers(1, 2),
    there=st.integers(1, 5),
    # Workers that live for less than the time between two looks at the cluster never begin, which
    # is an error: on a busy machine that time is long, as local workers are waited for as well.
    process=st.sampled_from([1.0, 4.0, float("inf")]),
    node=st.sampled_from([1.0, 5.0, float("inf")]),
    frozen=st.sampled_from([2.0, float("inf")]),
)
def test_whatever_ends(
    seed: int, here: int, there: int, process: float, node: float, frozen: float
) -> None:
    plain = [batch.tolist() for batch in pipeline(noisy_at_once)]
    chance = random.Random(seed)
    made: list[SimulatedCluster] = []

    def cluster(options: Any, luggage: Any, paths: Any) -> SimulatedCluster:
        faults = Faults(process=process, node=node, frozen=frozen)
        made.append(SimulatedCluster(luggage, seed=seed, faults=faults, start_seconds=0.05))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_cluster, "RayCluster", cluster)
        stream = _joint(here, there)
        ends_left = 2
        with iter(pipeline(noisy_at_once)) as alone, iter(stream) as iterator:
            (engine,) = engines_of(iterator)
            for expected in plain:
                assert next(iterator).tolist() == next(alone).tolist() == expected
                assert iterator.get_state() == alone.get_state()
                made[0].spend(0.05)
                if chance.random() < 0.1:
                    engine.resize(here + chance.randint(1, 6), "the test says so")
                if ends_left and chance.random() < 0.05 and (pids := sorted(workers_of())):
                    ends_left -= 1
                    with suppress(ProcessLookupError):
                        os.kill(chance.choice(pids), signal.SIGKILL)
            assert next(iterator, None) is None


@pytest.mark.parametrize("name", PIPELINES if THOROUGH else SOME)
def test_any_pipeline_resumed_anywhere(name: str, simulated: Make) -> None:
    simulated(start_seconds=0.0, faults=Faults(process=0.3), seed=len(name))
    inline = stream_of(name, Kit())
    expected = run_events(inline)
    half = len(expected) // 2
    options = bushel.RayOptions(num_workers=1, num_local_workers=1, start_timeout=1e6)
    with iter(inline) as plain, iter(inline.ray_prefetch(options)) as iterator:
        assert_same_events(events_of(iterator), expected)
        for _ in range(half):
            next(plain)
        iterator.set_state(plain.get_state())
        assert_same_events(events_of(iterator), expected[half:])


def test_late_tasks_are_done_here(
    simulated: Make, plain: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else is on the cluster who could."""
    made = simulated(start_seconds=0.0, task_seconds=lambda _: 1e6)
    with iter(_joint(1, 1)) as iterator:
        for expected in plain:
            assert next(iterator).tolist() == expected
            made[0].spend(5.0)
    assert "late on the cluster; a worker here does it too" in caplog.text
    assert not made[0].ran


def test_an_element_that_ends_its_process_is_named(simulated: Make) -> None:
    simulated(start_seconds=1e6)
    stream = bushel.MapDataset.range(400).map(ends_its_process).to_iter_dataset()
    options = bushel.RayOptions(num_workers=1, num_local_workers=1)
    found: list[Any] = []
    named = rf"position {DEADLY}.*map\(ends_its_process\)"
    with (
        iter(stream.ray_prefetch(options)) as iterator,
        pytest.raises(FatalElementError, match=named),
    ):
        found.extend(iterator)
    assert found == list(range(DEADLY))


def test_workers_there_that_cannot_begin_end_those_here(
    simulated: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated(start_seconds=0.0)

    def ready(self: SimulatedCluster, call: Any) -> Any:
        raise TaskFault("no such module")

    monkeypatch.setattr(SimulatedCluster, "ready", ready)
    with iter(_joint()) as iterator:
        (engine,) = engines_of(iterator)
        with pytest.raises(WorkerError, match=r"(?s)could not begin.*no such module"):
            list(iterator)
        assert engine._pool[0].closed
        assert wait_until(lambda: not any(map(is_alive, workers_of())))


def test_passes_have_the_same_workers(simulated: Make, plain: list[Any]) -> None:
    made = simulated(start_seconds=0.0)
    stream = _joint()
    for _ in range(2):
        assert [batch.tolist() for batch in stream] == plain
    assert len(made) == 1 and made[0].started == 2


def test_their_number_is_tuned_on_the_cluster_alone(simulated: Make) -> None:
    simulated()
    with iter(_joint(2, AutotuneParameter(1, 6))) as iterator:
        (engine,) = engines_of(iterator)
        next(iterator)
        pool = engine._pool[0]
        assert isinstance(pool, JointPool)
        assert (engine.workers, engine.most_workers, pool.size) == (4, 8, 4)
        for asked, size in ((8, 8), (3, 3), (1, 3)):
            engine.resize(asked, "the test says so")
            assert pool.size == size
        assert pool.places() is not None and pool.private_bytes() == 0


def test_written_by_both(simulated: Make, tmp_path: Path) -> None:
    ds = bushel.MapDataset.range(90).map(record)
    made = simulated(start_seconds=0.0, task_seconds=lambda _: 0.0)
    both = bushel.RayOptions(num_workers=2, num_local_workers=1)
    for folder, workers in (("both", both), ("alone", 0)):
        ds.write(tmp_path / folder / "a-*.jsonl", shards=9, workers=workers)
    assert made[0].ran
    for path in (tmp_path / "alone").glob("*.jsonl"):
        assert (tmp_path / "both" / path.name).read_bytes() == path.read_bytes()
    # More workers than shards.
    many = bushel.RayOptions(num_workers=8, num_local_workers=8)
    assert ds.write(tmp_path / "few/a-*.jsonl", shards=2, workers=many).records == 90


def test_what_is_told(simulated: Make) -> None:
    simulated()
    assert re.search("its workers are on the cluster, and 1 of them here", str(_joint().explain()))
    with pytest.raises(PlanError, match=r"writable=False.*num_local_workers=1.*Leave out one"):
        bushel.RayOptions(writable=False, num_local_workers=1)
    with pytest.raises(PlanError, match="num_local_workers must be at least 0, and is -1"):
        bushel.RayOptions(num_local_workers=-1)
