"""A training that is not there, counted: when each task begins, ends and is taken.

Hosts are alike; each has its workers (or threads), its cores and its way to the data. All of them
take a step together. Pure: nothing is measured, and nobody sleeps. Per task and host:

    submitted ──> a free worker ──> read ──> worked on ──> taken, in order ──> trained on
        ^                                                    │
        └──────── as many tasks later as are under way ──────┘
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bushel.core.block_size import MOST_BYTES, TARGET_SECONDS, BlockSize
from bushel.watch.costs import Costs, ElementWork
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
# Until the first worker is at work.
START_SECONDS = 0.12
# More than that are simulated as if they were so many: what comes then is like what came before.
_MOST_TASKS, _MOST_HOSTS = 1000, 1024
# And so many at the least.
_LEAST_TASKS = 100


# A figure of each host.
_OfHosts: TypeAlias = NDArray[np.float64]


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
class Simulated:
    """What became of it, for one of the hosts; waits are the mean over hosts."""

    steps: int
    elapsed_seconds: float
    # Waiting for its own data, or for the lock that threads have, and for hosts that come later.
    wait_seconds: float
    wait_for_hosts_seconds: float
    first_seconds: float
    # Who makes the elements: so many workers, or so many threads, or neither.
    workers: int
    threads: int
    # Of their time, until the end.
    busy_share: float
    # Elements that are made, or under way, before they are asked for.
    ahead: int
    # Of the wait for an element, what is done in the process that trains.
    here_seconds: float
    # Once it runs: seconds from one element to the next, and of that those that it waits.
    steady_seconds: float
    steady_wait_seconds: float
    # Elements that a worker is assumed to make at the same time, by threads of its own.
    side_by_side: int = 1

    @property
    def per_second(self) -> float:
        """Elements a second, once it runs."""
        return 1 / self.steady_seconds if self.steady_seconds else 0.0

    @property
    def steady_wait_share(self) -> float:
        """The share of its time that the training waits, once it runs."""
        return self.steady_wait_seconds / self.steady_seconds if self.steady_seconds else 0.0


@dataclass(frozen=True, slots=True)
class _Makers:
    """Who makes elements, how many a task has, and what is under way."""

    count: int
    is_workers: bool
    each: ElementWork
    here: ElementWork
    elements: int
    tasks_ahead: int
    task_cost: float
    side_by_side: int = 1


def simulated(costs: Costs, setting: Setting) -> Simulated:
    """Counts a training with these costs."""
    makers = _makers(costs, setting)
    run = _SimulatedHosts(costs, setting, makers)
    elements = makers.elements
    tasks = -(-setting.steps // elements)
    # At least so many that what comes at first no longer matters.
    # Tasks that are made at the same time come in bursts: whole ones are counted.
    burst = max(1, makers.count)
    shown = burst * -(-max(min(tasks, _MOST_TASKS), _LEAST_TASKS, 4 * makers.tasks_ahead) // burst)
    marks = np.zeros((shown, 2))
    for task in range(shown):
        run.take(task)
        marks[task] = run.clock, run.wait_for_hosts
    half = shown - 1 - burst * (shown // 2 // burst)
    steady = (marks[-1] - marks[half]) / (shown - 1 - half) / elements
    # As counted, and the rest as in the second half.
    begin = np.array([run.first, 0.0])
    counted = min(tasks, shown)
    rest = setting.steps - counted * elements
    # (The last task may not be full: then the rest is less than nothing.)
    whole = np.maximum(marks[counted - 1] + rest * steady, begin)
    elapsed, for_hosts = map(float, whole)
    wait = elapsed - setting.steps * setting.step_seconds - for_hosts
    return Simulated(
        steps=setting.steps,
        elapsed_seconds=elapsed,
        wait_seconds=max(wait, 0.0),
        wait_for_hosts_seconds=for_hosts,
        first_seconds=run.first,
        workers=makers.count if makers.is_workers else 0,
        threads=0 if makers.is_workers else makers.count,
        busy_share=run.busy_share,
        ahead=makers.tasks_ahead * elements,
        here_seconds=makers.here.seconds + makers.task_cost / elements if makers.count else 0.0,
        steady_seconds=float(steady[0]),
        steady_wait_seconds=max(0.0, float(steady[0]) - setting.step_seconds),
        side_by_side=makers.side_by_side,
    )


def _makers(costs: Costs, setting: Setting) -> _Makers:
    if setting.workers:
        work = costs.in_workers.less(costs.fresh_seconds)
        here = costs.beside_workers + _busy(costs.taking_seconds)
        side = _side_by_side(work, costs, setting.cores / setting.workers)
        each = _divided(work, side) + _busy(costs.sending_seconds - costs.placed_seconds)
        elements = side
        if side == 1 or not _waits(work):
            elements = max(side, _elements(each, _TASK_SECONDS, costs.bytes, _TASK_BYTES))
        if elements * costs.source_records > _CACHED_RECORDS:
            each = each.times(_OUT_OF_CACHE)
        tasks = setting.workers * (1 + max(1, setting.buffer))
        return _Makers(setting.workers, True, each, here, elements, tasks, _TASK_COST, side)
    threads = _threads(costs, setting)
    if threads:
        elements = _elements(costs.on_threads, _BLOCK_SECONDS, costs.bytes)
        return _Makers(
            threads,
            False,
            costs.on_threads,
            costs.beside_threads,
            elements,
            2 * threads,
            _BLOCK_COST,
        )
    elements = _elements(costs.whole, _BLOCK_SECONDS, costs.bytes)
    return _Makers(0, False, ElementWork(), costs.whole, elements, 0, 0.0)


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
    wanted = math.ceil(max(cores, 0.1) / max(work.cpu_share, 1e-3) - 0.1)
    threads = max(1, min(costs.most_threads, wanted))
    if _waits(work):
        return max(1, min(threads, int(_MOST_BYTES_SIDE_BY_SIDE / max(1.0, costs.bytes))))
    best = max(_one_by_one(work, costs), work.seconds * (1 + _LAST_ONE) / threads)
    return threads if work.seconds > _WORTH_IT * best else 1


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


def _threads(costs: Costs, setting: Setting) -> int:
    """How many threads the engine would use here: none where they do not pay."""
    work = costs.on_threads
    most = min(setting.threads, costs.most_threads)
    if not most or not work.seconds:
        return 0
    threads = max(1, min(most, math.ceil(setting.cores / max(work.cpu_share, 1e-3) - 0.1)))
    user = setting.step_seconds + costs.beside_threads.seconds
    one_by_one = _one_by_one(work, costs)
    best = max(user, one_by_one, work.seconds / threads, work.cpu_seconds / setting.cores)
    return threads if user + work.seconds > _WORTH_IT * best else 0


def _one_by_one(work: ElementWork, costs: Costs) -> float:
    """What threads of one process cannot do at the same time."""
    return max(work.lock_seconds, costs.made_bytes * _SECONDS_A_BYTE)


class _SimulatedHosts:
    """The clock of all hosts, and who is free when on each of them."""

    def __init__(self, costs: Costs, setting: Setting, makers: _Makers) -> None:
        self._setting, self._makers = setting, makers
        self._hosts = hosts = min(setting.hosts, _MOST_HOSTS)
        self._spread = np.array(costs.spread)
        self._random = np.random.default_rng(0)
        start = costs.opening_seconds + (START_SECONDS if makers.is_workers else 0.0)
        self._free = np.full((hosts, max(1, makers.count)), start)
        # When the way to the data, and the interpreter's lock, are free again.
        self._way = np.zeros(hosts)
        self._lock = np.zeros(hosts)
        self._taken: list[_OfHosts] = []
        self._start = start
        self._read_seconds = (
            0.0
            if setting.bandwidth is None
            else makers.elements * costs.source_bytes / setting.bandwidth
        )
        self._one_by_one = _one_by_one(makers.each, costs)
        self._alone_seconds = costs.whole.seconds + self._read_seconds / makers.elements
        self._step_seconds = setting.step_seconds
        if makers.count and not makers.is_workers and setting.step_seconds:
            # Whenever the training comes back from where it let the lock go, it stands in a queue
            # with the threads: what they do under the lock is as good as done in between.
            self._step_seconds += self._one_by_one
        self._here_share = self._share_of_a_core_here()
        self.clock = 0.0
        self.wait_for_hosts = self.first = 0.0
        self._busy = 0.0

    @property
    def busy_share(self) -> float:
        whole = self.clock * self._makers.count
        return min(1.0, self._busy / whole) if whole else 0.0

    def _share_of_a_core_here(self) -> float:
        """The share of a core that the thread that asks takes from those who make elements."""
        makers = self._makers
        if not makers.count:
            return 0.0
        here = makers.here.cpu_seconds + makers.task_cost / makers.elements
        own = makers.here.seconds + self._step_seconds
        cycle = max(own, makers.each.seconds / makers.count)
        return min(1.0, here / max(cycle, 1e-9))

    def take(self, number: int) -> None:
        """Goes on to when a task was taken by all hosts, and trained on."""
        makers, asked = self._makers, self.clock
        factor = self._spread[self._random.integers(len(self._spread), size=self._hosts)]
        if makers.count:
            made = self._made(number, factor)
            here = makers.here.times(makers.elements).seconds * factor + makers.task_cost
            if not makers.is_workers:
                # What is done here needs the lock as well.
                self._lock = self._lock + makers.here.lock_seconds * makers.elements * factor
            got = np.maximum(made, asked) + here
        else:
            seconds = makers.here.seconds * makers.elements * factor + self._read_seconds
            got = np.full(self._hosts, asked) + seconds + (self._start if not number else 0.0)
        self._taken.append(got)
        last = float(got.max())
        self.wait_for_hosts += last - float(got.mean())
        if not number:
            # The first tasks are of one element, for which nobody waits side by side.
            self.first = self._start + self._alone_seconds + makers.task_cost
        self.clock = last + makers.elements * self._step_seconds

    def _made(self, number: int, factor: _OfHosts) -> _OfHosts:
        """When a task is made on each host."""
        makers = self._makers
        before = number - makers.tasks_ahead
        submitted = self._taken[before] if before >= 0 else np.full(self._hosts, 0.0)
        hosts = np.arange(self._hosts)
        who = self._free.argmin(axis=1)
        begun = np.maximum(submitted, self._free[hosts, who])
        # Others that are at work then have their share of the cores.
        active = 1 + (self._free > begun[:, None]).sum(axis=1)
        wanted = active * makers.each.cpu_share + self._here_share
        slower = np.maximum(1.0, wanted / self._setting.cores)
        if self._read_seconds:
            self._way = np.maximum(self._way, begun) + self._read_seconds
        each = makers.each
        seconds = (each.seconds - each.cpu_seconds) + each.cpu_seconds * slower
        ended: _OfHosts = (
            np.maximum(begun, self._way) + makers.elements * seconds * factor + makers.task_cost
        )
        if not makers.is_workers:
            held = self._one_by_one * makers.elements * factor
            self._lock = np.maximum(self._lock, begun) + held
            ended = np.maximum(ended, self._lock)
        self._busy += float((ended - begun).mean())
        self._free[hosts, who] = ended
        return ended
