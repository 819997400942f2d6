"""For `profile`: times every call of each step; counts its CPU, run queue, GIL and bytes.

Steps run one after the other in one thread, and every call is looked at: by the clocks of the
thread (`run/thread_time.py`), and by a thread that sees now and then whether the interpreter's lock
is taken (`run/lock_probe.py`). When a look was, tells which step it was about.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

from bushel.core.frozen import plain
from bushel.core.node import Node
from bushel.core.stream import Chunk
from bushel.run.call_sizes import Sized, bytes_of_one, unsized
from bushel.run.lock_probe import LockProbe
from bushel.run.step_sheet import Sheet
from bushel.run.step_times import StepTimes
from bushel.run.step_total import StepTotal
from bushel.run.thread_time import Stopwatch

T = TypeVar("T")

# A thread that sleeps is woken up so many seconds late, on a core that is free.
_WOKEN_LATE = 6e-5
# Calls within calls that are looked at for the one that a look belongs to.
_DEEPEST = 64
# Of what a step makes, these first ones are looked at for their size, and then one in so many.
_SIZED_FIRST, _SIZED_EVERY = 4, 64
# Rounds of calls that tell what a look costs: the quickest of them does.
_ROUNDS, _CALLS_OF_A_ROUND = 5, 40


class OutOfTimeError(BaseException):
    """Ends a sample in the midst of an element: no step is to take it for an error of its own."""


@plain
class Extra:
    """What a step's calls took beside the clock on the wall."""

    cpu_seconds: float = 0.0
    queued_seconds: float = 0.0
    calls: int = 0
    # Of what it makes: how many were looked at, and their bytes.
    sized: int = 0
    bytes: int = 0
    # Looks at the interpreter's lock while it was at work, and how often that was taken.
    looks: int = 0
    taken: int = 0

    @property
    def bytes_each(self) -> float | None:
        return self.bytes / self.sized if self.sized else None


class LockLog(LockProbe):
    """Looks at the interpreter's lock, and notes when."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, bool]] = []

    def look(self, taken: bool, at: float = 0.0) -> bool:
        if self.working:
            self.seen.append((at + _WOKEN_LATE, taken))
        return super().look(taken, at)


class CostTimes(StepTimes):
    """Times every call of every step, by all clocks."""

    most_share = 1.0

    def __init__(self, deadline: float) -> None:
        """`deadline` is the time by `perf_counter` from which on no step begins any more."""
        super().__init__()
        # What looks cost is tried first, which may take longer than there is time for.
        self.deadline = math.inf
        self.extras: dict[int, Extra] = {}
        # What some steps have made last, by their numbers.
        self.kept: dict[int, Chunk | None] = {}
        # Calls as (began, ended, number of the step).
        self.calls: list[tuple[float, float, int]] = []
        # What a look adds to the call that it is about, and to the one around that.
        self.look_inside = self.look_outside = 0.0
        self._calibrate()
        self.deadline = deadline

    def sheet(self) -> Sheet:
        return CostSheet(self)

    def extra(self, number: int) -> Extra:
        """What is known of a step."""
        found = self.extras.get(number)
        if found is None:
            found = self.extras[number] = Extra()
        return found

    def _calibrate(self) -> None:
        rounds = []
        for _ in range(_ROUNDS):
            sheet = CostSheet(self)
            began = perf_counter()
            for _ in range(_CALLS_OF_A_ROUND):
                sheet.call(-1, int, (), unsized)
            rounds.append((perf_counter() - began, sheet.spent[-1][1] * 1e-9))
        whole, inside = (seconds / _CALLS_OF_A_ROUND for seconds in min(rounds))
        self.look_inside, self.look_outside = inside, max(0.0, whole - inside)
        self.extras.clear()
        self.calls.clear()

    def settle(self, total: StepTotal, times: float) -> None:
        # Every turn is timed; only of elements on demand do some stand for all. What was timed for
        # few records then was done for few: many are read in other ways, as lanes side by side.
        super().settle(total, times)
        total.nanoseconds = min(total.nanoseconds, round(total.timed_nanoseconds * times))

    def keep(self, node: Node) -> None:
        """Keeps what a step has made last."""
        self.kept[self.number(node)] = None

    def kept_of(self, node: Node, most: int) -> list[Any]:
        """Elements that a step has made last."""
        chunk = self.kept.get(self.number(node))
        return [] if chunk is None else chunk.block.part(0, most).rows()

    def extras_by_node(self) -> dict[int, Extra]:
        """The same by the `id` of a step's node."""
        return {id(self.node_of(number)): extra for number, extra in self.extras.items()}

    def note_lock(self, seen: Sequence[tuple[float, bool]]) -> None:
        """Finds the steps that looks at the lock were about."""
        calls = sorted(self.calls)
        begins = [call[0] for call in calls]
        for at, taken in seen:
            place = bisect_right(begins, at) - 1
            for began, ended, number in reversed(calls[max(0, place - _DEEPEST) : place + 1]):
                if began <= at < ended:
                    extra = self.extra(number)
                    extra.looks += 1
                    extra.taken += taken
                    break


class CostSheet(Sheet):
    """One turn, in which each call is looked at by all clocks."""

    __slots__ = ("_inner_cpu", "_inner_looks", "_times")

    def __init__(self, times: CostTimes) -> None:
        super().__init__(None, times.label)
        self._times = times
        self._inner_cpu, self._inner_looks = 0.0, 0

    def call(self, number: int, function: Callable[..., T], args: Sequence[Any], sized: Sized) -> T:
        times = self._times
        if perf_counter() >= times.deadline:
            raise OutOfTimeError
        outer = self.inner, self._inner_cpu, self._inner_looks
        self.inner, self._inner_cpu, self._inner_looks = 0, 0.0, 0
        began = perf_counter()
        stopwatch = Stopwatch()
        made = function(*args)
        spent = stopwatch.read()
        ended = perf_counter()
        looks_took = self._inner_looks * times.look_outside + times.look_inside
        own = max(0.0, spent.seconds - self.inner * 1e-9 - looks_took)
        own_cpu = min(own, max(0.0, spent.cpu_seconds - self._inner_cpu - looks_took))
        records, at = sized(args, made)
        self.add(number, records, round(own * 1e9), at)
        times.calls.append((began, ended, number))
        extra = times.extra(number)
        extra.cpu_seconds += own_cpu
        extra.queued_seconds += spent.queued_seconds
        if extra.calls < _SIZED_FIRST or not extra.calls % _SIZED_EVERY:
            _note_size(extra, made)
        extra.calls += 1
        if number in times.kept and isinstance(made, Chunk):
            times.kept[number] = made
        self.inner = outer[0] + round(spent.seconds * 1e9)
        self._inner_cpu = outer[1] + spent.cpu_seconds
        self._inner_looks = outer[2] + 1
        return made


def _note_size(extra: Extra, made: Any) -> None:
    """Takes note of the size of an element that was made, if it is one."""
    size = bytes_of_one(made)
    if size is not None:
        extra.sized += 1
        extra.bytes += size
