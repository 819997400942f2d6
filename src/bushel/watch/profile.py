"""`bushel.profile`: measures the costs of steps, predicts throughput, and verifies it."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from bushel.core.arguments import real, whole
from bushel.core.machine import available_cores
from bushel.core.node import Node, leaves_out, walk
from bushel.core.options import MultiprocessingOptions
from bushel.core.places import WorkersNode
from bushel.core.ray_options import RayOptions
from bushel.core.tuned_options import worker_bounds
from bushel.deliver.open import plan
from bushel.errors import EmptyDatasetError, PlanError
from bushel.files.progress_line import look_of
from bushel.run.plan import steps_of
from bushel.watch.costs import TriedRun
from bushel.watch.costs_from_sample import Measured
from bushel.watch.durations import duration
from bushel.watch.plain_text import number
from bushel.watch.profile_variants import (
    alone,
    crossings_in,
    stream_of,
    with_workers,
    with_workers_step,
)
from bushel.watch.profiled import Profile, Speed
from bushel.watch.sampling import MeasuredPace, StepsSample, paced, sampled
from bushel.watch.simulated_run import simulated
from bushel.watch.trials import CROWDED, TIMES, counts_to_try, drift_of, run_for, tried_runs

# Parts of the time: to look at steps, to run in this thread alone, to try threads and workers, and
# to verify each of two predictions. The rest is what workers take to start.
_LOOKING, _ALONE, _TRYING, _VERIFYING = 0.15, 0.08, 0.45, 0.14
# And where nothing is to be verified.
_TRYING_ALONE = 0.7
# Predictions were usually as far off as that, on a shared machine, whatever the halves of a run
# said; and a machine of which less can be told than the second is not worth a number.
_LEAST_UNSURE, _MOST_UNSURE = 0.15, 0.9
# Seconds to wait for the first element, at the least.
_PATIENCE = 10.0


def profile(
    dataset: Any,
    *,
    step_seconds: float | None = None,
    seconds: float = 10.0,
    elements: int | None = None,
    verify: bool = True,
    progress: bool | None = None,
) -> Profile:
    """Tells what each step of a dataset or `DataLoader` costs, and how fast it could be.

    A sample is read in this thread alone: its time, on a core or waiting, with the interpreter's
    lock or without, and bytes, of each step. From that follows how fast it would be with threads
    and with worker processes: what one of them takes is known then, and what several take at the
    same time on the cores of this machine is tried. Then it is run like that, and both numbers are
    told.

    >>> import bushel
    >>> profile = bushel.profile(bushel.MapDataset.range(1000).map(abs).batch(10), seconds=0.2)
    >>> [step.name for step in profile.steps if step.place == "here"][-1]
    'range(0, 1000, 1)'

    Args:
      dataset: a dataset or a `DataLoader`. It is not changed; functions in it are called, and
        files that it writes (a cache, bad records) are written.
      step_seconds: the time that the training takes for an element, if it is to be told what is
        needed so that it does not wait.
      seconds: about so long in all, or until each of the runs has made an element. If none comes
        at all, that is an error after ten seconds, or after so many.
      elements: at most so many are made in each of the runs; None for as many as there is time for.
      verify: whether threads and worker processes are tried, and predictions run. Otherwise
        nothing is started, and it is taken that all cores do as much together as each alone.
      progress: whether a line on standard error tells what is done; None where
        somebody sees it, at a terminal or in a notebook.
    """
    if step_seconds is not None and not 0 < real(step_seconds, "step_seconds") < float("inf"):
        raise PlanError(
            f"step_seconds is how long the training takes for an element, and cannot be "
            f"{step_seconds!r}: leave it out if that is not known."
        )
    if not 0 < real(seconds, "seconds") < float("inf"):
        raise PlanError(f"seconds is how long to measure, and cannot be {seconds!r}.")
    most = sys.maxsize if elements is None else whole(elements, "elements")
    if most < 1:
        raise PlanError(f"elements is how many to make, at least 1, and cannot be {elements}.")
    node = with_workers_step(stream_of(dataset, "bushel.profile"))
    say = _line_on_terminal(progress)
    try:
        tries = _numbers_to_try(node, None) if verify else ()
        parts = seconds, _LOOKING, _ALONE, _TRYING
        made, pace = _measured(type(dataset).__name__, node, parts, most, tries, say)
        made = replace(made, step_seconds=step_seconds)
        return _tried(made, node, pace, (_VERIFYING * seconds, most), say) if verify else made
    finally:
        say("")


def _nothing(sample: StepsSample, seconds: float) -> Exception:
    """The error for a pipeline of which no element came."""
    droppers = [total for total in sample.totals if leaves_out(total.node)]
    most = max((total.records for total in sample.totals), default=0)
    if droppers and most:
        names = ", ".join(f"`{total.node.label}`" for total in droppers)
        when = "" if sample.passes else f" in {duration(seconds)}"
        return EmptyDatasetError(
            f"there is nothing to profile: {number(most)} records were read{when}, and {names} "
            "dropped all of them."
        )
    if sample.passes:
        return EmptyDatasetError("there is nothing to profile: the dataset is empty.")
    return PlanError(
        f"no element came within {duration(seconds)}: give it more time, `seconds=` is for all "
        "that is done."
    )


def profile_to_simulate(
    dataset: Any, workers: int | None, cores: float | None, seconds: float
) -> Profile:
    """Measures what a simulation with so many workers on so many cores needs to know."""
    node = with_workers_step(stream_of(dataset, "bushel.simulate"))
    if workers is None:
        workers = _workers(_worker_options(node).num_workers)
    tries = _numbers_to_try(node, workers, cores is None or cores == available_cores())
    parts = seconds, _LOOKING, _ALONE, _TRYING_ALONE
    return _measured(type(dataset).__name__, node, parts, sys.maxsize, tries, lambda _: None)[0]


def _numbers_to_try(
    node: Node, workers: int | None, on_these_cores: bool = True
) -> tuple[int, ...]:
    """Numbers of workers to try, for a training with so many; for any if it is None.

    Those of a cluster have other cores than there are here.
    """
    if workers == 0:
        return (0,)
    counts: tuple[int, ...] = ()
    if not isinstance(_worker_options(node), RayOptions):
        counts = tuple(counts_to_try(available_cores(), workers if on_these_cores else None))
    return (0, *counts) if workers is None else counts


def _measured(
    what: str,
    node: Node,
    seconds: tuple[float, float, float, float],
    most: int,
    tries: Sequence[int],
    say: Callable[[str], None],
) -> tuple[Profile, MeasuredPace]:
    """Looks at steps, runs in this thread alone, and with threads and workers as in `tries`.

    `seconds` are those of everything, and the share of each.
    """
    looking, running, trying = (seconds[0] * share for share in seconds[1:])
    say("looking at each step")
    planned = plan(alone(node))
    steps = list(walk(planned.dealt))
    crossings = [steps[index] for index, _ in crossings_in(plan(with_workers(node, 1)))]
    crossings.sort(key=steps.index)
    deadline = max(seconds[0], _PATIENCE)
    sample = sampled(planned, looking, deadline, crossings, most)
    if not sample.elements:
        raise _nothing(sample, deadline)
    say("running in this thread alone")
    pace = _undisturbed(lambda state: paced(planned, state, running, most), sample.state)
    trials: tuple[TriedRun, ...] = ()
    if tries:
        say("trying threads and workers")
        trials = tried_runs(node, pace, tries, trying, most)
    measured = Measured(sample, pace, planned)
    return _profiled(what, node, measured, sample, pace, trials), pace


def _line_on_terminal(progress: bool | None) -> Callable[[str], None]:
    if look_of(sys.stderr, progress) == "none":
        return lambda text: None

    def say(text: str) -> None:
        line = f"bushel.profile: {text} ..." if text else ""
        print(f"\r{line:<70}" if text else f"\r{line:<70}\r", end="", file=sys.stderr, flush=True)

    return say


def _undisturbed(run: Callable[[Any], MeasuredPace], state: Any) -> MeasuredPace:
    """Runs from a state on, once more where others used the cores meanwhile."""
    found: list[MeasuredPace] = []
    while len(found) < TIMES:
        found.append(run(found[-1].state if found else state))
        if found[-1].cores_of_others <= CROWDED:
            break
    least = min(found, key=lambda pace: pace.cores_of_others)
    return replace(least, state=found[-1].state)


def _profiled(
    what: str,
    node: Node,
    measured: Measured,
    sample: StepsSample,
    pace: MeasuredPace,
    trials: tuple[TriedRun, ...],
) -> Profile:
    options = _worker_options(node)
    buffer = options.per_worker_buffer_size
    each = pace.seconds_each or measured.seconds_each
    costs = measured.costs(plan(with_workers(node, 1)), max(0.0, sample.first_seconds - each))
    drifts = [drift_of(pace.pieces), *(run.drift for run in trials)]
    costs = replace(costs, trials=trials, cores=float(available_cores()), unsure=_unsure(drifts))
    made = Profile(
        what=what,
        elements=sample.elements,
        passes=sample.passes,
        first_seconds=sample.first_seconds,
        queued_share=pace.queued_seconds / max(1e-9, pace.seconds + pace.queued_seconds),
        cores=available_cores(),
        # Where it is tuned, as many as have a core each.
        workers=_workers(options.num_workers),
        buffer=buffer if isinstance(buffer, int) else 1,
        steps=measured.steps(plan(node)),
        costs=costs,
        speeds=(),
    )
    rate = None if pace.seconds_each is None else 1 / pace.seconds_each
    first = Speed("this thread alone", 0, 0, 1 / measured.seconds_each, rate)
    return replace(made, speeds=(first, *_speeds(made)))


def _unsure(drifts: Sequence[float]) -> float:
    """How far from its mean a run may be, as far as halves of the same runs differ.

    Twice the usual distance. Of two halves that differ as much as that, each is 0.7 times as far
    from the truth.
    """
    usual = math.hypot(_LEAST_UNSURE, math.sqrt(fmean(drift**2 for drift in drifts) / 2))
    return min(_MOST_UNSURE, 2 * usual)


def _worker_options(node: Node) -> MultiprocessingOptions | RayOptions:
    steps = [step for step in steps_of(node) if isinstance(step, WorkersNode)]
    return max(
        (step.options for step in steps),
        key=lambda options: _workers(options.num_workers),
    )


def _workers(asked: Any) -> int:
    bounds = worker_bounds(asked)
    return min(bounds.most, max(bounds.least, available_cores()))


def _speeds(made: Profile) -> list[Speed]:
    """What is predicted: as the pipeline is written, with threads, and with workers."""
    threads = made.costs.most_threads
    counts = sorted({0, 1, 2, 4, int(made.cores), made.workers})
    speeds = []
    for count in counts:
        run = simulated(made.costs, made.setting(count, threads))
        name = f"{count} worker{'s' * (count != 1)}"
        if not count:
            why = "threads do not pay" if threads else "and num_threads=0"
            name = f"{run.threads} threads" if run.threads else f"no workers ({why})"
        if count == made.workers:
            name += ", as written"
        speeds.append(Speed(name, count, run.threads, run.per_second))
    return speeds


def _tried(
    made: Profile,
    node: Node,
    pace: MeasuredPace,
    limits: tuple[float, int],
    say: Callable[[str], None],
) -> Profile:
    """Runs the pipeline as it is written, and with as many workers as are best.

    `limits` are the seconds of each, and the most elements.
    """
    speeds = list(made.speeds)
    most = max(speed.predicted_per_second for speed in speeds[1:])
    # The fewest that are about as good.
    best = next(
        place
        for place, speed in enumerate(speeds)
        if place and speed.predicted_per_second > 0.95 * most
    )
    written = next(
        place for place, speed in enumerate(speeds) if place and speed.workers == made.workers
    )
    if best == written and not made.workers:
        best = next(place for place, speed in enumerate(speeds) if speed.workers)
    for place in dict.fromkeys((written, best)):
        speed = speeds[place]
        say(f"trying {speed.name}")
        tried = node if place == written else with_workers(node, speed.workers)
        found = run_for(tried, pace.state, *limits)
        each = found.seconds_each
        speeds[place] = replace(
            speed,
            verified_per_second=None if each is None else 1 / each,
            first_seconds=found.first_seconds,
            passes=found.passes,
        )
    return replace(made, speeds=tuple(speeds))
