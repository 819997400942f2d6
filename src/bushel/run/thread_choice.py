"""Whether threads pay, and how many: learned while running, never visible in the output.

Everything is learned from times that the caller hands in, so a test can hand in its own. Work is
told without the time that it stood in the queue for a core (`run/spent.py`): what other programs
do on the machine is neither a reason for threads nor one against them.

Ways to run are compared by the time from one element to the next:

    inline         user + work               one after the other
    on threads     max(user, work / threads)

where `work` on threads is as measured there: more than inline where they wait for each other,
which is how functions show that they keep the interpreter's lock. That cannot be seen from
outside, so threads are tried. A trial is worth it only where the best that could come of it is,
and ends as soon as it tells: after one block of each thread, where blocks are long.

                 worth a trial            it pays
    measuring ─────────────────> trying ──────────> settled, on threads
        ^                           │ it does not        │
        │                           v                    │ it no longer pays,
        └───────────────── settled, inline               │ or the work has changed
        ^   after a while, or the work has changed       │
        └────────────────────────────────────────────────┘
"""

import enum
import math
from collections import deque
from typing import NamedTuple

from bushel.run.spent import Spent

# Threads take a core from the training loop and fight for the interpreter's lock: they must
# earn it. Those that are there already stay as long as they earn anything.
_WORTH_IT = 1.1
_STILL_WORTH_IT = 1.03
# More time on the cores than that must be earned, too.
_LET_PASS = 1.1
# To try threads costs a few of the interpreter's switches, 5 ms each. Before work that keeps
# a core busy is disturbed like that, it should have run a while; work that waits need not.
_PATIENCE_SECONDS = 0.25
_PATIENCE_WITH_WAITING_SECONDS = 0.02
# Threads deliver in bursts, and other programs have their turns. So many deliveries of each, in so
# long a time, tell how soon elements come.
_TELLING_CYCLES = 4
_TELLING_SECONDS = 0.3
# How much must be seen of each thread; what is not clear then gets a second look.
_TRIAL_SECONDS = 0.05
_CLEAR = 1.25
# Work that takes twice as long, or half as long, is other work.
_CHANGED = 2.0
# That is looked at again only after a while, and a longer while after each trial in vain: light
# work is never twice the same.
_CALM_SECONDS = 0.25
_LAST_CALM_SECONDS = 30.0
# After a trial that failed. It cost about a block of each thread: so many blocks later another
# one costs little.
_FIRST_RETRY_SECONDS = 2.0
_LAST_RETRY_SECONDS = 300.0
_RETRY_BLOCKS = 40
# Once there is nothing to decide, a look now and then is enough.
_LOOK_EVERY_SECONDS = 0.02
# What is remembered: as many blocks as take so long, but some, and not too many.
_REMEMBERED_SECONDS = 0.25
_FEWEST, _MOST = 3, 15
# The same of the user, who may come for many blocks at once and then be away for long.
_USER_SECONDS = 5.0
_MOST_USER = 512
# What must be seen of the user before it is trusted, of each stream and in all.
_ENOUGH_USER = 32
_ENOUGH_USER_SECONDS = 1.0
# One who is away for longer than so many blocks take has something else to do: a compilation,
# a checkpoint.
_LONG_AWAY = 100


class _Block(NamedTuple):
    """Times of one element, and how many elements there were."""

    elements: int
    work: float
    cpu: float


class _Seen:
    """What was seen lately of one way to run."""

    def __init__(self, streams: int) -> None:
        self._most_user, self._enough_user = _MOST_USER * streams, _ENOUGH_USER * streams
        self._blocks: deque[_Block] = deque()
        # Elements, and the seconds of the user for them; and their sums.
        self._users: deque[tuple[int, float]] = deque()
        self._of_user = [0, 0.0]
        self.forget()

    def forget(self) -> None:
        self._blocks.clear()
        self._users.clear()
        self._of_user = [0, 0.0]
        # Since then: blocks, the time that they took, and the time in all.
        self.blocks = 0
        self.work_seconds = self.seconds = 0.0
        # Deliveries, and their elements.
        self.cycles = self.elements = 0

    def add_work(self, count: int, spent: Spent) -> None:
        blocks = self._blocks
        blocks.append(_Block(count, spent.seconds / count, spent.cpu_seconds / count))
        self.blocks += 1
        self.work_seconds += spent.seconds
        seconds = sum(block.elements * block.work for block in blocks)
        while len(blocks) > _FEWEST and (
            len(blocks) > _MOST
            or seconds - blocks[0].elements * blocks[0].work > _REMEMBERED_SECONDS
        ):
            first = blocks.popleft()
            seconds -= first.elements * first.work

    def add_cycle(self, count: int, seconds: float, user_seconds: float | None) -> None:
        self.seconds += seconds
        self.cycles += 1
        self.elements += count
        if user_seconds is None:
            return
        if self._blocks:
            user_seconds = min(user_seconds, _LONG_AWAY * count * self._blocks[-1].work)
        users, sums = self._users, self._of_user
        users.append((count, user_seconds))
        sums[0], sums[1] = sums[0] + count, sums[1] + user_seconds
        while len(users) > _FEWEST and (
            len(users) > self._most_user or sums[1] - users[0][1] > _USER_SECONDS
        ):
            count, user_seconds = users.popleft()
            sums[0], sums[1] = sums[0] - count, sums[1] - user_seconds

    @property
    def user(self) -> float:
        return max(0.0, self._of_user[1]) / self._of_user[0] if self._users else 0.0

    @property
    def usual_user(self) -> float:
        """The same without the longest: one pause is no habit."""
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
        # Of a few long ones the median: an import, say, was no work. Of many short ones the mean,
        # since some are shorter than others and cost more for each element.
        if len(self._blocks) <= 2 * _FEWEST:
            ordered = sorted((block.work, block.cpu)[which] for block in self._blocks)
            return ordered[len(ordered) // 2] if ordered else 0.0
        return self.mean()[which]

    def mean(self) -> tuple[float, float]:
        """Work and time on a core, of an element.

        Where threads take turns, some blocks go through at once and others wait for two: the
        median might be of either kind.
        """
        count = sum(block.elements for block in self._blocks) or 1
        work = sum(block.elements * block.work for block in self._blocks) / count
        return work, sum(block.elements * block.cpu for block in self._blocks) / count

    @property
    def cycle(self) -> float:
        """Seconds by the clock from one element to the next."""
        return self.seconds / self.elements if self.elements else 0.0

    @property
    def full(self) -> bool:
        """Whether as much was seen as is remembered."""
        return self.blocks >= _MOST or self.work_seconds >= _REMEMBERED_SECONDS


class _Phase(enum.Enum):
    MEASURING = enum.auto()
    TRYING = enum.auto()
    SETTLED = enum.auto()


class ThreadChoice:
    """Decides between evaluating inline and on threads, and on how many."""

    def __init__(self, most_threads: int, cores: float, streams: int = 1) -> None:
        """`streams` are how many share this."""
        self._most_threads = most_threads
        self._cores = cores
        self._phase = _Phase.MEASURING
        self._inline, self._ahead = _Seen(streams), _Seen(streams)
        # Whether there ever was a trial, and whether this one was looked at before.
        self._tried = self._looked = self._confirmed = False
        # How the work was when it was settled. And the time since then, and since a look.
        self._then: tuple[float, float, float] | None = None
        self._since = self._since_look = 0.0
        self._retry, self._calm = _FIRST_RETRY_SECONDS, _CALM_SECONDS
        self.threaded = False
        self.threads = max(1, min(most_threads, math.ceil(cores)))

    @property
    def may_use_threads(self) -> bool:
        return self._most_threads > 0

    @property
    def watching(self) -> bool:
        """Whether `learn_work` is of use now."""
        nothing_new = self._phase is _Phase.SETTLED or (
            self._phase is _Phase.MEASURING and self._inline.full
        )
        if nothing_new:
            return self._since_look >= _LOOK_EVERY_SECONDS
        return self._most_threads > 0

    def learn_work(self, count: int, spent: Spent, threads: int = 0) -> None:
        """Takes note of a block, evaluated inline (0) or by one of so many threads."""
        if not count or not self._most_threads:
            return
        self._since_look = 0.0
        if not threads:
            self._inline.add_work(count, spent)
            if self._phase is _Phase.MEASURING and self._waits and not self._tried:
                self._consider_trial()  # Before all who share this have waited.
        elif self.threaded and threads == self.threads:
            self._ahead.add_work(count, spent)
            if self._phase is _Phase.TRYING:
                self._judge()  # Before all who share this had their turn.

    def learn_cycle(self, count: int, seconds: float, user_seconds: float | None) -> None:
        """Takes note of a delivery: the time since the last one, and the user's part of it.

        None where the user had no part in it.

        May change `threaded` and `threads`.
        """
        if not count or not self._most_threads:
            return
        self._since += seconds
        self._since_look += seconds
        (self._ahead if self.threaded else self._inline).add_cycle(count, seconds, user_seconds)
        if self._phase is _Phase.TRYING:
            self._judge()
        elif self._since_look == seconds or self._since >= self._retry:
            # Something was seen since the last delivery.
            if self._phase is _Phase.MEASURING:
                self._consider_trial()
            else:
                self._reconsider()

    def begin_threaded(self) -> None:
        """Uses threads before anything was measured, since somebody asked for it."""
        if self.may_use_threads and not self.threaded:
            self._try(self.threads)

    def _consider_trial(self) -> None:
        inline = self._inline
        if not inline.blocks:
            return
        patience = _PATIENCE_WITH_WAITING_SECONDS if self._waits else _PATIENCE_SECONDS
        if max(inline.seconds, inline.work_seconds) < patience:
            return
        threads = self._wanted()
        # Threads can at best hide the work, or divide it.
        best = max(inline.user, inline.work / threads, inline.cpu / self._cores)
        if inline.user + inline.work > _WORTH_IT * best:
            self._try(threads)

    @property
    def _waits(self) -> bool:
        return self._inline.cpu < 0.5 * self._inline.work

    def _wanted(self) -> int:
        """As many as keep the cores busy: more when records wait than when they compute."""
        inline = self._inline
        busy = min(1.0, max(inline.cpu / inline.work, 1e-3)) if inline.work else 1.0
        return max(1, min(self._most_threads, math.ceil(self._cores / busy - 0.1)))

    def _try(self, threads: int) -> None:
        self._phase, self._tried, self._looked = _Phase.TRYING, True, False
        self._confirmed = False
        self.threaded, self.threads = True, threads
        self._ahead.forget()

    def _judge(self) -> None:
        ahead = self._ahead
        looks = 2 if self._looked else 1
        if ahead.blocks < looks * self.threads:
            return
        seen = max(ahead.work_seconds / self.threads, ahead.seconds / 2)
        if seen < looks * _TRIAL_SECONDS:
            return
        gain = self._gain()
        if 1 / _CLEAR < gain < _CLEAR and not self._looked:
            self._looked = True
        elif self.threads > 1 and self._one_is_enough():
            self._try(1)
        else:
            self._settle(threaded=gain >= _WORTH_IT and self._shows() is not False)

    def _gain(self) -> float:
        """How many times as long it would take from element to element without threads."""
        inline, ahead = self._inline, self._ahead
        work, cpu = ahead.mean()
        user = self._user_of_threads()
        cycle = max(user, work / self.threads, 1e-9)
        # Inline it takes its time on a core and its waiting, but not longer than on a thread. What
        # was seen of it inline may be old, or was more because of an import, say.
        work = min(work, cpu + max(0.0, inline.work - inline.cpu))
        if inline.blocks:
            work = min(work, inline.work)
        if inline.knows_user and not ahead.knows_user_well:
            user = inline.user
        return (user + work) / cycle / self._burden()

    def _shows(self) -> bool | None:
        """Whether elements come sooner by the clock, too; None while that cannot be told.

        On a busy machine, who waits for the interpreter's lock wakes up every now and then to
        look for it, and stands in the queue for a core each time: it does not look like waiting.
        """
        inline, ahead = self._inline, self._ahead
        few = ahead.cycles < _TELLING_CYCLES * self.threads or ahead.seconds < _TELLING_SECONDS
        if few or not inline.elements:
            return None
        return inline.cycle > _STILL_WORTH_IT * ahead.cycle

    def _burden(self) -> float:
        """How many times as much time on the cores it takes, beyond what is let pass.

        Functions that fight for a lock of their own (some tokenizers do), or for memory, are
        hardly faster on threads and keep the cores busy for it.
        """
        then, now = self._inline.cpu, self._ahead.mean()[1]
        return max(1.0, now / (_LET_PASS * then)) if then else 1.0

    def _user_of_threads(self) -> float:
        """The user's time while threads work: longer, where both want the lock."""
        inline, ahead = self._inline, self._ahead
        if ahead.knows_user_well or not inline.knows_user:
            return ahead.user
        # In short, little is seen of who comes for many blocks and is then away for long.
        return max(ahead.usual_user, inline.user)

    def _one_is_enough(self) -> bool:
        """Whether several only take turns, and one hides the work behind the user's as well."""
        inline, ahead = self._inline, self._ahead
        user = max(inline.user, self._user_of_threads())
        one = max(user, inline.work)
        several = max(self._user_of_threads(), ahead.mean()[0] / self.threads)
        return one < 1.05 * several and user + inline.work >= _WORTH_IT * one

    def _settle(self, threaded: bool) -> None:
        self._phase, self.threaded = _Phase.SETTLED, threaded
        self._since, self._then = 0.0, None
        if not threaded:
            inline = self._inline
            wait = _RETRY_BLOCKS * inline.work_seconds / max(1, inline.blocks)
            self._retry = max(min(2 * self._retry, _LAST_RETRY_SECONDS), wait)
            self._calm = min(2 * self._calm, _LAST_CALM_SECONDS)
            inline.forget()
        else:
            self._calm = _CALM_SECONDS

    def _now(self) -> tuple[float, float, float]:
        """What tells whether it is still the same: work, its time on a core, and what to gain."""
        seen = self._ahead if self.threaded else self._inline
        work, cpu = seen.mean()
        return work, cpu, (seen.user + work) / max(seen.user, work / 2, 1e-9)

    def _reconsider(self) -> None:
        seen = self._ahead if self.threaded else self._inline
        if not seen.full:
            return
        if self._then is None:
            self._then = self._now()
        changed = self._since >= self._calm and self._has_changed(self._then)
        if changed or (not self.threaded and self._since >= self._retry):
            self._measure()
        elif self.threaded and self._confirms() is False:
            self._settle(threaded=False)
        elif self.threaded and self._gain() < _STILL_WORTH_IT:
            if self._confirmed:
                self._measure()
            else:
                self._settle(threaded=False)  # The trial was mistaken.

    def _confirms(self) -> bool | None:
        """Looks once, after a trial, whether elements come sooner as they should."""
        if self._confirmed:
            return True
        shows = self._shows()
        self._confirmed = shows is True
        return shows

    def _has_changed(self, then: tuple[float, float, float]) -> bool:
        work, cpu, gain = self._now()
        little = 0.05 * then[0]
        more_to_gain = not self.threaded and gain > _CLEAR * then[2]
        return more_to_gain or any(
            max(before, after) > _CHANGED * max(min(before, after), little)
            for before, after in ((then[0], work), (then[1], cpu))
        )

    def _measure(self) -> None:
        self._phase, self.threaded = _Phase.MEASURING, False
        self._inline.forget()
