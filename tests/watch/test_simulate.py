"""Simulated trainings, on machines whose answers are known: nothing is measured here."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bushel
from bushel import MapDataset
from bushel.errors import PlanError
from bushel.watch.costs import Costs, ElementWork, TriedRun
from bushel.watch.profiled import Profile
from bushel.watch.simulate import Simulation
from bushel.watch.simulated_makers import START_SECONDS, Setting
from bushel.watch.simulated_run import Simulated, simulated
from tests.property.profile import tried
from tests.thorough import examples


def costs(seconds: float, cpu: float = 1.0, lock: float = 1.0, **others: Any) -> Costs:
    """A pipeline whose elements take so long, with a share of it on a core and under the lock."""
    work = ElementWork(seconds, cpu * seconds, lock * seconds)
    fields = {
        "in_workers": work,
        "beside_workers": ElementWork(),
        "on_threads": work,
        "beside_threads": ElementWork(),
        "sending_seconds": 0.0,
        "taking_seconds": 0.0,
        "opening_seconds": 0.0,
        "bytes": 1000.0,
        "source_bytes": 2000.0,
        "source_records": 8.0,
        "requests": 2.0,
        "made_bytes": 0.0,
        "most_threads": 16,
    }
    return Costs(**{**fields, **others})


def run(one: Costs, **setting: Any) -> Simulated:
    return simulated(one, Setting(**{"cores": 64.0, **setting}))


def profile(one: Costs, **others: Any) -> Profile:
    """A profile of such a pipeline, as if it had been measured."""
    fields = {
        "what": "MapDataset",
        "elements": 10,
        "passes": 0,
        "first_seconds": 0.1,
        "queued_share": 0.0,
        "cores": 8.0,
        "workers": 0,
        "buffer": 1,
        "steps": (),
        "costs": one,
        "speeds": (),
    }
    return Profile(**{**fields, **others})


def test_one_after_the_other() -> None:
    told = run(costs(0.1), step_seconds=0.3, steps=50)
    assert told.elapsed_seconds == pytest.approx(50 * 0.4)
    assert told.wait_seconds == pytest.approx(50 * 0.1)
    assert told.steady_wait_share == pytest.approx(0.25)
    assert told.first_seconds == pytest.approx(0.1)
    assert (told.workers, told.threads, told.ahead) == (0, 0, 0)


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 30])
def test_workers_divide_the_work(workers: int) -> None:
    told = run(costs(0.1), workers=workers, steps=500)
    assert told.per_second == pytest.approx(10 * workers, rel=0.02)
    assert told.busy_share > 0.9
    assert told.first_seconds == pytest.approx(START_SECONDS + 0.1, rel=0.02)


def test_cores_are_divided_too() -> None:
    assert run(costs(0.1), workers=2, cores=2).per_second == pytest.approx(20, rel=0.05)
    # Those that take turns on a core lose by it.
    assert run(costs(0.1), workers=8, cores=2).per_second == pytest.approx(20 / 1.1, rel=0.05)
    # Who waits needs no core.
    waiting = costs(0.1, cpu=0.01, lock=0.0, most_threads=0)
    assert run(waiting, workers=8, cores=2).per_second == pytest.approx(80, rel=0.05)


def test_the_lock_divides_threads_and_not_workers() -> None:
    half = costs(0.1, lock=0.5)
    # A training that lets the lock go, and comes back to it, is in the queue with the threads.
    told = run(half, threads=16, cores=16, step_seconds=0.1)
    assert told.threads
    assert told.steady_seconds == pytest.approx(0.15, rel=0.05)
    assert run(half, threads=16, cores=16).per_second == pytest.approx(20, rel=0.05)
    assert run(half, workers=8, cores=8).per_second == pytest.approx(80, rel=0.05)
    free = costs(0.1, lock=0.0)
    assert run(free, threads=16, cores=4).per_second == pytest.approx(40, rel=0.05)
    # Where all of it is under the lock, nobody uses threads.
    assert run(costs(0.1), threads=16).threads == 0
    # New memory is one way for all threads.
    large = costs(0.1, lock=0.0, made_bytes=1e9)
    assert run(large, threads=16).threads == 0


def test_a_training_that_takes_longer_does_not_wait() -> None:
    fed = run(costs(0.1), workers=2, step_seconds=0.1, steps=300)
    assert fed.steady_wait_share < 0.01
    assert fed.elapsed_seconds == pytest.approx(300 * 0.1, rel=0.03)
    # What stays here is waited for, however many workers there are.
    here = costs(0.1, beside_workers=ElementWork(0.02, 0.02, 0.02))
    assert run(here, workers=16, step_seconds=0.1).steady_wait_seconds == pytest.approx(
        0.02, rel=0.05
    )


def test_the_way_to_the_data_is_a_limit() -> None:
    told = run(costs(0.001, bytes=10.0), workers=8, bandwidth=20_000, steps=300)
    assert told.per_second == pytest.approx(10, rel=0.03)
    alone = run(costs(0.001), bandwidth=20_000, steps=300)
    assert alone.per_second == pytest.approx(1 / 0.101, rel=0.03)


def test_hosts_wait_for_the_slowest() -> None:
    uneven = costs(0.1, spread=(0.5, 0.5, 0.5, 0.5, 3.0))
    one, many = (run(uneven, workers=2, hosts=hosts, steps=400) for hosts in (1, 64))
    assert one.wait_for_hosts_seconds == 0
    assert many.wait_for_hosts_seconds > 0
    assert many.per_second < one.per_second
    even = run(costs(0.1), workers=2, hosts=64, steps=400)
    assert even.wait_for_hosts_seconds == pytest.approx(0, abs=1e-9)


def test_hosts_that_make_nothing_ahead_wait_for_each_others_blocks() -> None:
    # Blocks of 16 elements, each host's at another step: one after the other.
    light = costs(0.001, most_threads=0)
    alone, two, many = (run(light, hosts=hosts, steps=1600) for hosts in (1, 2, 1000))
    assert two.steady_seconds == pytest.approx(2 * alone.steady_seconds, rel=0.01)
    assert two.wait_for_hosts_seconds == pytest.approx(alone.elapsed_seconds, rel=0.05)
    # At every step there is one that makes a block.
    assert many.steady_seconds == pytest.approx(16 * alone.steady_seconds, rel=0.01)
    # Heavy elements come one by one.
    heavy = costs(0.1, most_threads=0)
    one, more = (run(heavy, hosts=hosts, steps=100).steady_seconds for hosts in (1, 8))
    assert more == pytest.approx(one)
    # With workers nobody waits for that.
    assert run(light, hosts=2, workers=1).steady_seconds == pytest.approx(0.001, rel=0.05)


_SETTINGS = {
    "workers": st.integers(0, 12),
    "threads": st.integers(0, 16),
    "buffer": st.integers(0, 4),
    "cores": st.floats(0.5, 64),
    "hosts": st.integers(1, 5),
    "step_seconds": st.floats(0, 1),
    "steps": st.integers(1, 400),
    "bandwidth": st.none() | st.floats(1e3, 1e9),
}


@given(
    setting=st.builds(Setting, **_SETTINGS),
    seconds=st.floats(1e-7, 1),
    cpu=st.floats(0, 1),
    lock=st.floats(0, 1),
    here=st.floats(0, 0.1),
    spread=st.lists(st.floats(0.5, 2), min_size=1, max_size=4).map(tuple),
)
@settings(tried, max_examples=examples(15))
def test_what_holds_of_any_machine(
    setting: Setting, seconds: float, cpu: float, lock: float, here: float, spread: Any
) -> None:
    one = costs(
        seconds, cpu, cpu * lock, spread=spread, beside_workers=ElementWork(here, here, here)
    )
    told = simulated(one, setting)
    training = setting.steps * setting.step_seconds
    assert told.first_seconds <= told.elapsed_seconds * (1 + 1e-9)
    assert 0 <= told.wait_seconds <= told.elapsed_seconds * (1 + 1e-9)
    assert told.elapsed_seconds >= 0.99 * (training - setting.step_seconds)
    assert 0 <= told.busy_share <= 1
    assert 0 <= told.steady_wait_share <= 1 + 1e-9
    assert told.steady_seconds >= 0.99 * setting.step_seconds
    # No step is quicker than what stays in the process that trains.
    if told.workers:
        assert told.steady_seconds >= 0.99 * here * min(spread)
    # The same question has the same answer.
    assert simulated(one, setting) == told


@given(seconds=st.floats(1e-4, 0.3), step=st.floats(1e-3, 0.3), cores=st.integers(1, 32))
@settings(tried, max_examples=examples(8))
def test_the_advice_is_the_fewest_workers_that_feed(
    seconds: float, step: float, cores: int
) -> None:
    one = profile(costs(seconds, most_threads=0), cores=float(cores))

    def feed(workers: int) -> bool:
        return one._is_fed(one.setting(workers, 0, step))

    fewest = one._fewest(step, float(cores))
    if fewest is None:
        assert not feed(4)
        assert not feed(64)
    else:
        assert feed(fewest)
        assert fewest == 1 or not feed(fewest - 1)


def test_what_a_training_needs_is_told() -> None:
    one = profile(costs(0.1), cores=8.0)
    assert one.needs(0.05) == "to feed a step of 50 ms (20/s): num_workers=2."
    assert "no workers" in one.needs(20.0)
    told = dataclasses.replace(one, cores=2.0).needs(0.01)
    assert "2 cores are too few: 19.9/s is the most, with num_workers=2." in told
    assert "cores, num_workers=" in told


def test_the_answer_of_a_cluster() -> None:
    told = bushel.simulate(
        profile(costs(0.1), workers=2), hosts=4, step_seconds=0.1, steps=100, cores=16
    )
    assert (told.hosts, told.workers, told.threads, told.cores) == (4, 2, 0, 16)
    assert (told.records, told.bytes, told.requests) == (3200, 800_000, 800)
    # Two tasks of each worker, the one that is trained on, and the next one; and what workers have.
    assert told.memory_bytes == 6 * 1000 + (12 << 20) + 2 * (20 << 20)
    assert Simulation.from_dict(json.loads(json.dumps(told.to_dict()))) == told
    assert "4 hosts, 2 workers each, 16 cores" in str(told)
    assert "3,200 records" in told._repr_html_()
    assert "records not counted" in str(dataclasses.replace(told, records=0))


def test_memory_of_workers_is_as_they_had_when_they_were_tried() -> None:
    def memory(workers: int, *tried: TriedRun) -> int:
        one = costs(0.1, bytes=0.0, trials=tried)
        return bushel.simulate(profile(one), workers=workers, cores=8).memory_bytes

    few = TriedRun(1, 0.1, 0.0, worker_bytes=70_000_000)
    many = TriedRun(4, 0.03, 0.0, worker_bytes=160_000_000)
    assert [memory(count, few, many) for count in (0, 1, 2, 4, 6)] == [
        *(0, 70_000_000, 100_000_000, 160_000_000, 220_000_000)
    ]
    assert memory(3, few) == 70_000_000 + 2 * (20 << 20)


def test_requests_are_those_of_threads_where_threads_read() -> None:
    waits = costs(0.1, 0.001, 0.0, most_threads=4)
    on_threads = TriedRun(0, 0.03, 0.0, requests=5.0)
    tried = dataclasses.replace(waits, trials=(on_threads,))
    assert bushel.simulate(profile(tried), steps=100).requests == 500
    assert bushel.simulate(profile(tried), workers=2, steps=100).requests == 200
    assert bushel.simulate(profile(waits), steps=100).requests == 200


def test_less_than_a_core() -> None:
    whole, half = (run(costs(0.1, most_threads=0), cores=cores) for cores in (1.0, 0.5))
    assert half.steady_seconds == pytest.approx(2 * whole.steady_seconds)


def test_many_workers_of_many_hosts_take_a_moment() -> None:
    told = bushel.simulate(profile(costs(0.1)), hosts=10**9, workers=1024, cores=1024, steps=10)
    assert told.hosts == 10**9
    assert told.records == 80 * 10**9
    with pytest.raises(PlanError, match=r"from 0 to 1,024, and cannot be 1,025"):
        bushel.simulate(profile(costs(0.1)), workers=1025)


def test_new_memory_holds_threads_up_no_longer_than_one_works() -> None:
    # A step of the training hides them, however much memory they make.
    large = costs(0.1, lock=0.0, made_bytes=1e10)
    told = run(large, threads=16, step_seconds=0.2)
    assert told.threads
    assert told.steady_seconds == pytest.approx(0.2, rel=0.05)


def test_it_says_what_it_holds_on() -> None:
    def notes(one: Any, workers: int) -> str:
        told = bushel.simulate(profile(one), workers=workers, cores=8)
        assert all(f"provided: {note}"[:60] in str(told) for note in told.notes)
        return " ".join(told.notes)

    light = costs(0.001, most_threads=0, requests=0.0)
    assert "no workers were tried" in notes(light, 2)
    far = dataclasses.replace(light, requests=2.0)
    assert "requests and their bytes are as in the sample" in notes(far, 2)
    tried = dataclasses.replace(light, trials=(TriedRun(1, 0.001, 0.0),))
    assert notes(tried, 2) == notes(tried, 0) == "no other program uses the cores"
    large = dataclasses.replace(light, bytes=4e7)
    assert "each element of 40 MB is made in new memory" in notes(large, 2)
    assert "40 MB" not in notes(large, 0)
    assert "40 MB" not in notes(dataclasses.replace(large, placed_seconds=1e-4), 2)
    waiting = costs(0.1, 0.001, 0.0005, most_threads=16)
    assert "threads in each worker pay" in notes(waiting, 2)
    assert "threads pay, as they seem to" in notes(costs(0.1, 1.0, 0.05), 0)
    assert "as they seem to" not in notes(waiting, 0)


def test_wrong_questions() -> None:
    dataset = MapDataset.range(10)
    for options, match in (
        ({"hosts": 0}, "hosts is how many train together, at least 1, and cannot be 0"),
        ({"workers": -1}, "workers is how many processes"),
        ({"steps": 0}, "steps is how long the training is"),
        ({"step_seconds": -0.1}, "step_seconds is how long"),
        ({"step_seconds": float("nan")}, "step_seconds is how long"),
        ({"bandwidth": 0}, "bandwidth must be more than 0"),
        ({"cores": 0}, "cores must be more than 0"),
    ):
        with pytest.raises(PlanError, match=match):
            bushel.simulate(dataset, **options)
    with pytest.raises(TypeError, match="hosts"):
        bushel.simulate(dataset, hosts=1.5)
    for name in ("step_seconds", "bandwidth", "cores"):
        with pytest.raises(TypeError, match=f"{name} must be a number, and is '1', a str"):
            bushel.simulate(dataset, **{name: "1"})
    with pytest.raises(TypeError, match=r"bushel\.simulate takes .*, or the Profile of one"):
        bushel.simulate([1, 2])
