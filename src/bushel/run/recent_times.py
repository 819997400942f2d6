"""Recent times of one mode (inline or threads), and how much blocks differ."""

import math
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from bushel.run.thread_time import Spent

# The blocks that are remembered: those of the last seconds, within bounds of their number.
_REMEMBERED_SECONDS = 0.25
_FEWEST, _MOST = 3, 15
# The same for times of the user, who may take many blocks at once and then none for long.
_USER_SECONDS = 5.0
_MOST_USER = 512
# User times needed of each stream before they are trusted, and seconds in all.
_ENOUGH_USER = 32
_ENOUGH_USER_SECONDS = 1.0
# In units of a block's time: a user who takes longer does something else, such as a compilation or
# a checkpoint.
_LONG_AWAY = 100
# The weight of earlier measurements, a block later.
_LATELY = 0.97
# Time slices of other programs are long: averages of short blocks cover several slices.
_TURNS_SECONDS = 0.02
# The most of the time that is attributed to the queue: some is always left.
_MOST_CROWD = 0.99


class _BlockTimes(NamedTuple):
    """Times per element, and the number of elements."""

    elements: int
    work: float
    cpu: float


def _variance(values: Collection[float]) -> float:
    # To import the module `statistics` would take a worker longer than importing all of this.
    if len(values) < 2:
        return 0.0
    middle = sum(values) / len(values)
    return sum((value - middle) ** 2 for value in values) / len(values)


class SeenLately:
    """Recent measurements of one mode (inline or threads)."""

    def __init__(self, streams: int) -> None:
        self._most_user, self._enough_user = _MOST_USER * streams, _ENOUGH_USER * streams
        self._blocks: deque[_BlockTimes] = deque()
        # Elements, and the user's seconds for them; and the sums of both.
        self._users: deque[tuple[int, float]] = deque()
        self._of_user = [0, 0.0]
        self.forget()

    def forget(self, user_too: bool = True) -> None:
        """Begins anew. The user may take many blocks at once, so one measurement is too short."""
        self._blocks.clear()
        if user_too:
            self._users.clear()
            self._of_user = [0, 0.0]
        # Recent seconds in the queue for a core, and all other seconds.
        self._of_crowd = (0.0, 0.0)
        # Since then: blocks, the seconds of their work, and all seconds.
        self.blocks = 0
        self.work_seconds = self.seconds = 0.0

    def add_work(self, count: int, spent: Spent) -> None:
        blocks = self._blocks
        blocks.append(_BlockTimes(count, spent.seconds / count, spent.cpu_seconds / count))
        queued, seconds = self._of_crowd
        lately = max(_LATELY, 1 - spent.seconds / _TURNS_SECONDS)
        self._of_crowd = (
            lately * queued + spent.queued_seconds,
            lately * seconds + spent.seconds,
        )
        self.blocks += 1
        self.work_seconds += spent.seconds
        seconds = sum(block.elements * block.work for block in blocks)
        while len(blocks) > _FEWEST and (
            len(blocks) > _MOST
            or seconds - blocks[0].elements * blocks[0].work > _REMEMBERED_SECONDS
        ):
            first = blocks.popleft()
            seconds -= first.elements * first.work

    def add_cycle(self, count: int, seconds: float, user_seconds: float | None) -> float:
        """Takes note of a delivery. Returns its seconds, without a long absence of the user."""
        self.seconds += seconds
        if user_seconds is None:
            return seconds
        if self._blocks:
            absent = user_seconds - _LONG_AWAY * count * self._blocks[-1].work
            if absent > 0.0:
                user_seconds -= absent
                seconds -= absent
        users, sums = self._users, self._of_user
        users.append((count, user_seconds))
        sums[0], sums[1] = sums[0] + count, sums[1] + user_seconds
        while len(users) > _FEWEST and (
            len(users) > self._most_user or sums[1] - users[0][1] > _USER_SECONDS
        ):
            count, user_seconds = users.popleft()
            sums[0], sums[1] = sums[0] - count, sums[1] - user_seconds
        return seconds

    @property
    def user(self) -> float:
        return max(0.0, self._of_user[1]) / self._of_user[0] if self._users else 0.0

    @property
    def usual_user(self) -> float:
        """The same without the longest: a single pause is no habit."""
        if len(self._users) <= _FEWEST:
            return self.user
        count, seconds = max(self._users, key=lambda user: user[1])
        return max(0.0, self._of_user[1] - seconds) / max(1, self._of_user[0] - count)

    @property
    def knows_user(self) -> bool:
        return bool(self._users)

    @property
    def knows_user_well(self) -> bool:
        return len(self._users) >= self._enough_user and self.seconds >= _ENOUGH_USER_SECONDS

    @property
    def work(self) -> float:
        return self._median_or_mean(0)

    @property
    def cpu(self) -> float:
        return self._median_or_mean(1)

    def _median_or_mean(self, which: int) -> float:
        # For a few long blocks the median: an import, for example, is no work. For many short ones
        # the mean, since some have fewer elements than others and take longer per element.
        if len(self._blocks) <= 2 * _FEWEST:
            ordered = sorted((block.work, block.cpu)[which] for block in self._blocks)
            return ordered[len(ordered) // 2] if ordered else 0.0
        return self.mean()[which]

    def mean(self) -> tuple[float, float]:
        """Wall time and CPU time per element.

        If threads take turns, some blocks pass at once and others wait for two: the median might be
        of either kind.
        """
        count = sum(block.elements for block in self._blocks) or 1
        work = sum(block.elements * block.work for block in self._blocks) / count
        return work, sum(block.elements * block.cpu for block in self._blocks) / count

    @property
    def unlike(self) -> float:
        """The relative variance of blocks: of the time per element, divided by the squared mean."""
        mean = self.mean()[0]
        return _variance([block.work / mean for block in self._blocks]) if mean else 0.0

    @property
    def remembered(self) -> int:
        """The number of blocks in the mean."""
        return len(self._blocks)

    @property
    def crowd(self) -> float:
        """The share of its time that the work stood in the queue for a core."""
        queued, seconds = self._of_crowd
        return min(queued / (queued + seconds), _MOST_CROWD) if queued else 0.0

    @property
    def queued_work(self) -> float:
        """Wall time of an element's work, including its time in that queue."""
        return self.work / (1 - self.crowd)

    @property
    def full(self) -> bool:
        """Whether all the blocks that are remembered were measured."""
        return self.blocks >= _MOST or self.work_seconds >= _REMEMBERED_SECONDS


# A window: the least seconds and deliveries of each thread that tell how soon elements come, as
# other programs have their time slices, and threads deliver in bursts.
_WINDOW_SECONDS = 0.1
_WINDOW_CYCLES = 2
_START_SECONDS = 0.05
# The most windows that are remembered.
_WINDOWS = 12
_STILL_KNOWN = 3
# The assumed difference of two such windows (of the logarithm), until it is known better: as
# measured beside four busy processes.
_UNLIKE = 0.2
_AS_IF_SEEN = 3
# The same for the cost of two blocks: caches are shared with other programs, and so are cores at
# times.
_COSTS_UNLIKE = 0.2
# So many blocks in a row that all cost this many times what any did before, or all a part of that,
# are other work. (Elements may be unlike for good: then there are both kinds among those before.)
# So many seconds, too: of short blocks three are like each other by chance, or the first ones.
_OTHER_BLOCKS = 3
_OTHER_SECONDS = 0.005
_OTHER = 2.0
# So many blocks show that some are heavy, if one in twenty is.
_MOST_COSTS = 48
# Where work waits for so many times what it costs, it makes no difference what that is.
_MOSTLY_WAITING = 10.0


class Pace:
    """The time between elements by the clock, the cost of elements, and the uncertainty of both."""

    def __init__(self) -> None:
        # Seconds, elements and deliveries of each.
        self._windows: deque[tuple[float, float, int]] = deque(maxlen=_WINDOWS)
        # The same of the blocks that were seen in each.
        self._works: deque[tuple[float, float]] = deque(maxlen=_WINDOWS)
        # In all.
        self.finished = 0
        # Seconds on a core of an element, in the last blocks, and in those before: as logarithms.
        self._costs: deque[float] = deque(maxlen=_MOST_COSTS)
        self._latest_costs: deque[float] = deque(maxlen=_OTHER_BLOCKS)
        self._latest_seconds: deque[float] = deque(maxlen=_OTHER_BLOCKS)
        self._began = False
        self.forget()

    def forget(self) -> None:
        self._costs.clear()
        self._latest_costs.clear()
        # The three figures of them, if they were worked out since the last block.
        self._summed_up: tuple[float, float, float] | None = None
        self._windows.clear()
        self._works.clear()
        self.break_off()
        # Recent CPU seconds, elements and blocks; and CPU seconds of handing blocks over, which are
        # not known for every block.
        self._cost = (0.0, 0.0, 0.0)
        self._handing = (0.0, 0.0)

    def age(self) -> None:
        """Takes note that nothing new comes for a while: earlier values lose weight, all alike."""
        count = len(self._windows)
        if count > _STILL_KNOWN:
            seconds = sum(window[0] for window in self._windows) / count
            elements = sum(window[1] for window in self._windows) / count
            cycles = sum(window[2] for window in self._windows) // count
            self._windows.clear()
            self._windows.extend([(seconds, elements, cycles)] * _STILL_KNOWN)

    def break_off(self) -> None:
        """Drops an unfinished window, as something else comes in between.

        The first deliveries of threads afterwards do not count, as threads have to start.
        """
        self._starting = True
        self._begin_window()

    def _begin_window(self) -> None:
        self._cycles, self._elements, self._seconds = 0, 0, 0.0
        self._worked = (0.0, 0.0)

    def add(self, count: int, seconds: float, threads: int) -> None:
        self._cycles += 1
        self._elements += count
        self._seconds += seconds
        if self._starting and threads:
            if self._seconds >= _START_SECONDS and self._cycles >= threads:
                self._starting = False
                self._begin_window()
        elif self._seconds >= _WINDOW_SECONDS and self._cycles >= _WINDOW_CYCLES * threads:
            self._windows.append((self._seconds, self._elements, self._cycles))
            self._works.append(self._worked)
            self.finished += 1
            self._begin_window()

    def add_work(self, count: int, seconds: float) -> None:
        """Takes note of the times of a block in the window."""
        self._worked = self._worked[0] + seconds, self._worked[1] + count

    def add_cost(
        self, count: int, spent: Spent, handing_seconds: float | None, may_be_other: bool = True
    ) -> bool:
        """Takes note of a block. Returns whether this is other work: the old is forgotten.

        If it `may_be_other`: work that changes all the time is the same.
        """
        self._summed_up = None
        latest = self._latest_costs
        if len(latest) == _OTHER_BLOCKS and not self._is_other():
            self._costs.append(latest[0])
        cost = max(spent.cpu_seconds, spent.seconds / _MOSTLY_WAITING)
        if self._began:
            latest.append(math.log(max(cost / count, 1e-9)))
            self._latest_seconds.append(cost)
        # (The first block of all has an import in it, say, which is no sign of more such blocks.)
        self._began = True
        other = may_be_other and self._is_other()
        if other:
            of_it = list(latest)
            self.forget()
            latest.extend(of_it)
        if handing_seconds is not None:
            handing, elements = self._handing
            self._handing = _LATELY * handing + handing_seconds, _LATELY * elements + count
        cpu, elements, blocks = self._cost
        self._cost = (
            _LATELY * cpu + spent.cpu_seconds,
            _LATELY * elements + count,
            _LATELY * blocks + 1,
        )
        return other

    def _is_other(self) -> bool:
        before, now = self._costs, self._latest_costs
        if not before or len(now) < _OTHER_BLOCKS or sum(self._latest_seconds) < _OTHER_SECONDS:
            return False
        apart = math.log(_OTHER)
        return min(now) > max(before) + apart or max(now) < min(before) - apart

    @property
    def unlike(self) -> float:
        """How unlike blocks are: the variance of what an element costs, to the mean's square.

        More blocks are remembered for this than for their times.
        """
        return self._sum_up()[0]

    @property
    def mean_cost(self) -> float:
        """What an element of those blocks costs, in seconds on a core."""
        return self._sum_up()[1]

    @property
    def usual_log_cost(self) -> float:
        """The same of the block in the middle, as a logarithm."""
        return self._sum_up()[2]

    def _sum_up(self) -> tuple[float, float, float]:
        if self._summed_up is None:
            ordered = sorted((*self._costs, *self._latest_costs))
            if not ordered:
                return 0.0, 0.0, 0.0
            costs = [math.exp(cost) for cost in ordered]
            mean = sum(costs) / len(costs)
            self._summed_up = _variance(costs) / mean**2, mean, ordered[len(ordered) // 2]
        return self._summed_up

    @property
    def cpu(self) -> float:
        """CPU seconds per element."""
        handing, elements = self._handing
        each = handing / elements if elements else 0.0
        return each + self._cost[0] / self._cost[1] if self._cost[1] else 0.0

    @property
    def blocks(self) -> float:
        """How many blocks that is of: what was long ago counts for less."""
        return max(1.0, self._cost[2])

    @property
    def cpu_variance(self) -> float:
        """How far from the truth its logarithm may be, squared."""
        return max(_COSTS_UNLIKE**2, _variance(self._costs)) / self.blocks

    @property
    def work(self) -> float:
        """Seconds per element in the blocks that were measured in the windows."""
        elements = sum(work[1] for work in self._works)
        return sum(work[0] for work in self._works) / elements if elements else 0.0

    @property
    def windows(self) -> int:
        return len(self._windows)

    @property
    def log_cycle(self) -> float:
        """The logarithm of the seconds from one element to the next."""
        seconds = sum(window[0] for window in self._windows)
        return math.log(max(seconds, 1e-9) / sum(window[1] for window in self._windows))

    @property
    def usual_log_cycle(self) -> float:
        """The same of the window in the middle: a process may have been stopped in one of them."""
        cycles = sorted(seconds / elements for seconds, elements, _ in self._windows)
        return math.log(max(cycles[(len(cycles) - 1) // 2], 1e-9))

    def variance(self, unlike: float) -> float:
        """How far from the truth that may be, squared, where blocks are so `unlike`."""
        count, middle = len(self._windows), self.log_cycle
        apart = sum((math.log(max(s, 1e-9) / n) - middle) ** 2 for s, n, _ in self._windows)
        # The longer they are the more alike.
        seconds = sum(window[0] for window in self._windows) / count
        presumed = _UNLIKE**2 * min(1.0, _WINDOW_SECONDS / max(seconds, 1e-9))
        of_clock = (_AS_IF_SEEN * presumed + apart) / (_AS_IF_SEEN + count) / count
        return of_clock + unlike / sum(window[2] for window in self._windows)
