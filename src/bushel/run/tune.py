"""How large blocks are, and whether threads pay: learned while running, never visible.

Both learn from measured times that the caller hands in, so a test can hand in its own.
"""

import math
from collections import deque
from typing import Any

from bushel.tree import leaves_with_paths

# A block should be worth its overhead (tens of microseconds) and still arrive soon.
TARGET_SECONDS = 0.004
MOST_ELEMENTS = 8192
# What a block holds should still be in the cache when it is handed out, and the memory of
# the last one be free again for the next: fresh pages cost more than copying into them.
MOST_BYTES = 1 << 18
_LOOK_AT_BYTES_EVERY = 64
# Whatever a source wants, records that take longer than that together come in smaller blocks,
# and so do records that are larger than that together: lanes and workers have many of them.
_LEAST_SECONDS = 0.05
_LEAST_BYTES = 1 << 22


class BlockSize:
    """The number of elements of the next block, aiming at a few milliseconds of work."""

    def __init__(
        self,
        most: int = MOST_ELEMENTS,
        first: int = 1,
        most_bytes: int = MOST_BYTES,
        least: int = 1,
        side_by_side: int = 1,
        target_seconds: float = TARGET_SECONDS,
        under_way: int = 0,
    ) -> None:
        """`side_by_side` blocks share the cores, and each takes longer for that.

        Of blocks that are asked for ahead, so many `under_way`, none is larger than its share of
        all that came before: however large they become, the first elements come soon.
        """
        self._most = max(1, most)
        self._target_seconds, self._under_way = target_seconds, under_way
        self._first = first
        self._learned = 0
        # What a source wants to be asked for at a time, for the sake of speed.
        self._least = least
        self._least_seconds = _LEAST_SECONDS * side_by_side
        self._most_bytes = most_bytes
        self._by_bytes = max(self._most, least)
        self._seconds_each = 0.0
        self._blocks = 0
        self.size = min(first, self._most)

    def learn(self, count: int, seconds: float) -> None:
        """Takes note of how long a block of `count` elements took."""
        if not count:
            return
        each = seconds / count
        self._learned += count
        # What came last counts most, so a stream whose records change is followed quickly.
        self._seconds_each = each if not self._seconds_each else (self._seconds_each + each) / 2
        ideal = min(self._target_seconds / max(self._seconds_each, 1e-9), self._most)
        if self._seconds_each * self._least < self._least_seconds:
            ideal = max(ideal, self._least)
        growth = self.size * 4
        if self._under_way:
            growth = max(self._first, self._learned // self._under_way)
        self.size = int(max(1, min(ideal, growth, self._by_bytes)))

    def wants_sample(self) -> bool:
        """Whether to look at an element's size: at the first ones', then now and then."""
        self._blocks += 1
        return self._blocks <= 4 or not self._blocks % _LOOK_AT_BYTES_EVERY

    def limit_bytes(self, element: Any) -> None:
        """Takes note of how large elements are, by one of them."""
        self.limit_to(approximate_bytes(element))

    def limit_to(self, bytes_each: int) -> None:
        """Takes note of how large elements are."""
        most = max(self._most_bytes // max(1, bytes_each), 1)
        self._by_bytes = max(most, min(self._least, _LEAST_BYTES // max(1, bytes_each)))
        self.size = min(self.size, self._by_bytes)


def approximate_bytes(element: Any) -> int:
    """How much memory an element holds, roughly.

    >>> import numpy as np
    >>> approximate_bytes({"image": np.zeros((2, 3), np.float32), "label": 1})
    56
    """
    total = 0
    for _, leaf in leaves_with_paths(element):
        if isinstance(leaf, (bytes, bytearray, str)):
            total += len(leaf)
        else:
            size = getattr(leaf, "nbytes", 32)
            # Elements may be anything, and some call a method so.
            total += size if isinstance(size, int) else 32
    return total


_ENOUGH_BLOCKS = 8
_A_FEW = 4
_HEAVY_SECONDS = 0.012
_ENOUGH_SECONDS = 0.05
# To try threads costs a few of the interpreter's switches, 5 ms each. Before work that keeps
# a core busy is disturbed like that, it should have run a while.
_PATIENCE_SECONDS = 0.5
_WORTH_A_TRIAL = 0.1
# With a smaller share on a core, it is not that other programs have the cores.
_HARDLY_BUSY = 0.1
# A block is meant to take a few milliseconds. One that takes this long is worth a thought.
LONG_SECONDS = 0.03
# The same for blocks that are large because their source wants them so.
LONG_FOR_LARGE_SECONDS = 0.2


class Mode:
    """One way to run, and how long an element took with it."""

    def __init__(self) -> None:
        self.cycles: deque[float] = deque(maxlen=64)
        self.seconds = 0.0
        # Threads that began together end together, and deliver that many at once. So their
        # deliveries are looked at so many at a time.
        self.burst = 1

    def measured(self, patience: float = _ENOUGH_SECONDS) -> bool:
        if len(self.cycles) < 2 * self.burst:
            return False
        if len(self.cycles) >= _A_FEW and self.seconds > len(self.cycles) * _HEAVY_SECONDS:
            return True  # A few that are as long as that tell enough.
        return len(self.cycles) >= _ENOUGH_BLOCKS and self.seconds >= patience

    def typical(self) -> float:
        # The median: a compilation or a checkpoint in the user's loop is no reason.
        cycles, burst = list(self.cycles), min(self.burst, len(self.cycles))
        ends = range(burst, len(cycles) + 1)
        ordered = sorted(sum(cycles[end - burst : end]) / burst for end in ends)
        return ordered[len(ordered) // 2]

    def forget(self) -> None:
        self.cycles.clear()
        self.seconds = 0.0


# Threads take a core from the training loop and fight for the interpreter's lock: they must
# earn it.
_WORTH_IT = 0.9
_FIRST_RECHECK_SECONDS = 2.0
_LAST_RECHECK_SECONDS = 300.0


class ThreadChoice:
    """Decides between evaluating inline and on threads by trying both.

    The measure is the time of a whole cycle per element, from one delivery to the next, the
    caller's own work included: so threads win when records wait for disk or network, when
    functions release the interpreter's lock, or when the caller is busy elsewhere, and lose
    when everything is Python.
    """

    def __init__(self, most_threads: int, cores: int, streams: int = 1) -> None:
        """`streams` are how many share this, and deliver together (see `Crew`)."""
        self._most_threads = most_threads
        self._cores = cores
        self._streams = streams
        self._inline, self._threaded = Mode(), Mode()
        self._cpu_seconds = 0.0
        self._work_seconds = 0.0
        self._since_decision = 0.0
        self._recheck = _FIRST_RECHECK_SECONDS
        self._decided = False
        self.threaded = False

    @property
    def undecided(self) -> bool:
        """Whether `learn_work` is of use now."""
        return self._most_threads > 0 and not self._decided

    @property
    def may_use_threads(self) -> bool:
        return self._most_threads > 0

    @property
    def threads(self) -> int:
        """As many as keep the cores busy: more when records wait than when they compute."""
        share = self._cpu_seconds / self._work_seconds if self._work_seconds else 0.0
        busy = min(1.0, max(share, 1e-3))
        return max(1, min(self._most_threads, math.ceil(self._cores / busy)))

    @property
    def _waits(self) -> bool:
        """Whether records wait rather than compute: then threads are tried at once."""
        return self._cpu_seconds < 0.5 * self._work_seconds

    def learn_work(
        self, seconds: float, cpu_seconds: float, long_seconds: float = LONG_SECONDS
    ) -> None:
        """Takes note of the evaluation of a block: how long, and how much of it on a core."""
        self._work_seconds += seconds
        self._cpu_seconds += cpu_seconds
        if self.threaded:
            return
        if (seconds > long_seconds and cpu_seconds < 0.5 * seconds) or self._plainly_waits:
            # Records that wait this long need no comparison: waiting side by side is shorter.
            self.threaded, self._decided, self._since_decision = True, True, 0.0

    @property
    def _plainly_waits(self) -> bool:
        """Whether streams wait, one for all of them, for so long that it is no accident.

        To compare, all of them would have to deliver several times, which takes long then.
        """
        waits = self._cpu_seconds < _HARDLY_BUSY * self._work_seconds
        return self._streams > 1 and waits and self._work_seconds > _ENOUGH_SECONDS

    def learn_cycle(self, count: int, seconds: float) -> None:
        """Takes note of a delivery; may change `threaded`."""
        if not self._most_threads or not count:
            return
        if self._decided:
            self._since_decision += seconds
            if self._since_decision > self._recheck:
                self._recheck = min(2 * self._recheck, _LAST_RECHECK_SECONDS)
                self.look_again()
            return
        mode, other = self._inline, self._threaded
        if self.threaded:
            mode, other = other, mode
        mode.cycles.append(seconds / count)
        mode.seconds += seconds
        if other.measured():
            hopeless = len(mode.cycles) >= _A_FEW and mode.typical() > 1.5 * other.typical()
            if hopeless or mode.measured():
                self._decide()
        elif mode.measured(_ENOUGH_SECONDS if self._waits else _PATIENCE_SECONDS):
            # Threads can at best hide the work, so they are not even tried for little of it.
            if self.threaded or self._work_seconds > _WORTH_A_TRIAL * mode.seconds:
                self._switch()
            else:
                self._decided, self._since_decision = True, 0.0

    def look_again(self) -> None:
        """Takes nothing for decided any more: the work has changed."""
        self._decided = False
        self._cpu_seconds = self._work_seconds = 0.0
        self._inline.forget()
        self._threaded.forget()

    def _switch(self) -> None:
        self.threaded = not self.threaded
        # (Many threads that wait are told apart without that, and a pause would hide in so many.)
        self._threaded.burst = 1 if self._waits or self._streams > 1 else min(self.threads, 16)
        if self._streams > 1 and not self.threaded:
            # Threads that wait for each other look like records that wait.
            self._cpu_seconds = self._work_seconds = 0.0
        # The first deliveries after a change show the change, not the mode.
        (self._threaded if self.threaded else self._inline).forget()

    def _decide(self) -> None:
        better = self._threaded.typical() < _WORTH_IT * self._inline.typical()
        self._decided, self._since_decision = True, 0.0
        if better != self.threaded:
            self.threaded = better
