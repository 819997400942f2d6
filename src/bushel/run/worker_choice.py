"""Chooses the number of worker processes: a pure function of measurements.

Nothing here reads a clock or examines the machine, so tests can pass measurements of machines that
they made up. Decisions depend on how long the consumer waits for elements: if it waits and the
workers are busy, there are too few workers; if it does not wait and fewer workers would do, there
are too many. The number needed follows from the work, at once (Little's law). The gain is measured
afterwards, and a change without the expected gain is taken back.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from bushel.core.frozen import frozen

# A loop that waits more than this share of its time is to have more workers, after a longer look
# if it is not as much as that; less than the last one, and it may do with fewer.
_WAITS, _WAITS_MUCH, _DOES_NOT_WAIT = 0.04, 0.2, 0.01
# Workers that are idle for more than this share of their time are not what is waited for.
_IDLE = 0.2
# Allowance for elements that differ from each other.
_MARGIN = 1.1
# After a change to fewer, workers may be busy for this share of their time.
_BUSY_AFTER_SHRINKING = 0.75
# A change is kept where this share of what it promised came true, or it is much, and more than
# chance may bring; where the second share did not, a number in between is tried.
_DELIVERED, _BY_CHANCE, _NEARLY_ALL = 0.2, 0.02, 0.6
# But only if that is so much less; nor are there fewer workers for less than that.
_WORTH_A_TRY = 0.8
# Fewer workers may make an element take this much longer, as far as clocks can tell.
_SAME = 1.08
# What a change must promise, as a share of the time; less where there is less to gain, but so much
# that it can be told from chance whether it came.
_LEAST_GAIN, _LEAST_TO_SEE = 0.1, 0.05
# Less than this share of what a worker takes of a core is no room for one.
_FREE_CORE = 0.15
# A worker takes at least so much of a core, whatever clocks of a hundred ticks a second say.
_LEAST_SHARE = 0.02
# The number of glances that are compared (their median counts), before a change to more and to
# fewer.
_LOOKS, _LOOKS_BEFORE_FEWER = 3, 8
# And the last ones after a change to more.
_LOOKS_AFTER_MORE = 4
_SECONDS_BEFORE_FEWER = 10.0
# Before a change that brings little, so many seconds for each change that there was, up to so many:
# what differs by chance has one choice after the other look better than the last.
_CALM_SECONDS, _MOST_CALM = 20.0, 12
# Work that is so many times what it was when something was given up: it may be tried again. So it
# may after a time, which doubles with each that was for nothing.
_CHANGED = 1.4
_FIRST_PATIENCE_SECONDS, _MOST_PATIENCE_SECONDS = 240.0, 4 * 3600.0
# And what was found to be too few so many times as late: one too many is hardly felt.
_LATER_FEWER = 4


@frozen
class Glance:
    """Measurements of a period in which the number of workers was the same."""

    workers: int
    seconds: float
    # Of those, the seconds in which the consumer waited for workers.
    wait_seconds: float
    # Seconds in which workers had nothing to do, summed over all workers.
    idle_seconds: float
    elements: int
    # Cores that no process on this machine used, on average; None if unknown.
    free_cores: float | None = None
    # Memory of a worker alone, and memory of all tasks under way, per worker.
    worker_bytes: int = 0
    ahead_bytes: int = 0
    # The share of a core that each worker used, on average, which is small for work that waits for
    # a disk or an answer. None if unknown.
    core_share: float | None = None

    @property
    def cycle(self) -> float:
        """Seconds per element."""
        return self.seconds / self.elements

    @property
    def own(self) -> float:
        """Seconds per element that the consumer needs for itself."""
        return max(0.0, self.seconds - self.wait_seconds) / self.elements

    @property
    def work(self) -> float:
        """Seconds per element that workers need, including all that they wait for."""
        idle = min(self.idle_seconds, 0.99 * self.workers * self.seconds)
        return (self.workers * self.seconds - idle) / self.elements

    @property
    def wait_share(self) -> float:
        return self.wait_seconds / self.seconds

    @property
    def idle_share(self) -> float:
        return min(1.0, self.idle_seconds / (self.workers * self.seconds))


@frozen
class WorkerBudget:
    """The bounds of the number of workers, and their resources."""

    least: int
    most: int
    cores: float
    memory_bytes: float = math.inf


@frozen
class Decision:
    """A new number of workers, and the reason."""

    workers: int
    why: str


@frozen
class _Trial:
    """The state before a change, and the expected gain."""

    workers: int
    cycle: float
    promised: float


@frozen
class _TriedBound:
    """A number of workers that was tried and given up, until a time, or until the work changes."""

    workers: int
    until_seconds: float
    # Own time and work with the number of workers since then, once these are known.
    at_workers: int = 0
    own: float = 0.0
    work: float = 0.0


@frozen
class Learned:
    """All that is known: passed in with new measurements, and returned with these added."""

    seen: tuple[Glance, ...] = ()
    trial: _Trial | None = None
    # The most and the fewest workers, as far as trials have shown.
    ceiling: _TriedBound | None = None
    floor: _TriedBound | None = None
    patience_seconds: float = _FIRST_PATIENCE_SECONDS
    seconds: float = 0.0
    # Since the last change.
    still_seconds: float = 0.0
    # Whether the last change was to fewer, and how many there were in all.
    has_shrunk: bool = False
    changes: int = 0


NOTHING_LEARNED = Learned()


def decide(learned: Learned, seen: Glance, budget: WorkerBudget) -> tuple[Learned, Decision | None]:
    """Adds measurements to what is known, and says whether another number is better.

    After a decision, the next period begins when that number of workers is there.
    """
    if not seen.elements or seen.seconds <= 0:
        return learned, None
    before = learned.seen if not learned.seen or _alike(learned.seen[-1], seen) else ()
    learned = replace(
        learned,
        seen=(*before, seen)[-_LOOKS_BEFORE_FEWER:],
        seconds=learned.seconds + seen.seconds,
        still_seconds=learned.still_seconds + seen.seconds,
    )
    fitting = _fitting(seen, budget)
    if seen.workers > fitting:
        why = f"{seen.workers} take more memory than the {_gib(budget.memory_bytes)} of the budget"
        return _changed(learned), Decision(fitting, why)
    if len(learned.seen) < _LOOKS:
        return learned, None
    learned = _without_old_bounds(learned)
    if learned.trial is not None:
        learned, decision = _judged(learned, learned.trial, budget)
        if decision is not None or learned.trial is not None:
            return learned, decision
    more = _more(learned, budget, fitting)
    return more if more[1] is not None else _fewer(learned, budget)


def _alike(one: Glance, other: Glance) -> bool:
    return one.workers == other.workers


def _middle(seen: Sequence[Glance], figure: Callable[[Glance], float]) -> float:
    # (The module `statistics` would have exact fractions and decimals imported.)
    figures = sorted(map(figure, seen))
    middle, is_odd = divmod(len(figures), 2)
    return figures[middle] if is_odd else (figures[middle - 1] + figures[middle]) / 2


def _fitting(seen: Glance, budget: WorkerBudget) -> int:
    """The most workers that fit into the memory budget, but never fewer than the least."""
    each = seen.worker_bytes + seen.ahead_bytes
    if not each or budget.memory_bytes == math.inf:
        return budget.most
    return max(budget.least, min(budget.most, int(budget.memory_bytes // each)))


def _judged(
    learned: Learned, trial: _Trial, budget: WorkerBudget
) -> tuple[Learned, Decision | None]:
    """Keeps a change, or takes it back, after longer measurements."""
    seen = learned.seen
    is_sure = len(seen) == _LOOKS_BEFORE_FEWER
    workers, cycle = seen[-1].workers, _middle(seen, lambda one: one.cycle)
    kept = replace(learned, trial=None)
    if workers < trial.workers:
        if cycle <= _SAME * trial.cycle or _middle(seen, lambda one: one.wait_share) < _WAITS:
            return kept, None
        if not is_sure:
            return learned, None
        why = f"with {workers} an element took {_percent(cycle / trial.cycle - 1)} longer"
        return _changed(_no_fewer(kept, trial.workers)), Decision(trial.workers, why)
    # New workers are slow at first, and as outcomes are taken in order, all wait for them: so only
    # the last measurements count.
    cycle = _middle(seen[-_LOOKS_AFTER_MORE:], lambda one: one.cycle)
    promised, came = trial.cycle - trial.promised, trial.cycle - cycle
    faster = _percent(trial.cycle / cycle - 1)
    if came < _NEARLY_ALL * promised and not is_sure:
        return learned, None
    delivered = max(_DELIVERED * promised, _BY_CHANCE * trial.cycle)
    if came < min(delivered, _LEAST_TO_SEE * trial.cycle):
        expected = _percent(trial.cycle / trial.promised - 1)
        why = f"{workers} were {faster} faster than {trial.workers}, and not {expected}"
        return _changed(_no_more(kept, trial.workers)), Decision(trial.workers, why)
    if came >= _NEARLY_ALL * promised:
        return kept, None
    enough = max(budget.least, math.ceil(_MARGIN * trial.workers * trial.cycle / cycle))
    if not trial.workers < enough <= _WORTH_A_TRY * workers:
        return _no_more(kept, workers), None
    bounded = replace(_no_more(kept, enough), trial=_Trial(workers, cycle, cycle))
    why = f"{workers} were {faster} faster than {trial.workers}, which takes no more than {enough}"
    return _changed(bounded, keep_trial=True), Decision(enough, why)


def _more(learned: Learned, budget: WorkerBudget, fitting: int) -> tuple[Learned, Decision | None]:
    seen = learned.seen[-_LOOKS:]
    workers = seen[-1].workers
    if _middle(seen, lambda one: one.wait_share) < _WAITS_MUCH:
        # So little may be chance, and there is time to find out.
        seen = learned.seen
        if len(seen) < _LOOKS_BEFORE_FEWER:
            return learned, None
    wait, idle = (
        _middle(seen, lambda one: one.wait_share),
        _middle(seen, lambda one: one.idle_share),
    )
    if wait < _WAITS or idle > _IDLE:
        return learned, None
    if wait < _LEAST_GAIN and learned.still_seconds < _calm_seconds(learned):
        return learned, None
    cycle, own = _middle(seen, lambda one: one.cycle), _middle(seen, lambda one: one.own)
    work = _middle(seen, lambda one: one.work)
    # Cores that were free once in a while are not there for another worker.
    free = min(_free_cores(one, budget) for one in learned.seen)
    each = _middle(seen, _core_share)
    most = min(fitting, workers + max(0, math.ceil(free / each - _FREE_CORE)))
    if learned.ceiling is not None:
        most = min(most, learned.ceiling.workers)
    wanted = math.ceil(_MARGIN * work / own) if own * most > work / 1000 else most
    target = min(wanted, most)
    if target <= workers:
        return learned, None
    # Work that uses all cores already does not become faster with more workers.
    full = cycle * (1 - min(1.0, free / budget.cores))
    promised = max(own, work / target, full)
    if cycle - promised < min(max(0.5 * wait, _LEAST_TO_SEE), _LEAST_GAIN) * cycle:
        return learned, None
    why = (
        f"the loop waited {_percent(wait)} of its time and workers were busy {_percent(1 - idle)} "
        "of theirs"
    )
    # What was too few is too few for a while; it may be tried again the later, the more often.
    if learned.has_shrunk:
        learned = _no_fewer(learned, target)
    elif learned.floor is None or learned.floor.workers < target:
        learned = replace(learned, floor=_bound(learned, target, _LATER_FEWER))
    learned = replace(learned, trial=_Trial(workers, cycle, promised), has_shrunk=False)
    return _changed(learned, keep_trial=True), Decision(target, why)


def _fewer(learned: Learned, budget: WorkerBudget) -> tuple[Learned, Decision | None]:
    seen = learned.seen
    workers = seen[-1].workers
    least = budget.least if learned.floor is None else max(budget.least, learned.floor.workers)
    enough_seen = len(seen) == _LOOKS_BEFORE_FEWER
    if not enough_seen or learned.still_seconds < max(
        _SECONDS_BEFORE_FEWER, _calm_seconds(learned)
    ):
        return learned, None
    # One long wait, or one long pause, is no reason.
    if sum(one.wait_share < _DOES_NOT_WAIT for one in seen) < len(seen) - 1:
        return learned, None
    own, work = _middle(seen, lambda one: one.own), _middle(seen, lambda one: one.work)
    target = max(least, math.ceil(work / own / _BUSY_AFTER_SHRINKING))
    if target > _WORTH_A_TRY * workers:
        return learned, None
    idle = _middle(seen, lambda one: one.idle_share)
    why = (
        f"the loop waited {_percent(_middle(seen, lambda one: one.wait_share))} of its time and "
        f"workers had nothing to do in {_percent(idle)} of theirs"
    )
    cycle = _middle(seen, lambda one: one.cycle)
    learned = replace(learned, trial=_Trial(workers, cycle, cycle), has_shrunk=True)
    return _changed(learned, keep_trial=True), Decision(target, why)


def refused(learned: Learned, workers: int) -> Learned:
    """Takes note that there cannot be more than so many workers, whatever the gain."""
    return replace(_no_more(learned, workers), trial=None)


def _free_cores(seen: Glance, budget: WorkerBudget) -> float:
    if seen.free_cores is None:
        return budget.cores - seen.workers * (1 - seen.idle_share)
    return min(seen.free_cores, budget.cores)


def _core_share(seen: Glance) -> float:
    """The share of a core that another worker uses: all of it, if unknown."""
    return 1.0 if seen.core_share is None else min(1.0, max(_LEAST_SHARE, seen.core_share))


def _changed(learned: Learned, keep_trial: bool = False) -> Learned:
    """What was seen before a change says nothing of the time after it."""
    trial = learned.trial if keep_trial else None
    return replace(learned, seen=(), still_seconds=0.0, trial=trial, changes=learned.changes + 1)


def _calm_seconds(learned: Learned) -> float:
    return _CALM_SECONDS * min(learned.changes, _MOST_CALM)


def _no_more(learned: Learned, workers: int) -> Learned:
    floor = learned.floor
    if floor is not None and floor.workers > workers:
        floor = None  # It was put there when there came to be more, which is taken back.
    return replace(_less_eager(learned), ceiling=_bound(learned, workers), floor=floor)


def _no_fewer(learned: Learned, workers: int) -> Learned:
    return replace(_less_eager(learned), floor=_bound(learned, workers, _LATER_FEWER))


def _bound(learned: Learned, workers: int, times: float = 1.0) -> _TriedBound:
    return _TriedBound(workers, learned.seconds + times * learned.patience_seconds)


def _less_eager(learned: Learned) -> Learned:
    patience = min(2 * learned.patience_seconds, _MOST_PATIENCE_SECONDS)
    return replace(learned, patience_seconds=patience)


def _without_old_bounds(learned: Learned) -> Learned:
    """Drops bounds that were found for other work, or long ago."""
    return replace(
        learned, ceiling=_still(learned.ceiling, learned), floor=_still(learned.floor, learned)
    )


def _still(bound: _TriedBound | None, learned: Learned) -> _TriedBound | None:
    seen = learned.seen[-_LOOKS:]
    if bound is None or learned.seconds > bound.until_seconds or _is_another(bound, seen):
        return None
    if bound.at_workers == seen[-1].workers:
        return bound
    own, work = _middle(seen, lambda one: one.own), _middle(seen, lambda one: one.work)
    return replace(bound, at_workers=seen[-1].workers, own=own, work=work)


def _is_another(bound: _TriedBound, seen: Sequence[Glance]) -> bool:
    """Whether all of the last measurements show other work, with the same number of workers."""
    if seen[-1].workers != bound.at_workers:
        return False
    # Own time that is tiny compared with the rest may be any multiple of what it was.
    little = bound.work / bound.at_workers / 10
    for was, figures in (
        (bound.own + little, [one.own + little for one in seen]),
        (bound.work, [one.work for one in seen]),
    ):
        if min(figures) > _CHANGED * was or max(figures) * _CHANGED < was:
            return True
    return False


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
