"""`why_slow()`: rules for why a loop waits for data, each with one change to make."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bushel.core.machine import available_cores
from bushel.watch.durations import duration, percent
from bushel.watch.plain_text import plural, size

if TYPE_CHECKING:
    from bushel.watch.stats import Stats, StepStats

# A loop that waits less than this share of its time has nothing to gain.
_NO_WAIT = 0.01
# Fewer seconds, or elements, are no evidence.
_LEAST_SECONDS, _LEAST_ELEMENTS = 0.2, 3
# Workers that are busy for more than the first share of their time are the bottleneck; for less
# than the second they are not.
_BUSY, _IDLE = 0.8, 0.5
# For less than this, it is not for them that a task is not ready.
_HARDLY = 0.2
# More workers than this multiple of the cores are no good advice.
_MOST_TIMES = 8
# A step with at least this share of the time is the one to improve.
_HEAVY = 0.5
# Bytes a second above which sending is probably what this process spends its time on.
_MUCH_SENT = 2e9
# The number of elements taken from workers for each element of the loop above which their number is
# the problem.
_MANY_TAKEN = 4


_WITHOUT_THREADS = (
    " If it waits for something (`bushel.profile` measures that), threads are best: "
    "`ReadOptions(num_threads=16)`. Otherwise,"
)


def why_slow(stats: "Stats", cores: float | None = None) -> tuple[str, ...]:
    """The sentences that apply. `cores` are those of this machine by default."""
    if stats.elements < _LEAST_ELEMENTS or stats.elapsed_seconds < _LEAST_SECONDS:
        return ("too few elements so far to say why.",)
    if stats.wait_share < _NO_WAIT:
        return (
            f"the data is not what you wait for: {percent(stats.wait_share)} of the time "
            f"(below {percent(_NO_WAIT)}).",
        )
    first, since = stats.first_wait_seconds, stats.elapsed_seconds - stats.first_wait_seconds
    share = max(0.0, stats.wait_seconds - first) / since if since > 0 else 1.0
    if first and share < _NO_WAIT:
        return (
            f"the data is not what you wait for, once it runs: {percent(share)} of the time "
            f"(below {percent(_NO_WAIT)}). The wait for the first element, in which everything "
            f"starts, took {duration(first)}.",
        )
    cores = available_cores() if cores is None else cores
    found = [*_about_workers(stats, cores), *_about_here(stats)]
    if found:
        return tuple(found)
    return (
        f"your loop waits {percent(stats.wait_share)} of its time, and no rule says why. "
        "`bushel.iterate(dataset, stats=True)` counts the steps."
        if stats.steps is None
        else f"your loop waits {percent(stats.wait_share)} of its time, and no rule says why.",
    )


def _about_workers(stats: "Stats", cores: float) -> list[str]:
    found: list[str] = []
    first = stats.first_wait_seconds
    for figures in stats.workers:
        busy = figures.busy_share
        if busy >= _BUSY:
            own_seconds = max(1e-9, stats.elapsed_seconds - stats.wait_seconds)
            wanted = math.ceil(1.1 * figures.busy_seconds / own_seconds)
            if figures.workers < cores:
                enough = min(wanted, max(1, math.floor(cores)))
                never = "" if enough == wanted else f" (to never wait it would take {wanted})"
                if wanted > _MOST_TIMES * cores:
                    never = " (your loop does next to nothing itself, so it waits in any case)"
                found.append(
                    f"workers are busy {percent(busy)} of their time (above {percent(_BUSY)}) and "
                    f"there are {cores:g} cores: num_workers={max(enough, figures.workers + 1)}"
                    f"{never}."
                )
            else:
                found.append(
                    f"workers are busy {percent(busy)} of their time (above {percent(_BUSY)}) and "
                    f"have all {cores:g} cores. {_heaviest(stats.steps, 'workers')}"
                )
        elif busy >= _IDLE:
            found.append(
                f"workers are busy {percent(busy)} of their time (below {percent(_BUSY)}) and yet "
                f"your loop waits {percent(stats.wait_share)} of its time: in bursts. A larger "
                "`per_worker_buffer_size` keeps more elements ready for them."
            )
        elif (heavy := _heavy(stats.steps, "here")) is not None:
            found.append(
                f"workers are busy {percent(busy)} of their time only (below {percent(_IDLE)}), "
                f"and `{heavy.name}` takes {percent(heavy.share)} of the time in this process: "
                "`explain()` says why it does not run in the workers, and what to write instead."
            )
        elif (cut := _cut(stats)) is not None:
            found.append(
                f"workers are busy {percent(busy)} of their time only (below {percent(_IDLE)}): "
                f"`{cut.name}` runs in this process, and gets its elements from them one by one. "
                "`explain()` says why it does not run in the workers, and what to write instead."
            )
        elif stats.elements and (figures.ready_tasks or busy < _HARDLY):
            each = max(0.0, stats.wait_seconds - first) / stats.elements
            found.append(
                f"workers are busy {percent(busy)} of their time "
                f"{_ready(figures.ready_tasks)}: your loop waits for "
                f"the transfer of elements, {duration(each)} for "
                f"{size(figures.bytes // stats.elements)} each. Smaller dtypes before the batch "
                "(uint8 instead of float32) make it shorter."
            )
        if stats.elapsed_seconds and figures.bytes / stats.elapsed_seconds > _MUCH_SENT:
            found.append(
                f"workers send {figures.bytes / stats.elapsed_seconds / 1e9:.1f} GB a second: "
                "smaller dtypes before the batch (uint8 instead of float32) send less."
            )
        if figures.deaths:
            found.append(
                f"{plural(figures.deaths, 'worker')} died and {_were(figures.deaths)} replaced, "
                f"and {plural(figures.repeated_tasks, 'task')} {_were(figures.repeated_tasks)} "
                "done again: the log has the causes."
            )
    return found


def _ready(tasks: int) -> str:
    if not tasks:
        return f"only (below {percent(_HARDLY)})"
    verb = "is" if tasks == 1 else "are"
    return f"(below {percent(_IDLE)}) and {plural(tasks, 'task')} of theirs {verb} ready"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _about_here(stats: "Stats") -> list[str]:
    if stats.workers:
        return []
    heavy = _heavy(stats.steps, "here")
    if heavy is None:
        return []
    threads = "; ".join(stats.threads)
    on_threads = f" Threads: {threads}." if threads else _WITHOUT_THREADS
    return [
        f"your loop waits {percent(stats.wait_share)} of its time, and `{heavy.name}` is "
        f"{percent(heavy.share)} of the work ({duration(heavy.seconds_per_record)} a record)."
        f"{on_threads} `mp_prefetch(MultiprocessingOptions(num_workers=n))` at the end moves it "
        "to other processes; a function over whole batches (`map_batches`) or a `cache()` after "
        "the step reduces it."
    ]


def _heavy(steps: "Sequence[StepStats] | None", place: str) -> "StepStats | None":
    """The step that takes most of the time, if it runs in that place."""
    heaviest = max(steps or (), key=lambda step: step.seconds, default=None)
    if heaviest is None or heaviest.place != place or heaviest.share < _HEAVY:
        return None
    return heaviest


def _cut(stats: "Stats") -> "StepStats | None":
    """The first step of this process after workers, if it takes many elements for each."""
    steps = stats.steps or ()
    taken = sum(step.records for step in steps if step.place == "waiting")
    first = min((step.number for step in steps if step.place == "workers"), default=-1)
    here = [step for step in steps if step.place == "here" and step.number > first >= 0]
    if not here or taken < _MANY_TAKEN * stats.elements:
        return None
    return min(here, key=lambda step: step.number)


def _heaviest(steps: "Sequence[StepStats] | None", place: str) -> str:
    heaviest = max(
        (step for step in steps or () if step.place == place),
        key=lambda step: step.seconds,
        default=None,
    )
    if heaviest is None:
        return "Count the steps (`bushel.iterate(dataset, stats=True)`) to see which one to change."
    return (
        f"`{heaviest.name}` takes {percent(heaviest.share)} of the time: a function over whole "
        "batches (`map_batches`), or a `cache()` after it, makes it less."
    )
