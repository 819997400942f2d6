"""The simulation of `simulate` and `profile`: when each task begins, ends and is taken.

Hosts are alike; each has its workers (or threads), its cores and its way to the data. All of them
take a step together. Pure: nothing is measured, and nobody sleeps. Per task and host:

    submitted ──> a free worker ──> read ──> worked on ──> taken, in order ──> trained on
        ^                                                    │
        └──────── as many tasks later as are under way ──────┘
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bushel.watch.costs import Costs
from bushel.watch.simulated_makers import Makers, Setting, makers_for

# More than that are simulated as if they were so many: what comes then is like what came before.
_MOST_TASKS, _MOST_HOSTS = 1000, 1024
# Nobody has more workers on a host; and so many on all hosts are simulated within a few seconds.
MOST_WORKERS, _MOST_WORKERS_OF_ALL = 1024, 1 << 15
# And so many at the least.
_LEAST_TASKS = 100
# Processes that take turns on a core find less in its caches: where there are half as many again as
# cores, all of them took so much longer.
_TAKING_TURNS = 0.1


# A figure of each host.
_OfHosts: TypeAlias = NDArray[np.float64]


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


def simulated(costs: Costs, setting: Setting) -> Simulated:
    """Counts a training with these costs."""
    makers = makers_for(costs, setting)
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


class _SimulatedHosts:
    """The clock of all hosts, and who is free when on each of them."""

    def __init__(self, costs: Costs, setting: Setting, makers: Makers) -> None:
        self._setting, self._makers = setting, makers
        most_hosts = min(_MOST_HOSTS, _MOST_WORKERS_OF_ALL // max(1, makers.count))
        self._hosts = hosts = min(setting.hosts, most_hosts)
        self._spread = np.array(costs.spread)
        self._random = np.random.default_rng(0)
        start = costs.opening_seconds + makers.start_seconds
        self._free = np.full((hosts, max(1, makers.count)), start)
        # When the way to the data, and the interpreter's lock, are free again.
        self._way = np.zeros(hosts)
        self._lock = np.zeros(hosts)
        self._taken: list[_OfHosts] = []
        # The step of a block's elements at which each host makes its next one.
        self._steps = np.random.default_rng(1).integers(makers.elements, size=hosts)
        self._start = start
        self._read_seconds = (
            0.0
            if setting.bandwidth is None
            else makers.elements * costs.source_bytes / setting.bandwidth
        )
        self._alone_seconds = costs.whole.seconds + self._read_seconds / makers.elements
        # Whenever the training comes back from where it let the lock go, it stands in a queue with
        # the threads: what they do under the lock is as good as done in between.
        self._step_seconds = setting.step_seconds + makers.late_seconds
        self._shares, self._slowness = np.array(makers.slowness).T
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
        slowness = makers.slowness[-1][1]
        cycle = max(own, slowness * makers.each.seconds / makers.count)
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
        if not makers.count:
            last += self._out_of_step(got - asked)
        self.wait_for_hosts += last - float(got.mean())
        if not number:
            # The first tasks are of one element, for which nobody waits side by side.
            self.first = self._start + self._alone_seconds + makers.task_cost
        self.clock = last + makers.elements * self._step_seconds

    def _out_of_step(self, seconds: _OfHosts) -> float:
        """What hosts wait for blocks that others make at another step, where nobody makes ahead.

        Each makes a block when the last one is used up, which is not at the same step everywhere.
        """
        longest = np.zeros(self._makers.elements)
        np.maximum.at(longest, self._steps, seconds)
        return float(longest.sum() - seconds.max())

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
        slower *= 1 + _TAKING_TURNS * np.clip(2 * (slower - 1), 0, 1)
        if self._read_seconds:
            self._way = np.maximum(self._way, begun) + self._read_seconds
        each = makers.each
        seconds = each.seconds - each.cpu_seconds + each.cpu_seconds * slower
        seconds *= np.interp(active / self._setting.cores, self._shares, self._slowness)
        ended: _OfHosts = (
            np.maximum(begun, self._way) + makers.elements * seconds * factor + makers.task_cost
        )
        if not makers.is_workers:
            held = makers.one_by_one * makers.elements * factor
            self._lock = np.maximum(self._lock, begun) + held
            ended = np.maximum(ended, self._lock)
        self._busy += float((ended - begun).mean())
        self._free[hosts, who] = ended
        return ended
