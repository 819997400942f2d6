"""Estimates the gain from threads, and how sure it is, from times of the work, GIL and clock."""

import math
from abc import ABC, abstractmethod

from bushel.run.ask_again import in_a_crowd
from bushel.run.lock_share import LockLooks
from bushel.run.recent_times import Pace, SeenLately

# Threads take a core from the training loop and fight for the interpreter's lock: they must
# earn it.
WORTH_IT = 1.07
# More time on the cores than that must be earned, too.
_LET_PASS = 1.1
# How much more that may be without anything special, as a logarithm.
_COMMONLY_BURNT = 0.3
# A gain that leaves no doubt.
CLEAR = 1.25
# How far the logarithm of what threads gain may be from the truth, by what blocks take: so far at
# the first look and at the second one, and further by so much of the share of the time that they
# stood in the queue for a core, on one thread or on several, which wait for each other there.
_UNSURE = (0.08, 0.04)
_UNSURE_IN_A_CROWD = (0.25, 1.0)
# One thread is enough where several are not faster than that.
_AS_GOOD = 1.05
# A gain is clear at this many times its uncertainty.
CLEARLY = 1.5
# So many windows of the clock tell something of inline or of threads.
TURN_WINDOWS = 3
# Others on the cores have no use for time that is burnt: it counts so much more, by the square of
# the share of the time in the queue for a core. (With no others, cores that share a cache or more
# are slower when all of them work, and our own threads stand in the queue now and then.)
_BURDEN_IN_A_CROWD = 60.0
# How far the gain may be from what the lock allows; and further by so much of what is missed of it.
_UNSURE_BY_LOCK = 0.2
_UNSURE_BY_MISSED = 0.5
# Waiting of less than this for each core, or of 0.3 in all, is no reason for another thread.
_SEEMS_TO_WAIT = 0.15
# So many times as slow as in turns may threads be.
_SLOWER_THAN_IN_TURNS = 4.0


class ThreadGain(ABC):
    """Estimates what threads bring; `ThreadChoice` decides by it."""

    def __init__(self, most_threads: int, cores: float, streams: int) -> None:
        self._most_threads = most_threads
        self._cores = cores
        self._inline, self._ahead = SeenLately(streams), SeenLately(streams)
        # How soon elements come by the clock.
        self._inline_pace, self._ahead_pace = Pace(), Pace()
        # The interpreter's lock while work was done inline.
        self._lock = LockLooks()
        self.threads = max(1, min(most_threads, math.ceil(cores)))

    @property
    @abstractmethod
    def _looked_twice(self) -> bool:
        """Whether what is known of threads is more than a first impression."""

    def _could_gain(self) -> bool:
        """Whether the best that could come of threads is worth a trial."""
        return self._inline.user + self._inline.queued_work > WORTH_IT * self._best()

    def _best(self) -> float:
        """They can at best hide the work, or divide it."""
        inline = self._inline
        return max(inline.user, inline.queued_work / self._wanted(), inline.cpu / self._cores)

    def _gain_by_lock(self, threads: int, doubt: float) -> float:
        """How many times as long it would take without threads, by what the lock allows.

        `doubt` is how many times as much as usual the looks at it may be mistaken, in favour of
        threads.
        """
        return self._gains_by_lock(threads, doubt)[0]

    def _gains_by_lock(self, threads: int, *doubts: float) -> list[float]:
        """The same for several doubts: what was seen of the work is summed up once for them all."""
        inline = self._inline
        user, work, of_cores = inline.user, inline.queued_work, inline.cpu / self._cores
        shares = [max(self._lock.held(doubt), 1 / threads) for doubt in doubts]
        whole = max(user + work, 1e-9)
        return [whole / max(user, work * share, of_cores, 1e-9) for share in shares]

    def _wanted_by_lock(self) -> int:
        """As many as are wanted, or one where several could only take turns with the lock."""
        threads = self._wanted()
        if not self._lock.is_known:
            return threads
        of_one, of_all = (self._gain_by_lock(number, 0.0) for number in (1, threads))
        return 1 if of_one >= WORTH_IT and of_all < _AS_GOOD * of_one else threads

    @property
    def _waits(self) -> bool:
        return self._inline.cpu < 0.5 * self._inline.work

    def _wanted(self) -> int:
        """As many as keep the cores busy: more when records wait than when they compute."""
        inline = self._inline
        busy = min(1.0, max(inline.cpu / inline.work, 1e-3)) if inline.work else 1.0
        # (What computes all the time seems to wait now and then.)
        seems = min(_SEEMS_TO_WAIT * self._cores, 0.3)
        return max(1, min(self._most_threads, math.ceil(self._cores / busy - seems)))

    def _gain(self) -> tuple[float, float]:
        """How many times as long it would take without threads, and how unsure that is.

        Both as logarithms. What blocks take tells soon. But who waits for the interpreter's lock
        wakes up every now and then to look for it, and on a busy machine stands in the queue for
        a core each time, which does not look like waiting; and who has the lock may stand there
        while others wait for both. So the more of a crowd there is, the more the clock counts.
        """
        unsure = math.hypot(self._unsure_by_work, self._missed_by_clock())
        gain, weight = math.log(self._gain_by_work()), unsure**-2
        inline, ahead = self._inline_pace, self._ahead_pace
        if inline.windows and ahead.windows:
            unlike = self._unlike_for_long
            by_clock = 1 / (inline.variance(unlike) + ahead.variance(unlike))
            gain = weight * gain + by_clock * (inline.log_cycle - ahead.log_cycle)
            weight += by_clock
            gain /= weight
        if self._lock.is_known and self._inline.blocks:
            allowed = math.log(self._gain_by_lock(self.threads, 0.0))
            at_worst, at_best = (self._gain_by_lock(self.threads, doubt) for doubt in (-1.0, 1.0))
            few_looks = math.log(at_best / at_worst) / 2
            # Not all that it allows need come of it: threads have other things to wait for.
            missed = _UNSURE_BY_MISSED * max(0.0, allowed - gain - CLEARLY * weight**-0.5)
            by_lock = 1 / (_UNSURE_BY_LOCK**2 + missed**2 + few_looks**2)
            gain = weight * gain + by_lock * allowed
            weight += by_lock
            # Turns that others lose to us are no gain that threads bring.
            gain = min(gain / weight, math.log(at_best))
        return gain - self._burden(), weight**-0.5

    @property
    def _crowd(self) -> float:
        return max(self._inline.crowd, self._ahead.crowd)

    @property
    def _unlike_for_long(self) -> float:
        return max(self._inline_pace.unlike, self._ahead_pace.unlike)

    @property
    def _unsure_by_work(self) -> float:
        looked = self._looked_twice
        ahead, user = self._ahead, self._user_of_threads()
        work = ahead.mean()[0] / (1 - ahead.crowd) / self.threads
        # Of work that is hidden, it makes no difference what it takes.
        matters = min(1.0, work / user) if user else 1.0
        unsure = _UNSURE[looked] + _UNSURE_IN_A_CROWD[self.threads > 1] * self._crowd * matters
        # Blocks of which some are heavy may look alike to the way that has seen none of those.
        unlike = max(self._inline.unlike, ahead.unlike, self._unlike_for_long)
        few = sum(1 / max(1, seen.remembered) for seen in (self._inline, ahead))
        return math.hypot(unsure, math.sqrt(unlike * few))

    def _gain_by_work(self) -> float:
        """How many times as long it would take without threads, by what blocks take."""
        return self._cycle_inline() / self._promised_cycle(self._ahead.mean()[0])

    def _cycle_inline(self) -> float:
        """The time from one element to the next without threads, by what blocks take."""
        inline, ahead = self._inline, self._ahead
        work, cpu = ahead.mean()
        # Inline it takes its time on a core and its waiting, but not longer than on a thread. What
        # was seen of it inline may be old, or was more because of an import, say.
        work = min(work, cpu + max(0.0, inline.work - inline.cpu))
        if inline.blocks:
            work = min(work, inline.work * math.exp(self._heavier_by_chance()))
        work /= 1 - (inline.crowd if inline.blocks else ahead.crowd)
        user = self._user_of_threads()
        if inline.knows_user and not ahead.knows_user_well:
            user = inline.user
        return max(user + work, 1e-9)

    def _promised_cycle(self, work: float) -> float:
        """The time from one element to the next, if threads never waited for anything else.

        `work` is what an element takes one of them.
        """
        return max(self._user_of_threads(), work / (1 - self._ahead.crowd) / self.threads, 1e-9)

    def _missed_by_clock(self) -> float:
        """How much later elements come by the clock than threads promise: as a logarithm.

        Blocks that take little on threads are no gain where there are too few to do at a time, or
        where it takes as long to hand them over: in a worker, whose tasks come one by one.
        """
        pace = self._ahead_pace
        if not pace.work:
            return 0.0
        of_clock = math.sqrt(pace.variance(self._unlike_for_long))
        doubt = CLEARLY * math.hypot(of_clock, self._unsure_by_work)
        return max(0.0, pace.usual_log_cycle - math.log(self._promised_cycle(pace.work)) - doubt)

    def _disappoints(self) -> bool:
        """Whether several threads are hardly faster than one of them would be inline.

        By the clock; what that says of inline is not known.
        """
        pace = self._ahead_pace
        if self.threads == 1 or self._inline_pace.windows or pace.windows < TURN_WINDOWS:
            return False
        # (Where others have the cores, they are why elements come late.)
        if in_a_crowd(self._crowd) or not self._missed_by_clock():
            return False
        alone = self._user_of_threads() + pace.work / (1 - self._ahead.crowd)
        return math.exp(pace.usual_log_cycle) * CLEAR > alone

    def _burden(self) -> float:
        """How much more time on the cores it takes, beyond what is let pass: as a logarithm.

        Functions that fight for a lock of their own (some tokenizers do), or for memory, are
        hardly faster on threads and keep the cores busy for it.
        """
        inline, ahead = self._inline_pace, self._ahead_pace
        if not inline.cpu or not ahead.cpu:
            return 0.0
        doubt = math.sqrt(inline.cpu_variance + ahead.cpu_variance)
        more = math.log(ahead.cpu / inline.cpu) - self._heavier_by_chance()
        more -= math.log(_LET_PASS) + doubt
        return max(0.0, more) * (1 + _BURDEN_IN_A_CROWD * self._crowd**2)

    def _heavier_by_chance(self) -> float:
        """How much of the time on the cores that threads took more is due to what they were given.

        As a logarithm. Of elements that are unlike, the usual one costs the same, and a few tell
        little of the others. What threads burn, they burn for most of them.
        """
        inline, ahead = self._inline_pace, self._ahead_pace
        if not inline.mean_cost or not ahead.mean_cost:
            return 0.0
        by_mean = math.log(ahead.mean_cost / inline.mean_cost)
        by_chance = max(0.0, by_mean - max(0.0, ahead.usual_log_cost - inline.usual_log_cost))
        few = self._unlike_for_long * (1 / inline.blocks + 1 / ahead.blocks)
        return by_chance * few / (few + _COMMONLY_BURNT**2)

    def _user_of_threads(self) -> float:
        """The user's time while threads work: longer, where both want the lock."""
        inline, ahead = self._inline, self._ahead
        if ahead.knows_user_well or not inline.knows_user:
            return ahead.user
        # In short, little is seen of who comes for many blocks and is then away for long.
        return max(ahead.usual_user, inline.user)

    def _one_is_enough(self, gain: float) -> bool:
        """Whether several, with that `gain`, only take turns; one would hide the work as well."""
        user = max(self._inline.user, self._user_of_threads())
        work = self._inline.queued_work
        of_one = (user + work) / max(user, work, 1e-9)
        return of_one >= WORTH_IT and math.log(of_one) > gain - math.log(_AS_GOOD)

    def _gain_at_best(self) -> float:
        """What threads could bring, as far as the lock allows it, if that is known."""
        if self._lock.is_known:
            return self._gain_by_lock(self._wanted(), 0.0)
        return (self._inline.user + self._inline.queued_work) / max(self._best(), 1e-9)

    def _most_lost(self) -> float:
        """How much slower threads can be that work in turns: as a logarithm.

        What seems to be worse tells nothing of them: the process was stopped in a trial, say.
        """
        inline, ahead = self._inline_pace.cpu, self._ahead_pace.cpu
        burnt = max(1.0, ahead / inline) if inline else 1.0
        return math.log(_SLOWER_THAN_IN_TURNS * self.threads * burnt) + self._burden()
