"""Decides whether threads pay, and how many: learned while running, never visible in the output.

Everything is learned from times that the caller hands in, so a test can hand in its own. Work is
told without the time that it stood in the queue for a core (`run/thread_time.py`): what other
programs do on the machine makes no record wait that computes. Where work can be hidden behind the
user's, that time is to be hidden, too.

Ways to run are compared by the time from one element to the next:

    inline         user + work               one after the other
    on threads     max(user, work / threads)

where `work` on threads is as measured there: more than inline where they wait for each other.
Before that somebody looks how much of its time the work holds the interpreter's lock: more than
that allows cannot come of threads. Then they are tried. A trial ends as soon as it tells: after
one block of each thread, where blocks are long. Where others have the cores it tells little, so
the clock is asked as well, and inline and threads take turns until it is clear.

               could pay          the lock allows it          it pays
    measuring ──────────> looking ─────────────────> trying ──────────> settled, on threads
        ^                    │ it does not             │ it does not        │
        │                    v                         v                    │ it no longer pays,
        └─────────────── settled, inline <─────────────┘                    │ or other work
        ^   after a while, or other work, or a crowd that came or went      │
        └───────────────────────────────────────────────────────────────────┘
"""

import enum
import math

from bushel.run.ask_again import SOON_AGAIN_SECONDS, AskAgain, in_a_crowd, patience_with
from bushel.run.changed_work import CHANGED, Sight
from bushel.run.lock_looks import LockLooks
from bushel.run.recent_times import Pace, SeenLately
from bushel.run.thread_time import Spent

# Threads take a core from the training loop and fight for the interpreter's lock: they must
# earn it. Those that are there already stay as long as they earn anything.
_WORTH_IT = 1.07
_STILL_WORTH_IT = 1.03
# What looks at the lock must leave possible, at best, for more of them to be taken.
_WORTH_MORE_LOOKS = 1.1
# More time on the cores than that must be earned, too.
_LET_PASS = 1.1
# How much must be seen of each thread; what is not clear then gets a second look.
_TRIAL_SECONDS = 0.05
_CLEAR = 1.25
# How far the logarithm of what threads gain may be from the truth, by what blocks take: so far at
# the first look and at the second one, and further by so much of the share of the time that they
# stood in the queue for a core, on one thread or on several, which wait for each other there.
_UNSURE = (0.08, 0.04)
_UNSURE_IN_A_CROWD = (0.25, 1.0)
# One thread is enough where several are not faster than that.
_AS_GOOD = 1.05
# A gain is clear at this many times its uncertainty.
_CLEARLY = 1.5
# Uncertainty below which there is nothing to wait for.
_SURE = 0.07
# Until then inline and threads take turns: each has `_TURN_WINDOWS` windows of the clock, and
# there are `_MOST_TURNS` turns at the most.
_TURN_WINDOWS = 3
_MOST_TURNS = 3
# Others on the cores have no use for time that is burnt: it counts so much more, by the square of
# the share of the time in the queue for a core. (With no others, cores that share a cache or more
# are slower when all of them work, and our own threads stand in the queue now and then.)
_BURDEN_IN_A_CROWD = 60.0
# How far the gain may be from what the lock allows; and further by so much of what is missed of it.
_UNSURE_BY_LOCK = 0.2
_UNSURE_BY_MISSED = 0.5
# So many times as slow as in turns may threads be.
_SLOWER_THAN_IN_TURNS = 4.0
# Once there is nothing to decide, a look now and then is enough.
_LOOK_EVERY_SECONDS = 0.02


class _Phase(enum.Enum):
    MEASURING = enum.auto()
    LOOKING = enum.auto()
    TRYING = enum.auto()
    SETTLED = enum.auto()


class ThreadChoice:
    """Decides between evaluating inline and on threads, and on how many."""

    def __init__(self, most_threads: int, cores: float, streams: int = 1) -> None:
        """`streams` are how many share this."""
        self._most_threads = most_threads
        self._cores = cores
        self._phase = _Phase.MEASURING
        self._inline, self._ahead = SeenLately(streams), SeenLately(streams)
        # How soon elements come by the clock.
        self._inline_pace, self._ahead_pace = Pace(), Pace()
        # The interpreter's lock while work was done inline.
        self._lock = LockLooks()
        # Whether there ever was a trial, whether this one was looked at before, and how many there
        # were since anything was settled.
        self._tried = self._looked = False
        self._turns = self._turn_began = 0
        # How the work was when it was settled. And the time since then, and since a look.
        self._then: Sight | None = None
        self._gain_then = math.inf
        self._since = self._since_look = 0.0
        self._clear = False
        # Whether threads that were settled on were doubted since, and looked at again.
        self._doubted = self._doubted_cost = False
        self._again = AskAgain()
        self.threaded = False
        self.threads = max(1, min(most_threads, math.ceil(cores)))

    @property
    def may_use_threads(self) -> bool:
        return self._most_threads > 0

    def describe(self) -> str:
        """What was chosen, and why, in words."""
        if self.threaded:
            on_trial = " (on trial)" if self.trying else ""
            return f"{self.threads} threads{on_trial}"
        if self._tried:
            return f"inline (up to {self.threads} threads were tried: they did not pay)"
        if self._phase is _Phase.SETTLED:
            return "inline (threads would not pay: the work holds the interpreter's lock)"
        return "inline (no need for threads so far)"

    @property
    def watching(self) -> bool:
        """Whether `learn_work` is of use now."""
        nothing_new = self._phase is _Phase.SETTLED or (
            self._phase is _Phase.MEASURING and self._inline.full
        )
        if nothing_new:
            return self._since_look >= _LOOK_EVERY_SECONDS
        return self._most_threads > 0 and self._phase is not _Phase.LOOKING

    def learn_work(
        self, count: int, spent: Spent, threads: int = 0, handing_seconds: float | None = None
    ) -> None:
        """Takes note of a block, evaluated inline (0) or by one of so many threads.

        `handing_seconds` are those on a core that it took to hand the block over, if known.
        """
        if not count or not self._most_threads:
            return
        self._since_look = 0.0
        if not threads:
            self._inline.add_work(count, spent)
            if self._inline_pace.add_cost(count, spent.cpu_seconds, 0.0):
                self._begin_anew(self._ahead_pace)
            if self._phase is _Phase.MEASURING and self._waits and not self._tried:
                self._consider_trial()  # Before all who share this have waited.
        elif self.threaded and threads == self.threads:
            self._ahead.add_work(count, spent)
            if self._ahead_pace.add_cost(count, spent.cpu_seconds, handing_seconds):
                self._begin_anew(self._inline_pace)
            if self._phase is _Phase.TRYING:
                self._judge()  # Before all who share this had their turn.

    def _begin_anew(self, other_way: Pace) -> None:
        """Takes note of other work: what is known of the other way is of the old."""
        other_way.forget()
        if self._phase is not _Phase.SETTLED:
            self._turns = 0
            self._measure(other_work=True)

    @property
    def trying(self) -> bool:
        """Whether it is not known yet that threads pay: they should have little to do."""
        return self._phase is _Phase.TRYING

    @property
    def looking(self) -> bool:
        """Whether to look at the interpreter's lock, and do nothing that gives it away."""
        return self._phase is _Phase.LOOKING

    def learn_lock(
        self, looks: int, taken: int, count: int, seconds: float, user_seconds: float | None
    ) -> None:
        """Takes note of a delivery, as `learn_cycle`, which it stands for, and `learn_work` do.

        And of how often somebody has looked at the lock while work was done, in all, and how often
        it was taken. May change `threaded`.
        """
        self._lock.learn(looks, taken, seconds)
        if count:
            lasted = self._inline.add_cycle(count, seconds, user_seconds)
            self._inline_pace.add(count, lasted, 0)
        threads = self._wanted()
        if not looks:
            if self._lock.shows_nothing:
                self._try(threads)
            return
        gain = self._gain_by_lock(threads, 0.0)
        at_worst, at_best = (self._gain_by_lock(threads, doubt) for doubt in (-1.0, 1.0))
        clear = at_worst > _WORTH_IT or at_best < _WORTH_MORE_LOOKS
        promising = not in_a_crowd(self._inline.crowd)
        promising &= self._gain_by_lock(threads, -2.0) > _WORTH_IT
        if not self._lock.was_looked_at(clear, promising):
            return
        if self._lock.is_known and gain < _WORTH_IT:
            self._settle(threaded=False, clear=clear, by_lock=True)
        else:
            self._try(self._wanted_by_lock())

    def learn_cycle(self, count: int, seconds: float, user_seconds: float | None) -> None:
        """Takes note of a delivery: the time since the last one, and the user's part of it, if any.

        May change `threaded` and `threads`.
        """
        if not count or not self._most_threads:
            return
        self._since += seconds
        self._since_look += seconds
        seen = self._ahead if self.threaded else self._inline
        pace = self._ahead_pace if self.threaded else self._inline_pace
        lasted = seen.add_cycle(count, seconds, user_seconds)
        pace.add(count, lasted, self.threads if self.threaded else 0)
        if self._phase is _Phase.TRYING:
            self._judge()
        elif self._since_look == seconds or self._since >= self._again.retry_seconds:
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
        patience = patience_with(inline.work, self._waits, inline.crowd)
        if max(inline.seconds, inline.work_seconds) < patience:
            return
        if self._turns and self._inline_pace.finished - self._turn_began < _TURN_WINDOWS:
            return
        if not self._could_gain():
            return
        if self._waits or self._turns:
            self._try(self._wanted_by_lock())
        else:
            self._phase = _Phase.LOOKING
            self._lock.forget()

    def _could_gain(self) -> bool:
        """Whether the best that could come of threads is worth a trial."""
        return self._inline.user + self._inline.queued_work > _WORTH_IT * self._best()

    def _best(self) -> float:
        """They can at best hide the work, or divide it."""
        inline = self._inline
        return max(inline.user, inline.queued_work / self._wanted(), inline.cpu / self._cores)

    def _gain_by_lock(self, threads: int, doubt: float) -> float:
        """How many times as long it would take without threads, by what the lock allows.

        `doubt` is how many times as much as usual the looks at it may be mistaken, in favour of
        threads.
        """
        inline, work = self._inline, self._inline.queued_work
        best = max(inline.user, work * max(self._lock.held(doubt), 1 / threads))
        return (inline.user + work) / max(best, 1e-9)

    def _wanted_by_lock(self) -> int:
        """As many as are wanted, or one where several could only take turns with the lock."""
        threads = self._wanted()
        if not self._lock.is_known:
            return threads
        of_one, of_all = (self._gain_by_lock(number, 0.0) for number in (1, threads))
        return 1 if of_one >= _WORTH_IT and of_all < _AS_GOOD * of_one else threads

    @property
    def _waits(self) -> bool:
        return self._inline.cpu < 0.5 * self._inline.work

    def _wanted(self) -> int:
        """As many as keep the cores busy: more when records wait than when they compute."""
        inline = self._inline
        busy = min(1.0, max(inline.cpu / inline.work, 1e-3)) if inline.work else 1.0
        return max(1, min(self._most_threads, math.ceil(self._cores / busy - 0.1)))

    def _try(self, threads: int) -> None:
        if threads != self.threads:
            self._ahead_pace.forget()
        self._phase, self._tried, self._looked = _Phase.TRYING, True, False
        self._turn_began = self._ahead_pace.finished
        self.threaded, self.threads = True, threads
        self._ahead.forget()
        self._ahead_pace.break_off()

    def _judge(self) -> None:
        ahead = self._ahead
        looks = 2 if self._looked else 1
        if ahead.blocks < looks * self.threads:
            return
        seen = max(ahead.work_seconds / self.threads, ahead.seconds / 2)
        if seen < looks * _TRIAL_SECONDS:
            return
        gain, unsure = self._gain()
        worth = gain - math.log(_WORTH_IT)
        if abs(worth) < _CLEARLY * unsure:
            if not self._looked:
                self._looked = True
                return
            if unsure > _SURE and self._turns < _MOST_TURNS:
                if self._ahead_pace.finished - self._turn_began >= _TURN_WINDOWS:
                    self._turns += 1
                    self._measure()
                return
        if worth < 0 and self._may_be_other_work():
            self._inline_pace.forget()
            self._measure()
        elif self.threads > 1 and self._one_is_enough(gain):
            self._try(1)
        else:
            clearly = max(0.0, abs(worth) - _CLEARLY * unsure)
            self._settle(threaded=worth >= 0, clear=clearly > 0.0, lost=clearly)

    def _gain(self) -> tuple[float, float]:
        """How many times as long it would take without threads, and how unsure that is.

        Both as logarithms. What blocks take tells soon. But who waits for the interpreter's lock
        wakes up every now and then to look for it, and on a busy machine stands in the queue for
        a core each time, which does not look like waiting; and who has the lock may stand there
        while others wait for both. So the more of a crowd there is, the more the clock counts.
        """
        gain, weight = math.log(self._gain_by_work()), self._unsure_by_work**-2
        inline, ahead = self._inline_pace, self._ahead_pace
        if inline.windows and ahead.windows:
            by_clock = 1 / (inline.variance + ahead.variance)
            gain = weight * gain + by_clock * (inline.log_cycle - ahead.log_cycle)
            weight += by_clock
            gain /= weight
        if self._lock.is_known and self._inline.blocks:
            allowed = math.log(self._gain_by_lock(self.threads, 0.0))
            at_worst, at_best = (self._gain_by_lock(self.threads, doubt) for doubt in (-1.0, 1.0))
            few_looks = math.log(at_best / at_worst) / 2
            # Not all that it allows need come of it: threads have other things to wait for.
            missed = _UNSURE_BY_MISSED * max(0.0, allowed - gain - _CLEARLY * weight**-0.5)
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
    def _unsure_by_work(self) -> float:
        looked = self._looked or self._phase is _Phase.SETTLED
        ahead, user = self._ahead, self._user_of_threads()
        work = ahead.mean()[0] / (1 - ahead.crowd) / self.threads
        # Of work that is hidden, it makes no difference what it takes.
        matters = min(1.0, work / user) if user else 1.0
        unsure = _UNSURE[looked] + _UNSURE_IN_A_CROWD[self.threads > 1] * self._crowd * matters
        # Blocks of which some are heavy may look alike to the way that has seen none of those.
        unlike = max(self._inline.unlike, ahead.unlike)
        few = sum(1 / max(1, seen.remembered) for seen in (self._inline, ahead))
        return math.hypot(unsure, math.sqrt(unlike * few))

    def _gain_by_work(self) -> float:
        """How many times as long it would take without threads, by what blocks take."""
        inline, ahead = self._inline, self._ahead
        work, cpu = ahead.mean()
        user = self._user_of_threads()
        cycle = max(user, work / (1 - ahead.crowd) / self.threads, 1e-9)
        # Inline it takes its time on a core and its waiting, but not longer than on a thread. What
        # was seen of it inline may be old, or was more because of an import, say.
        work = min(work, cpu + max(0.0, inline.work - inline.cpu))
        if inline.blocks:
            work = min(work, inline.work)
        work /= 1 - (inline.crowd if inline.blocks else ahead.crowd)
        if inline.knows_user and not ahead.knows_user_well:
            user = inline.user
        return max(user + work, 1e-9) / cycle

    def _burden(self) -> float:
        """How much more time on the cores it takes, beyond what is let pass: as a logarithm.

        Functions that fight for a lock of their own (some tokenizers do), or for memory, are
        hardly faster on threads and keep the cores busy for it.
        """
        inline, ahead = self._inline_pace, self._ahead_pace
        if not inline.cpu or not ahead.cpu:
            return 0.0
        doubt = math.sqrt(inline.cpu_variance + ahead.cpu_variance)
        more = math.log(ahead.cpu / inline.cpu) - math.log(_LET_PASS) - doubt
        return max(0.0, more) * (1 + _BURDEN_IN_A_CROWD * self._crowd**2)

    def _may_be_other_work(self) -> bool:
        """Whether, for once, threads burn so much that the work inline may have been lighter."""
        doubted, self._doubted_cost = self._doubted_cost, True
        return not doubted and self._ahead_pace.cpu > CHANGED * self._inline_pace.cpu

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
        return of_one >= _WORTH_IT and math.log(of_one) > gain - math.log(_AS_GOOD)

    def _settle(
        self, threaded: bool, clear: bool = False, lost: float = 0.0, by_lock: bool = False
    ) -> None:
        """Stays with one way; `clear` if others on the cores can hardly have deceived it.

        `lost` is how much the other way was slower, at the least: as a logarithm. `by_lock` it is
        known without a trial.
        """
        self._phase, self.threaded, self._clear = _Phase.SETTLED, threaded, clear
        self._since, self._then, self._turns = 0.0, None, 0
        self._doubted_cost = False
        # Of the other way there will be nothing new.
        (self._inline_pace if threaded else self._ahead_pace).age()
        if not threaded:
            inline = self._inline
            each = inline.work_seconds / max(1, inline.blocks)
            if by_lock:
                self._again.after_a_look(each)
            else:
                self._again.after_a_trial(each, lost if lost < self._most_lost() else 0.0)
            self._gain_then = self._gain_at_best() if inline.blocks else math.inf
            inline.forget(user_too=False)
        else:
            self._again.keep()

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

    def _reconsider(self) -> None:
        seen = self._ahead if self.threaded else self._inline
        if not seen.full:
            return
        now = Sight.of(seen)
        then = self._then = self._then or now
        other_work = then.is_other_work(now)
        if self._since >= self._again.calm_seconds and (other_work or self._has_changed(then, now)):
            self._inline_pace.forget()
            self._ahead_pace.forget()
            self._doubted = False
            self._measure(other_work)
        elif not self.threaded:
            if self._since >= self._again.retry_seconds:
                self._measure()
        else:
            gain, unsure = self._gain()
            lost = math.log(_STILL_WORTH_IT) - gain
            if lost > 0.0 and (lost > unsure or unsure <= _SURE):
                doubtful = lost <= _CLEARLY * unsure and not self._doubted
                if self._since > SOON_AGAIN_SECONDS or doubtful:
                    self._doubted = True
                    self._measure()
                else:
                    # The trial was mistaken.
                    clearly = max(0.0, lost - unsure)
                    self._settle(threaded=False, clear=clearly > 0.0, lost=clearly)

    def _has_changed(self, then: Sight, now: Sight) -> bool:
        """Whether the same work may be better done in another way by now."""
        more_to_gain = not self.threaded and self._gain_at_best() > _CLEAR * self._gain_then
        # What was clear still is.
        return more_to_gain or (not self._clear and then.is_other_crowd(now))

    def _measure(self, other_work: bool = False) -> None:
        self._inline.forget(user_too=other_work or (self.threaded and not self._turns))
        self._phase, self.threaded = _Phase.MEASURING, False
        self._inline_pace.break_off()
        self._turn_began = self._inline_pace.finished
        if not self._turns:
            self._lock.forget()
