"""Runs of a moment: where they begin and end, and what a simulation makes of them."""

import dataclasses
import json
import time
from typing import Any

import pytest

import bushel
from bushel import MapDataset, MultiprocessingOptions
from bushel.watch.costs import Costs, TriedRun
from bushel.watch.other_programs import CoresUsed, cores_of_others, cores_used
from bushel.watch.profiled import Profile
from bushel.watch.sampling import MeasuredPace
from bushel.watch.simulated_makers import Setting
from bushel.watch.simulated_run import simulated
from bushel.watch.trials import drift_of, tried_runs
from tests.watch.test_simulate import costs, run
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]


def tried(one: Costs, *runs: TriedRun, cores: float = 2.0) -> Costs:
    return dataclasses.replace(one, trials=runs, cores=cores)


@pytest.mark.parametrize(("workers", "cycle"), [(1, 0.12), (2, 0.09)])
def test_what_was_tried_is_what_is_simulated(workers: int, cycle: float) -> None:
    """Two cores that do less together than twice as much as one."""
    one = tried(costs(0.1), TriedRun(1, 0.12, 0.001), TriedRun(2, 0.09, 0.001))
    assert run(one, workers=workers, cores=2).steady_seconds == pytest.approx(cycle, rel=0.03)


def test_other_machines_are_like_this_one() -> None:
    one = tried(costs(0.1), TriedRun(1, 0.1, 0.001), TriedRun(2, 0.08, 0.001))
    # All cores at work: each takes 0.16 s. Few of them: 0.1 s.
    assert run(one, workers=8, cores=8).steady_seconds == pytest.approx(0.02, rel=0.03)
    assert run(one, workers=8, cores=64).steady_seconds == pytest.approx(0.1 / 8, rel=0.03)
    # More workers than cores share them, and lose a tenth by taking turns.
    assert run(one, workers=4, cores=2).steady_seconds == pytest.approx(0.088, rel=0.03)


def test_who_asks_too_slowly_says_nothing_of_the_workers() -> None:
    one = tried(costs(0.001), TriedRun(1, 0.1, 0.099))
    told = run(one, workers=1, cores=2)
    assert told.steady_seconds == pytest.approx(0.1, rel=0.03)
    assert told.busy_share < 0.05


def test_the_first_element_comes_when_it_came() -> None:
    one = tried(costs(0.1), TriedRun(1, 0.1, 0.001, first_seconds=0.9))
    assert run(one, workers=1, cores=2).first_seconds == pytest.approx(0.9, rel=0.02)


def test_threads_that_did_not_pay_are_not_used() -> None:
    free = costs(0.1, lock=0.0)
    inline, on_threads = TriedRun(0, 0.1, 0.1), TriedRun(0, 0.07, 0.001)
    assert run(tried(free, inline), threads=16, cores=2).threads == 0
    told = run(tried(free, on_threads), threads=16, cores=2)
    assert told.threads == 2
    assert told.steady_seconds == pytest.approx(0.07, rel=0.03)
    # Those that were slower than none were on trial.
    slower = run(tried(free, TriedRun(0, 0.15, 0.001)), threads=16, cores=2)
    assert (slower.threads, slower.steady_seconds) == (0, pytest.approx(0.1, rel=0.03))
    # Inline twice, at another pace each time: in between.
    twice = run(tried(free, TriedRun(0, 0.12, 0.12)), threads=16, cores=2)
    assert twice.steady_seconds == pytest.approx(0.11, rel=0.03)


def test_a_training_loses_what_it_lost_beside_threads() -> None:
    free = costs(0.1, lock=0.0)
    idle, slept = TriedRun(0, 0.1, 0.1), TriedRun(0, 0.13, 0.001, step_seconds=0.1)
    told = run(tried(free, idle, slept), threads=16, cores=2, step_seconds=0.2)
    # They take turns, so one is enough.
    assert told.threads == 1
    assert told.steady_seconds == pytest.approx(0.229, rel=0.03)
    # Where nobody used them even then, nobody does.
    alone = TriedRun(0, 0.2, 0.1, step_seconds=0.1)
    told = run(tried(free, idle, alone), threads=16, cores=2, step_seconds=0.2)
    assert (told.threads, told.steady_seconds) == (0, pytest.approx(0.3, rel=0.03))


def test_how_far_it_may_be_off() -> None:
    one = dataclasses.replace(costs(0.1), unsure=0.25)
    measured = Profile("MapDataset", 10, 0, 0.1, 0.0, 8.0, 0, 1, (), one, ())
    told = bushel.simulate(measured, workers=2, cores=8)
    assert told.unsure == 0.25
    assert told.least_per_second == pytest.approx(told.steps_per_second / 1.25, rel=0.02)
    assert told.most_per_second == pytest.approx(told.steps_per_second * 1.25, rel=0.02)
    assert "/s (from 1" in str(told)
    # A training that is slower than the data in any case is sure.
    fed = bushel.simulate(measured, workers=2, cores=8, step_seconds=1.0)
    assert "(from" not in str(fed)


def test_all_that_is_done_takes_longer() -> None:
    one = tried(costs(0.1), TriedRun(1, 0.1, 0.01), TriedRun(0, 0.15, 0.01, step_seconds=0.1))
    twice = one.times(2)
    assert twice.in_workers.seconds == 0.2
    assert [made.seconds for made in twice.trials] == pytest.approx([0.2, 0.2])
    for setting in (Setting(workers=1, cores=2), Setting(cores=2)):
        quick, slow = (simulated(which, setting).steady_seconds for which in (one, twice))
        assert slow == pytest.approx(2 * quick)


def test_trials_travel_with_the_profile() -> None:
    one = tried(costs(0.1), TriedRun(1, 0.1, 0.01, drift=0.2))
    values = json.loads(json.dumps(dataclasses.asdict(one)))
    assert Costs.from_dict(values) == one
    # Those of before had none.
    for name in ("trials", "cores", "unsure"):
        del values[name]
    assert Costs.from_dict(values).trials == ()


def test_pieces_that_differ() -> None:
    assert drift_of([]) == drift_of([1.0]) == 0.0
    assert drift_of([1.0, 9.0, 2.0]) == pytest.approx(0.693, abs=0.001)


def test_others_on_the_cores() -> None:
    used = cores_used()
    if used is not None:
        assert 0 < used.by_us <= used.by_all + 1.0
    assert cores_of_others(None, used) == 0.0
    # Clocks of a hundred ticks a second may see less of all than of us.
    assert cores_of_others(CoresUsed(0.0, 1.0, 1.0), CoresUsed(1.0, 1.5, 1.6)) == 0.0


def brief(number: int) -> int:
    time.sleep(0.001)
    return number


def test_what_is_tried_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever else is on the cores; by a number of elements, as nobody knows how long they take.
    monkeypatch.setattr("bushel.watch.trials.CROWDED", 1e9)
    node = MapDataset.range(10**6).map(brief).batch(4)._stream_node()
    pace = MeasuredPace(10, 0.04)
    idle, slept, one = tried_runs(node, pace, [0, 1], 60.0, 50)
    assert (idle.workers, slept.workers, one.workers) == (0, 0, 1)
    assert idle.step_seconds == one.step_seconds == 0
    assert slept.step_seconds >= 0.004
    # What a worker has for itself, and the process that it comes from: an interpreter at the least.
    assert one.worker_bytes > 1 << 20
    assert idle.worker_bytes == slept.worker_bytes == 0
    assert all(made.seconds > 0 and made.first_seconds > 0 for made in (idle, slept, one))


def test_runs_beside_others_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bushel.watch.trials.CROWDED", -1.0)
    node = MapDataset.range(10**6).map(brief)._stream_node()
    assert tried_runs(node, MeasuredPace(1, 0.001), [0], 60.0, 20) == ()


def test_only_what_is_asked_about_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(_node: Any, _pace: Any, counts: Any, *_: Any) -> tuple[TriedRun, ...]:
        asked.append(tuple(counts))
        return ()

    monkeypatch.setattr("bushel.watch.profile.tried_runs", noted)
    monkeypatch.setattr("bushel.watch.profile.available_cores", lambda: 4)
    numbers = MapDataset.range(1000)
    for workers in (0, 3, 20, None):
        bushel.simulate(numbers, workers=workers, seconds=0.01)
    # As many as the pipeline has; and on other cores, a share of those that are here.
    with_two = numbers.to_iter_dataset().mp_prefetch(MultiprocessingOptions(num_workers=2))
    bushel.simulate(with_two, seconds=0.01)
    bushel.simulate(numbers, workers=3, cores=64, seconds=0.01)
    bushel.profile(numbers, seconds=0.01, verify=False)
    assert asked == [(0,), (1, 3), (1, 4), (0,), (1, 2), (1, 4)]
