"""Decides whether to use threads, and how many: measures inline, looks at the GIL, tries them.

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
from bushel.run.changed_work import CHANGED, Alternation, Sight
from bushel.run.recent_times import Pace
from bushel.run.thread_gain import CLEAR, CLEARLY, TURN_WINDOWS, WORTH_IT, ThreadGain
from bushel.run.thread_time import Spent

# Threads that are there already stay as long as they earn anything.
_STILL_WORTH_IT = 1.03
# What looks at the lock must leave possible, at best, for more of them to be taken.
_WORTH_MORE_LOOKS = 1.1
# How much must be seen of each thread; what is not clear then gets a second look.
_TRIAL_SECONDS = 0.05
# Uncertainty below which there is nothing to wait for.
_SURE = 0.07
# Until then inline and threads take turns: each has `TURN_WINDOWS` windows of the clock, and
# there are `_MOST_TURNS` turns at the most.
_MOST_TURNS = 3
# Once there is nothing to decide, a look now and then is enough.
_LOOK_EVERY_SECONDS = 0.02


class _Phase(enum.Enum):
    MEASURING = enum.auto()
    LOOKING = enum.auto()
    TRYING = enum.auto()
    SETTLED = enum.auto()


class ThreadChoice(ThreadGain):
    """Decides between evaluating inline and on threads, and on how many."""

    def __init__(self, most_threads: int, cores: float, streams: int = 1) -> None:
        """`streams` are how many share this."""
        super().__init__(most_threads, cores, streams)
        self._phase = _Phase.MEASURING
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
        self._alternation = Alternation()
        self.threaded = False

    @property
    def _looked_twice(self) -> bool:
        return self._looked or self._phase is _Phase.SETTLED

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
            may_be_other = self._alternation.may_change
            if self._inline_pace.add_cost(count, spent, 0.0, may_be_other):
                self._begin_anew(self._ahead_pace)
            if self._phase is _Phase.MEASURING and self._waits and not self._tried:
                self._consider_trial()  # Before all who share this have waited.
        elif self.threaded and threads == self.threads:
            self._ahead.add_work(count, spent)
            self._ahead_pace.add_work(count, spent.seconds)
            may_be_other = self._alternation.may_change
            if self._ahead_pace.add_cost(count, spent, handing_seconds, may_be_other):
                self._begin_anew(self._inline_pace)
            if self._phase is _Phase.TRYING:
                self._judge()  # Before all who share this had their turn.

    def _begin_anew(self, other_way: Pace) -> None:
        """Takes note of other work: what is known of the other way is of the old."""
        other_way.forget()
        if self.threaded:
            self._inline.forget(user_too=False)
        self._alternation.changed()
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
        self._alternation.went_on(1, seconds)
        if count:
            lasted = self._inline.add_cycle(count, seconds, user_seconds)
            self._inline_pace.add(count, lasted, 0)
        threads = self._wanted()
        if not looks:
            if self._lock.shows_nothing:
                self._try(threads)
            return
        if not self._lock.may_be_enough:
            return
        gains = self._gains_by_lock(threads, 0.0, -1.0, 1.0, -2.0)
        gain, at_worst, at_best, if_much_mistaken = gains
        clear = at_worst > WORTH_IT or at_best < _WORTH_MORE_LOOKS
        promising = not in_a_crowd(self._inline.crowd) and if_much_mistaken > WORTH_IT
        if not self._lock.was_looked_at(clear, promising):
            return
        if self._lock.is_known and gain < WORTH_IT:
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
        self._alternation.went_on(1, seconds)
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
        if self._turns and self._inline_pace.finished - self._turn_began < TURN_WINDOWS:
            return
        if not self._could_gain():
            return
        if self._waits or self._turns:
            self._try(self._wanted_by_lock())
        else:
            self._phase = _Phase.LOOKING
            self._lock.forget()

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
        worth = gain - math.log(WORTH_IT)
        if abs(worth) < CLEARLY * unsure:
            if not self._looked:
                self._looked = True
                return
            if unsure > _SURE and self._turns < _MOST_TURNS:
                if self._ahead_pace.finished - self._turn_began >= TURN_WINDOWS:
                    self._turns += 1
                    self._measure()
                return
        if worth < 0 and self._may_be_other_work():
            self._inline_pace.forget()
            self._measure()
        elif self.threads > 1 and self._one_is_enough(gain):
            self._try(1)
        else:
            clearly = max(0.0, abs(worth) - CLEARLY * unsure)
            self._settle(threaded=worth >= 0, clear=clearly > 0.0, lost=clearly)

    def _may_be_other_work(self) -> bool:
        """Whether, for once, threads burn so much that the work inline may have been lighter."""
        doubted, self._doubted_cost = self._doubted_cost, True
        return not doubted and self._ahead_pace.cpu > CHANGED * self._inline_pace.cpu

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

    def _reconsider(self) -> None:
        seen = self._ahead if self.threaded else self._inline
        if not seen.full:
            return
        now = Sight.of(seen, self._unlike_for_long)
        then = self._then = self._then or now
        may_change = self._since >= self._again.calm_seconds and self._alternation.may_change
        other_work = may_change and then.is_other_work(now)
        if other_work or (may_change and self._has_changed(then, now)):
            self._alternation.changed()
            self._inline_pace.forget()
            self._ahead_pace.forget()
            self._doubted = False
            self._measure(other_work)
        elif not self.threaded:
            if self._since >= self._again.retry_seconds:
                self._measure()
        elif self._disappoints():
            self._turns = 1
            self._ahead_pace.forget()
            self._measure()
        else:
            gain, unsure = self._gain()
            lost = math.log(_STILL_WORTH_IT) - gain
            if lost > 0.0 and (lost > unsure or unsure <= _SURE):
                doubtful = lost <= CLEARLY * unsure and not self._doubted
                if self._since > SOON_AGAIN_SECONDS or doubtful:
                    self._doubted = True
                    self._measure()
                else:
                    # The trial was mistaken.
                    clearly = max(0.0, lost - unsure)
                    self._settle(threaded=False, clear=clearly > 0.0, lost=clearly)

    def _has_changed(self, then: Sight, now: Sight) -> bool:
        """Whether the same work may be better done in another way by now."""
        more_to_gain = not self.threaded and self._gain_at_best() > CLEAR * self._gain_then
        # What was clear still is.
        return more_to_gain or (not self._clear and then.is_other_crowd(now))

    def _measure(self, other_work: bool = False) -> None:
        self._inline.forget(user_too=other_work or (self.threaded and not self._turns))
        self._phase, self.threaded = _Phase.MEASURING, False
        self._inline_pace.break_off()
        self._turn_began = self._inline_pace.finished
        if not self._turns:
            self._lock.forget()
