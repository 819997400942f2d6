"""For `simulate` and `profile`: what workers or threads take, alone and when they share cores.

What one of them takes follows from the sample. What several take at the same time, on cores that
share a cache, a way to memory and perhaps more, nobody can tell from one: where the pipeline was
tried with some (`watch/trials.py`), what they took then is the measure, for as large a share of
the cores at work.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from bushel.core.block_size import MOST_BYTES, TARGET_SECONDS, BlockSize
from bushel.watch.costs import Costs, ElementWork, TriedRun
from bushel.workers.fragment import TASK_SECONDS

# Tasks of workers, and blocks of threads, take about so long; the former are about so large.
_TASK_SECONDS, _BLOCK_SECONDS = TASK_SECONDS, TARGET_SECONDS
_TASK_BYTES = 1 << 20
# Blocks after which it is known how many elements they have.
_LEARNED = 8
# To send a task, take its outcome and hand it out takes so much here, and as much there.
_TASK_COST = 0.0003
# Records of one task that are more than that are no longer in the cache when the next step comes
# to them, and take so much longer.
_CACHED_RECORDS, _OUT_OF_CACHE = 20_000, 1.4
# Threads of one process that wait, wake up and take the lock again: so much more time on a core.
_WAKING = 2.0
# And those of a worker wait for the last one before the next task begins: so many elements longer.
_LAST_ONE = 0.5
# Threads of one process share its way to memory: new arrays take so long, one after the other.
_SECONDS_A_BYTE = 1e-10
# To hand a block over from a thread.
_BLOCK_COST = 0.0001
# A worker that waits for elements side by side has so many bytes of them in a task.
_MOST_BYTES_SIDE_BY_SIDE = 1 << 22
# Threads must gain so much, or nobody uses them (see `run/thread_choice.py`).
_WORTH_IT = 1.1
# Until the first worker is at work, where none was tried.
START_SECONDS = 0.12
# Where the thread that asks was on a core for more than this share of the time, it was waited for,
# and not the workers.
_ASKED_TOO_SLOWLY = 0.8


@dataclass(frozen=True, slots=True)
class Setting:
    """What is to be simulated."""

    workers: int = 0
    # The most threads, where there are no workers; of those that pay, if any do.
    threads: int = 0
    # Tasks that each worker may have waiting beside the one that it is at.
    buffer: int = 1
    cores: float = 1.0
    hosts: int = 1
    # Of the training, for each element.
    step_seconds: float = 0.0
    # Bytes a second from where the data is to each host; None where it is as fast as measured.
    bandwidth: float | None = None
    steps: int = 1000


@dataclass(frozen=True, slots=True)
class Makers:
    """Who makes elements, how many a task has, and what is under way."""

    count: int
    is_workers: bool
    each: ElementWork
    # In the thread that asks.
    here: ElementWork
    elements: int
    tasks_ahead: int = 0
    task_cost: float = 0.0
    side_by_side: int = 1
    # Shares of the cores that are at work, and how many times as long as `each` it takes then.
    slowness: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    # What only one of them can do at a time.
    one_by_one: float = 0.0
    # What a training loses for each element, since it wants the interpreter's lock as well.
    late_seconds: float = 0.0
    # Until the first of them is at work.
    start_seconds: float = 0.0


def makers_for(costs: Costs, setting: Setting) -> Makers:
    """Who would make the elements: workers, or threads where they pay, or who asks for them."""
    if setting.workers:
        return _tried_workers(_workers(costs, setting), costs, setting)
    return _threads(costs, setting) or _alone(costs, setting.cores)


def _workers(costs: Costs, setting: Setting) -> Makers:
    """Workers, by what the sample took alone."""
    work = costs.in_workers.less(costs.fresh_seconds)
    here = costs.beside_workers + _busy(costs.taking_seconds)
    side = _side_by_side(work, costs, setting.cores / setting.workers)
    each = _divided(work, side) + _busy(costs.sending_seconds - costs.placed_seconds)
    elements = side
    if side == 1 or not _waits(work):
        elements = max(side, _elements(each, _TASK_SECONDS, costs.bytes, _TASK_BYTES))
    if elements * costs.source_records > _CACHED_RECORDS:
        each = each.times(_OUT_OF_CACHE)
    return Makers(
        setting.workers,
        True,
        each,
        here,
        elements,
        setting.workers * (1 + max(1, setting.buffer)),
        _TASK_COST,
        side,
        start_seconds=START_SECONDS,
    )


def _tried_workers(made: Makers, costs: Costs, setting: Setting) -> Makers:
    """The same, by what they took when they were tried."""
    runs = sorted((run for run in costs.trials if run.workers), key=lambda run: run.workers)
    if not runs:
        return made
    shares = [run.workers / costs.cores for run in runs]
    share = setting.workers / setting.cores
    here = float(np.interp(share, shares, [run.here_seconds for run in runs]))
    start = float(np.interp(share, shares, [run.first_seconds for run in runs]))
    alike = [
        _workers(costs, replace(setting, workers=run.workers, cores=costs.cores)) for run in runs
    ]
    slowness = [
        _slowness(run, one, costs.cores, run.here_seconds > _ASKED_TOO_SLOWLY * run.seconds)
        for run, one in zip(runs, alike, strict=True)
    ]
    return replace(
        made,
        here=_busy(here),
        task_cost=0.0,
        slowness=tuple(zip(shares, slowness, strict=True)),
        start_seconds=max(0.0, start - costs.opening_seconds - costs.whole.seconds),
    )


def _slowness(run: TriedRun, made: Makers, cores: float, at_most_one: bool = False) -> float:
    """How many times as long as by the sample it took each of those who were tried.

    Beside that, they had to share the cores.
    """
    each = made.each
    crowd = max(1.0, (made.count * each.cpu_share + run.here_seconds / run.seconds) / cores)
    sharing = max(each.seconds, 1e-12) + each.cpu_seconds * (crowd - 1)
    took = made.count * run.seconds / sharing
    return min(took, 1.0) if at_most_one else took


def _threads(costs: Costs, setting: Setting) -> Makers | None:
    """Threads of the process that trains; None where the engine would use none."""
    work = costs.on_threads
    most = min(setting.threads, costs.most_threads)
    if not most or not work.seconds:
        return None
    count = _wanted(work, setting.cores, most)
    made = Makers(
        count,
        False,
        work,
        costs.beside_threads,
        _elements(work, _BLOCK_SECONDS, costs.bytes),
        # (As `run/threads.py` has them.)
        2 * count + 1,
        _BLOCK_COST,
        one_by_one=_one_by_one(work, costs),
        late_seconds=work.lock_seconds if setting.step_seconds else 0.0,
    )
    idle, slept = _tried_threads(costs)
    if idle is not None:
        return _as_tried(made, costs, setting, idle, slept)
    user = setting.step_seconds + costs.beside_threads.seconds
    best = max(user, made.one_by_one, work.seconds / count, work.cpu_seconds / setting.cores)
    return made if user + work.seconds > _WORTH_IT * best else None


def _as_tried(
    made: Makers, costs: Costs, setting: Setting, idle: TriedRun, slept: TriedRun | None
) -> Makers | None:
    """Threads as they were when they were tried: for a loop that was idle, and one that slept."""
    each = made.each
    # Threads that are slower were on trial then: the engine ends that.
    pay = _is_on_threads(idle, costs) and idle.seconds < costs.whole.seconds
    if not setting.step_seconds and not pay:
        return None
    if slept is not None and not pay and not _is_on_threads(slept, costs):
        return None
    if pay:
        then = replace(made, count=_wanted(each, costs.cores, costs.most_threads))
        made = replace(
            made,
            slowness=((1.0, _slowness(idle, then, costs.cores)),),
            one_by_one=min(made.one_by_one, idle.seconds),
        )
    else:
        # They take turns, so that one does as well: it works while the training does.
        made = replace(made, count=1, tasks_ahead=2, one_by_one=0.0)
    if slept is not None and _is_on_threads(slept, costs):
        late = slept.seconds - slept.step_seconds - slept.here_seconds
        made = replace(made, late_seconds=max(0.0, late) if setting.step_seconds else 0.0)
    if not setting.step_seconds:
        return made
    user = setting.step_seconds + made.here.seconds + made.late_seconds
    cycle = max(user, each.seconds * made.slowness[-1][1] / made.count, made.one_by_one)
    return made if setting.step_seconds + costs.whole.seconds > _WORTH_IT * cycle else None


def _alone(costs: Costs, cores: float) -> Makers:
    """Nobody but the thread that asks."""
    whole = costs.whole
    idle, _ = _tried_threads(costs)
    if idle is not None and not _is_on_threads(idle, costs) and whole.seconds:
        # Seen twice.
        whole = whole.times((1 + idle.seconds / whole.seconds) / 2)
    # Of less than a core, only that.
    shared = max(0.0, 1 / cores - 1) * whole.cpu_seconds
    whole = whole + ElementWork(shared, shared)
    return Makers(0, False, ElementWork(), whole, _elements(whole, _BLOCK_SECONDS, costs.bytes))


def _tried_threads(costs: Costs) -> tuple[TriedRun | None, TriedRun | None]:
    """The runs without workers: of a loop that did nothing, and of one that slept."""
    runs = [run for run in costs.trials if not run.workers]
    idle = next((run for run in runs if not run.step_seconds), None)
    return idle, next((run for run in runs if run.step_seconds), None)


def _is_on_threads(run: TriedRun, costs: Costs) -> bool:
    """Whether threads did the work, and not the one that asked: by what the latter took."""
    return run.here_seconds < (costs.whole.cpu_seconds + costs.beside_threads.cpu_seconds) / 2


def _busy(seconds: float) -> ElementWork:
    return ElementWork(seconds, seconds, seconds)


def _elements(
    work: ElementWork, seconds: float, bytes_each: float, most_bytes: int = MOST_BYTES
) -> int:
    """How many elements a task has, by what decides it where it runs."""
    size = BlockSize(most_bytes=most_bytes, target_seconds=seconds)
    size.limit_to(round(bytes_each))
    for _ in range(_LEARNED):
        size.learn(size.size, size.size * max(work.seconds, 1e-9))
    return size.size


def _side_by_side(work: ElementWork, costs: Costs, cores: float) -> int:
    """How many elements a worker makes at the same time: by threads, where they pay."""
    if not costs.most_threads:
        return 1
    threads = _wanted(work, max(cores, 0.1), costs.most_threads)
    if _waits(work):
        return max(1, min(threads, int(_MOST_BYTES_SIDE_BY_SIDE / max(1.0, costs.bytes))))
    best = max(_one_by_one(work, costs), work.seconds * (1 + _LAST_ONE) / threads)
    return threads if work.seconds > _WORTH_IT * best else 1


def _wanted(work: ElementWork, cores: float, most: int) -> int:
    """As many threads as keep the cores busy."""
    return max(1, min(most, math.ceil(cores / max(work.cpu_share, 1e-3) - 0.1)))


def _waits(work: ElementWork) -> bool:
    return work.cpu_share < 0.5


def _divided(work: ElementWork, side: int) -> ElementWork:
    """What an element takes a worker that waits for so many of them at the same time."""
    if side == 1:
        return work
    seconds = work.seconds * (1 + _LAST_ONE) / side
    cpu_seconds = min((_WAKING if _waits(work) else 1.0) * work.cpu_seconds, work.seconds)
    return ElementWork(
        max(seconds, cpu_seconds / side, work.lock_seconds), cpu_seconds, work.lock_seconds
    )


def _one_by_one(work: ElementWork, costs: Costs) -> float:
    """What threads of one process cannot do at the same time: no more than all that one does."""
    return min(work.seconds, max(work.lock_seconds, costs.made_bytes * _SECONDS_A_BYTE))
