"""Profiles: what steps cost, predictions beside what was run, and what is said of odd pipelines."""

import json
import threading
import time
import zlib
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import DataLoader, IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from bushel.errors import EmptyDatasetError, PlanError
from bushel.run.call_sizes import unsized
from bushel.run.step_times import TimedTurns
from bushel.samplers import IndexSampler
from bushel.transforms import Batch
from bushel.watch import sampling
from bushel.watch.costs import ElementWork, StepCost
from bushel.watch.profile_counters import CostTimes, OutOfTimeError
from bushel.watch.profiled import Profile
from bushel.watch.sending import sending_costs
from tests.contract.pipelines import PIPELINES, Kit
from tests.thorough import THOROUGH
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]

_PACKED = zlib.compress(np.arange(1 << 18, dtype=np.int32).tobytes())
# Of these, there is nothing left to measure.
_EMPTY = ("MapDataset.filter: all", "IterDataset.filter: all", "IterDataset.skip: all")


def in_python(number: int) -> int:
    return sum(range(2000)) + number


def unpacked(number: int) -> Any:
    return np.frombuffer(zlib.decompress(_PACKED), np.int32)[:4] + number


def wait(number: int) -> int:
    time.sleep(0.001)
    return number


def never(number: int) -> bool:
    return False


def fail_late(number: int) -> int:
    if number == 3:
        raise KeyError("three")
    return number


def profiled(dataset: Any, **options: Any) -> Profile:
    """A profile by a number of elements: how long they take on a busy machine, nobody knows."""
    return bushel.profile(dataset, **{"seconds": 60.0, "elements": 50, "verify": False, **options})


def step(profile: Profile, name: str) -> StepCost:
    return next(step for step in profile.steps if step.name == name)


def test_steps_are_those_of_explain() -> None:
    dataset = MapDataset.range(5000).shuffle(seed=1).map(in_python).batch(10)
    profile = profiled(dataset)
    explained = [one["name"] for one in dataset.explain().to_dict()["steps"]]
    told = [one.name for one in profile.steps if one.name != "to_iter_dataset()"]
    assert sorted(told) == sorted(explained)
    assert {one.name: one.number for one in profile.steps}["range(0, 5000, 1)"] == 0
    assert step(profile, "map(in_python)").records == 10 * step(profile, "batch(10)").records
    assert abs(sum(one.share for one in profile.steps) - 1) < 1e-9
    # What a step makes of a record.
    assert step(profile, "batch(10)").bytes_each == 80
    assert profile.costs.bytes == 80
    assert profile.costs.source_records == pytest.approx(10)


@pytest.mark.parametrize(
    ("function", "count", "waits", "holds"),
    [(in_python, 1500, False, True), (unpacked, 40, False, False), (wait, 30, True, False)],
    ids=["Python", "zlib", "waiting"],
)
def test_who_holds_the_lock_and_who_waits(
    function: Any, count: int, waits: bool, holds: bool
) -> None:
    profile = profiled(MapDataset.range(10**6).map(function).batch(4), elements=count)
    cost = step(profile, f"map({function.__name__})")
    assert cost.share > 0.5
    assert (cost.cpu_share < 0.5) is waits
    assert cost.lock_share is not None
    assert (cost.lock_share > 0.5) is holds
    assert {"waits": waits, "holds": holds, "releases": not waits and not holds}[
        cost.remark.split()[0].rstrip(":")
    ]


def test_predictions_stand_beside_what_was_run() -> None:
    profile = bushel.profile(
        MapDataset.range(10**6).map(in_python).batch(8),
        seconds=60.0,
        elements=200,
        step_seconds=0.001,
    )
    alone, written, *workers = profile.speeds
    assert all(speed.predicted_per_second > 0 for speed in profile.speeds)
    assert (written.workers, [speed.workers for speed in workers][:2]) == (0, [1, 2])
    tried = [speed for speed in profile.speeds if speed.verified_per_second is not None]
    assert alone in tried
    assert written in tried
    assert any(speed.workers for speed in tried)
    for speed in tried:
        assert speed.error is not None
        assert speed.verified_per_second == pytest.approx(
            speed.predicted_per_second * (1 + speed.error)
        )
    text = str(profile)
    assert "as written" in text
    assert "to feed a step of 1 ms (1k/s)" in text
    assert "why slow: " in text
    assert profile.needs(3600.0).endswith("no workers.")


def test_workers_of_the_pipeline_are_told() -> None:
    dataset = MapDataset.range(1000).map(in_python).to_iter_dataset().filter(bool).batch(4)
    profile = profiled(dataset.mp_prefetch(MultiprocessingOptions(num_workers=3)))
    assert profile.workers == 3
    places = {one.name: one.place for one in profile.steps}
    assert (places["map(in_python)"], places["batch(4)"]) == ("workers", "here")
    costs = profile.costs
    assert costs.in_workers.seconds > costs.beside_workers.seconds > 0
    assert costs.sending_seconds > 0
    assert costs.taking_seconds > 0
    assert [speed.name for speed in profile.speeds if speed.workers == 3] == [
        "3 workers, as written"
    ]
    # The rules take the numbers of a profile as they take those of a run.
    assert any("workers are busy" in sentence for sentence in profile.why_slow(0.0))


def test_a_step_that_waits_alone_is_told() -> None:
    dataset = MapDataset.range(1000).map(wait).batch(4)
    profile = profiled(dataset.to_iter_dataset(ReadOptions(num_threads=0)))
    (told,) = profile.why_slow(0.001)
    assert told.startswith("`map(wait)` is ") and "waits 9" in told
    assert "`ReadOptions(num_threads=16)`" in told
    assert any("no workers (and num_threads=0)" in speed.name for speed in profile.speeds)
    assert "num_threads" not in " ".join(profiled(dataset).why_slow(0.001))


def test_what_workers_save_with_large_batches() -> None:
    def large(number: int) -> Any:
        return np.full((256, 256), number, np.float32)

    plain, large_ones = (
        profiled(MapDataset.range(1000).map(function).batch(4)).costs for function in (abs, large)
    )
    assert plain.placed_seconds == plain.fresh_seconds == 0.0
    assert 0.0 < large_ones.placed_seconds <= large_ones.sending_seconds
    assert large_ones.fresh_seconds >= 0.0
    # What is not a batch, or made here, or of small records, is copied to be sent.
    for dataset in (
        MapDataset.range(1000).map(large),
        MapDataset.range(100_000).map(float).batch(1 << 15),
        MapDataset.range(1000).map(large).to_iter_dataset().filter(np.any).batch(4),
    ):
        assert profiled(dataset).costs.placed_seconds == 0.0


def test_loaders_are_profiled() -> None:
    loader = DataLoader(
        data_source=np.zeros((100, 8), np.uint8),
        sampler=IndexSampler(100, shuffle=True, seed=0, num_epochs=1),
        operations=[Batch(4)],
    )
    profile = profiled(loader, elements=60)
    assert profile.what == "DataLoader"
    assert profile.passes > 0
    assert step(profile, "batch(4)").bytes_each == 32


def test_a_profile_is_plain_values() -> None:
    profile = profiled(MapDataset.range(1000).map(in_python).batch(8), step_seconds=0.01)
    values = json.loads(json.dumps(profile.to_dict()))
    assert Profile.from_dict(values) == profile
    assert values["needs"] == profile.needs(0.01)
    page = profile._repr_html_()
    assert page.count("<table>") == 2
    assert "<svg" in page
    assert "map(in_python)" in page


def _pipelines() -> list[str]:
    return list(PIPELINES) if THOROUGH else list(PIPELINES)[::4]


@pytest.mark.parametrize("name", _pipelines())
def test_every_pipeline_is_profiled_and_simulated(name: str) -> None:
    dataset = PIPELINES[name](Kit())
    if name in _EMPTY:
        with pytest.raises(EmptyDatasetError, match="nothing to profile"):
            profiled(dataset, elements=3)
        return
    profile = profiled(dataset, elements=3)
    assert profile.elements > 0
    told = bushel.simulate(profile, hosts=2, workers=1, step_seconds=0.01, steps=10)
    assert told.elapsed_seconds >= 10 * 0.01


class _Numbers(IterDataset[Any]):
    """A stream of a user's own that cannot tell where it is."""

    def __iter__(self) -> Any:
        return iter([np.zeros(4)] * 20)


def test_streams_without_a_state() -> None:
    profile = profiled(_Numbers(), elements=100)
    assert (profile.elements, profile.passes) == (20, 1)


def test_lanes_and_mixtures_are_few_lines() -> None:
    lanes = profiled(MapDataset.range(4000).lanes(16).filter(bool).batch(16))
    assert [one.parts for one in lanes.steps if one.name.startswith("filter")] == [16]
    parts = [MapDataset.range(50 + n).shuffle(seed=n).map(abs) for n in range(200)]
    for mixture in (
        MapDataset.mix(parts).batch(4),
        IterDataset.mix([part.to_iter_dataset() for part in parts]).batch(4),
    ):
        profile = profiled(mixture)
        assert len(profile.steps) < 12
        assert max(map(len, str(profile).splitlines())) < 200


def test_functions_that_remember_are_profiled() -> None:
    seen: list[int] = []
    profile = profiled(MapDataset.range(1000).map(lambda x: seen.append(x) or x))
    assert len(seen) >= profile.elements


def test_nothing_is_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = MapDataset.range(100).to_iter_dataset(ReadOptions(0, 0))
    with pytest.raises(EmptyDatasetError, match=r"100 records were read, and `filter\(never\)`"):
        profiled(stream.filter(never).batch(2))
    seen: list[int] = []
    # The time is up after a while, by a clock that goes with the elements.
    monkeypatch.setattr(
        "bushel.watch.profile_counters.perf_counter",
        lambda: perf_counter() + 1e6 * (len(seen) > 1000),
    )
    endless = MapDataset.range(100).repeat().to_iter_dataset(ReadOptions(0, 0))
    with pytest.raises(
        EmptyDatasetError, match=r"records were read in 60 s, and `filter.*dropped all"
    ):
        profiled(endless.filter(lambda x: bool(seen.append(x))).batch(2))


def test_wrong_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = MapDataset.range(10)
    with pytest.raises(EmptyDatasetError, match="the dataset is empty"):
        profiled(MapDataset.range(0))
    with pytest.raises(KeyError, match="three"):
        profiled(MapDataset.range(10).map(fail_late))
    with pytest.raises(TypeError, match=r"takes a MapDataset.*got a list"):
        profiled([1, 2])
    with pytest.raises(PlanError, match="elements is how many to make"):
        profiled(dataset, elements=0)
    for wrong in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(PlanError, match=r"step_seconds is how long.*leave it out"):
            profiled(dataset, step_seconds=wrong)
        with pytest.raises(PlanError, match="seconds is how long to measure"):
            profiled(dataset, seconds=wrong)
    for name in ("seconds", "step_seconds"):
        with pytest.raises(TypeError, match=f"{name} must be a number, and is '1', a str"):
            profiled(dataset, **{name: "1"})
    monkeypatch.setattr("bushel.watch.profile._PATIENCE", 0.01)
    with pytest.raises(PlanError, match=r"no element came within 10 ms.*more time"):
        profiled(MapDataset.range(100).map(wait).to_iter_dataset().batch(100), seconds=0.001)


def test_no_time_at_all_is_too_little_for_elements_and_enough_to_try_what_looks_cost() -> None:
    times = CostTimes(-1.0)
    assert times.look_inside > 0
    with pytest.raises(OutOfTimeError):
        times.sheet().call(0, int, (), unsized)


def test_progress_is_told_where_somebody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    profiled(MapDataset.range(10))
    assert capsys.readouterr().err == ""
    profiled(MapDataset.range(10), progress=True)
    told = capsys.readouterr().err
    assert "looking at each step" in told
    assert told.endswith("\r")


def test_what_is_sent_is_what_comes_out_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def noted(rows: Sequence[Any]) -> tuple[float, float]:
        sent.append(rows[0])
        return 0.0, 0.0

    monkeypatch.setattr(sampling, "sending_costs", noted)
    numbers = MapDataset.range(10_000).to_iter_dataset()
    bushel.profile(numbers.filter(bool).batch(50), seconds=0.05, verify=False)
    # Batches are made here, of elements that come from workers.
    assert [np.shape(row) for row in sent] == [()]
    sent.clear()
    bushel.profile(MapDataset.range(10_000).batch(50), seconds=0.05, verify=False)
    assert [np.shape(row) for row in sent] == [(50,)]


def test_elements_that_cannot_travel_cost_nothing() -> None:
    assert sending_costs([threading.Lock()]) == (0.0, 0.0)
    assert sending_costs([]) == (0.0, 0.0)
    sending, taking = sending_costs([np.zeros(1 << 16)] * 3)
    assert sending > 0
    assert taking > 0


def test_own_times_leave_out_what_is_within() -> None:
    """By a clock that both calls have: the outer one has next to nothing of its own."""
    times = CostTimes(perf_counter() + 60)
    outer, inner = MapDataset.range(1)._own_node(), MapDataset.range(2)._own_node()
    numbers = times.number(outer), times.number(inner)
    work = times.clocked(numbers[1], lambda: wait(0), unsized)
    around = times.clocked(numbers[0], lambda: work(), unsized)
    for _ in range(5):
        TimedTurns(times).alone(around)
    times.note_lock([(began, True) for began, _, number in times.calls if number == numbers[1]])
    extras = times.extras_by_node()
    assert (extras[id(inner)].looks, extras[id(inner)].taken) == (5, 5)
    assert extras[id(outer)].looks == 0
    own, within = (times.totals()[number].timed_nanoseconds for number in numbers)
    assert own < within


def test_time_that_is_up_is_no_error_of_a_step() -> None:
    times = CostTimes(perf_counter() + 60)
    times.deadline = 0.0
    with pytest.raises(OutOfTimeError):
        TimedTurns(times).alone(times.clocked(0, int, unsized))
    assert not issubclass(OutOfTimeError, Exception)


def test_work_that_is_less_leaves_something() -> None:
    work = ElementWork(3.0, 2.0, 1.0)
    assert work.less(1.0) == ElementWork(2.0, 1.0, 0.5)
    assert work.less(100.0) == ElementWork(3.0 - 1.6, 0.4, 0.2)
    assert ElementWork(3.0).less(1.0) == ElementWork(3.0)


def test_work_adds_up() -> None:
    whole = ElementWork(1.0, 0.5, 0.25) + ElementWork(1.0, 0.0, 0.0)
    assert (whole, whole.cpu_share) == (ElementWork(2.0, 0.5, 0.25), 0.25)
    assert whole.times(2) == ElementWork(4.0, 1.0, 0.5)
