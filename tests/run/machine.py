"""A machine of a few lines: what a stream on it would measure, inline and on threads."""

import math
import random
from dataclasses import dataclass, replace

from bushel.run.thread_choice import ThreadChoice
from bushel.run.thread_time import Spent


@dataclass(frozen=True)
class Machine:
    """Work of one element, the user's own work for each, and who else wants the cores."""

    cpu: float  # seconds of an element on a core
    gil: float = 0.0  # the share of it that holds the interpreter's lock
    own_lock: float = 0.0  # the share of it that holds a lock of its own, or is short of memory
    wait: float = 0.0  # seconds of an element off the core
    user: float = 0.0  # seconds of the user for each element
    user_gil: float = 0.0  # the share of them that holds the lock; for the rest a device works
    cores: float = 2  # a container may have a share of one
    load: int = 0  # programs beside us that are always busy
    # The share of a turn on the cores that another thread brings, if it only waits for the lock:
    # it wakes up now and then to look for it.
    greed: float = 0.0
    # How unlike tenths of a second are beside such programs: of the logarithm of what elements
    # take. (0.1 to 0.25 were measured.)
    unrest: float = 0.0
    # The share of the waiting for the lock that looks like the queue for a core, and the share of
    # the queue of who has the lock that looks like waiting to others.
    blur: float = 0.0
    # How much more time on the cores an element takes on one of several threads: they hand the
    # lock to and fro, or wake each other up.
    strife: float = 0.0

    @property
    def busy(self) -> float:
        """The share of an element's time on a core."""
        return max(self.cpu / (self.cpu + self.wait), 1e-3)

    def stretch(self, threads: int) -> float:
        """How much longer a second on a core takes when we have so many threads."""
        held = max(self.gil, self.own_lock)
        most = 1 / held if held else threads
        running = max(1.0, min(threads * self.busy, most))
        # However much of its time work waits, the cores do no more than they can.
        full = min(threads, most) / self.cores - self.wait / self.cpu
        return max(1.0, full, (running + self.load) / self.cores)

    def cycle(self, threads: int) -> float:
        """Seconds from element to element."""
        if not threads:
            return self.user_on(0) + self.work_on(0)
        return max(self.user_on(threads), self.work_on(threads) / threads)

    def user_on(self, threads: int) -> float:
        """The user's seconds while threads work: longer where both want the lock."""
        held = self.user * self.user_gil
        lost = min(held, self.cpu * self.gil) if threads else 0.0
        return self.user - held + held * self.stretch(0) + lost

    def work_on(self, threads: int) -> float:
        """Seconds that an element takes one of so many threads."""
        alone = self.cpu_on(threads) * self.stretch(threads) + self.wait
        held = max(self.gil, self.own_lock)
        return max(alone, threads * self.cpu * held * self._stretch_with_lock(threads))

    def cpu_on(self, threads: int) -> float:
        """Seconds on a core of an element."""
        return self.cpu * (1 + self.strife * (threads > 1))

    def _stretch_with_lock(self, threads: int) -> float:
        turns = 1 + self.greed * max(0, threads - 1)
        return max(1.0, (turns + self.load) / (turns * self.cores))

    def spent_on(self, threads: int) -> Spent:
        """The same as it is measured: without the queue for a core."""
        cpu = self.cpu_on(threads)
        queued = cpu * (self.stretch(threads) - 1)
        seconds = max(cpu, self.work_on(threads) - queued)
        if threads > 1 and self.load:
            hidden = self.blur * (seconds - self.cpu - self.wait) * self.gil
            seen = self.blur * (1 - self.gil) * 0.8 * self.cpu
            seconds, queued = seconds - hidden + seen, queued + hidden
        return Spent(seconds, cpu, queued)

    def best(self, most_threads: int) -> float:
        """The best cycle of all, with no more threads than can keep the cores busy.

        (More would take the cores from others.)
        """
        useful = max(1, min(most_threads, math.ceil(self.cores / self.busy - 0.1)))
        return min(self.cycle(threads) for threads in range(useful + 1))


class Run:
    """A stream on such a machine, block after block, decided by a choice."""

    def __init__(
        self,
        machine: Machine,
        choice: ThreadChoice,
        block_seconds: float = 0.004,
        weather: random.Random | None = None,
    ) -> None:
        self.machine, self.choice, self._block_seconds = machine, choice, block_seconds
        self.now = 0.0
        self.blocks = 0
        self.changes: list[float] = []
        self._weather = weather or random.Random(0)
        self._fair_until, self._fair = 0.0, 1.0
        self._looks = self._taken = 0
        self._stopped = 0.0

    def go_on(self, seconds: float, least_blocks: int = 0) -> float:
        """Runs for so long; returns the mean cycle."""
        end, last = self.now + seconds, self.blocks + least_blocks
        began, elements = self.now, 0
        while self.now < end or self.blocks < last:
            elements += self._deliver()
        return (self.now - began) / elements

    def stop(self, seconds: float) -> None:
        """Stops the process for so long, in the middle of the next block.

        It has no core then, nor is it in the queue for one: as if the block had waited.
        """
        self._stopped = seconds

    def change(self, **to: float) -> None:
        self.machine = replace(self.machine, **to)

    def _deliver(self) -> int:
        machine, choice = self.machine, self.choice
        threads = choice.threads if choice.threaded else 0
        count = max(1, int(self._block_seconds / (machine.cpu + machine.wait)))
        stopped, self._stopped = self._stopped, 0.0
        seconds = count * machine.cycle(threads) * self._fairness() + stopped
        self.now += seconds
        self.blocks += 1
        if choice.looking:
            self._look_at_lock(count * machine.work_on(0))
            user = count * machine.user_on(0)
            choice.learn_lock(self._looks, self._taken, count, seconds, user)
        else:
            self._looks = self._taken = 0
            if choice.watching:
                spent = machine.spent_on(threads).times(count)
                spent = spent._replace(seconds=spent.seconds + stopped)
                choice.learn_work(count, spent, threads)
            choice.learn_cycle(count, seconds, count * machine.user_on(threads))
        if (choice.threads if choice.threaded else 0) != threads:
            self.changes.append(self.now)
        return count

    def _look_at_lock(self, seconds: float) -> None:
        """Looks every 5 ms while work is done inline."""
        looks = min(100, int(seconds / 0.005 + self._weather.random()))
        held = self.machine.gil * self.machine.busy
        self._looks += looks
        self._taken += sum(self._weather.random() < held for _ in range(looks))

    def _fairness(self) -> float:
        """How much longer it takes at the moment because others have more than their share."""
        if self.machine.load and self.now >= self._fair_until:
            self._fair_until = self.now + 0.1
            self._fair = math.exp(self._weather.gauss(0.0, self.machine.unrest))
        return self._fair
