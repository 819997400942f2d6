"""For statistics: counts all elements of each step, and decides which pulls are timed.

Only a pipeline that is to be measured is built with it; any other has nothing of this in it.

Records are counted, all of them: by arithmetic where positions are read, by streams as they are
pulled elsewhere. Times are taken in some turns only, where a turn (a block that is evaluated,
or elements that are made on demand) takes so little that looking at the clock would show; what
those turns took stands for the others. In between, steps call the very functions that they
would call otherwise. The time of a step is its own: that of the steps within it is left out.
"""

import functools
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

from bushel.core.derived_class import become
from bushel.core.node import Node, walk
from bushel.core.places import NOWHERE
from bushel.core.stream import Stream
from bushel.run.call_sizes import NO_ROW, Sized, by_row, is_measured
from bushel.run.counting_streams import counting_kind, handed_on
from bushel.run.record_counts import records_read
from bushel.run.spans import Spans
from bushel.run.step_sheet import Sheet, ThreadSheet
from bushel.run.step_total import SPENT, StepTotal
from bushel.run.timing_budget import looks_beside
from bushel.run.worker_figures import WorkerFigures

if TYPE_CHECKING:
    from bushel.run.positional import PositionalStream

T = TypeVar("T")
S = TypeVar("S", bound=Stream)

# Nanoseconds that it takes to time a call, to begin with it in a turn, and that for each function
# that is exchanged, and that is the first time; and the share of the time that this may be. (It is
# done so seldom that nothing of it is in the cache.)
_COST_OF_A_LOOK, _COST_OF_A_TURN, _COST_OF_AN_EXCHANGE = 1_500, 30_000, 800
_COST_OF_THE_FIRST_EXCHANGE = 3_000
_MOST_SHARE = 0.001
_MOST_TURNS = 1024
# Turns after which it is asked again whether one may be timed.
_MOST_PUT_OFF = 32
# Tasks of which what workers told is added at a time: that takes little for each when it is for
# many, and nothing while the loop waits for the outcome of one.
_MOST_TOLD = 256
# Of elements that are made on demand, how many are timed in a turn.
_ROWS_OF_A_TURN = 4


class StepTimes:
    """The counts and times of all steps of one pipeline, in this process and in its workers."""

    # The share of the time that it may take to look at the clock.
    most_share = _MOST_SHARE

    def __init__(self) -> None:
        # Whoever holds it may be the one in which garbage is collected, and a turn ends by that.
        self._lock = threading.RLock()
        self._numbers: dict[int, int] = {}
        self._totals: list[StepTotal] = []
        # What workers have told, and is not in the totals yet.
        self._told: deque[tuple[Sequence[int], bytes]] = deque()
        # Where a trace is wanted.
        self.spans: Spans | None = None
        # When it began, and about what looking at the clock has taken since, in nanoseconds; and
        # until when it need not be asked again whether another turn may be timed.
        self._began, self._looked = perf_counter_ns(), 0
        self._not_before = 0
        # How many sheets there were.
        self._sheets = 0
        # How many turns are being timed now, and functions that are exchanged for it, as
        # (evaluator, attribute, function, the same with a look at the clock); and those of which
        # nobody has made the latter yet, as (step, evaluator, attribute, what its calls are about).
        self._timing = 0
        # Whether there are any, and what it takes to begin with the last one.
        self.is_timing, self._cost_of_this = False, _COST_OF_A_TURN
        self._functions: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []
        self._looked_at: list[tuple[Node, Any, str, Sized]] = []
        self._streams: list[weakref.ref[Stream]] = []
        # Streams of positions, and the datasets that they read.
        self._positions: list[tuple[weakref.ref[PositionalStream], Node]] = []
        # The `id` of steps of parts that are evaluated together, and how many parts those are.
        self._together: set[int] = set()
        self.parts_together = 0
        # What tells of threads that streams may have, and of worker processes.
        self.threads: list[Callable[[], str]] = []
        self.workers: list[Callable[[], WorkerFigures]] = []

    @functools.cached_property
    def thread(self) -> ThreadSheet:
        """The sheet of each thread: made with the first turn that is timed."""
        return ThreadSheet()

    def sheet(self) -> Sheet:
        """A sheet for one turn."""
        self._sheets += 1
        return Sheet(self.spans, self.label, has_sizes=is_measured(self._sheets))

    def number(self, node: Node, where: str = "here") -> int:
        """The number of a step."""
        number = self._numbers.get(id(node))
        if number is not None:
            return number
        with self._lock:
            if id(node) not in self._numbers:
                self._totals.append(StepTotal(node, where))
                self._numbers[id(node)] = len(self._totals) - 1
            return self._numbers[id(node)]

    def label(self, number: int) -> str:
        """The name of a step, or of what is waited for."""
        total = self._totals[number]
        return f"(waiting for {total.waits_for})" if total.waits_for else total.node.label

    def is_traced(self) -> bool:
        """Whether a trace is wanted now."""
        return self.spans is not None

    def trace(self, spans: Spans | None) -> None:
        """Has every turn timed from now on, with its spans; or as few as before."""
        self.spans = spans
        if spans is None:
            return
        for reference in self._streams:
            stream = reference()
            if stream is not None and vars(stream).get("_measured_turns") is not None:
                vars(stream)["_measured_left"] = 1

    def node_of(self, number: int) -> Node:
        """The step with a number."""
        return self._totals[number].node

    def waiting(self, waits_for: str) -> int:
        """The number of the time that goes by while somebody else works."""
        with self._lock:
            self._totals.append(StepTotal(NOWHERE, "here", waits_for=waits_for))
            return len(self._totals) - 1

    def together(self, nodes: Sequence[Node]) -> None:
        """Takes note that parts are evaluated together, so that their steps are not timed."""
        with self._lock:
            self.parts_together += len(nodes)
            for node in nodes:
                self._together.update(id(step) for step in walk(node))

    def look_at(self, node: Node, holder: Any, attribute: str, sized: Sized) -> None:
        """Has a function timed, in the turns that are; see `clocked`."""
        self._looked_at.append((node, holder, attribute, sized))

    def _settle_functions(self) -> None:
        """Makes what is exchanged of the functions that are timed: when it is wanted first."""
        for node, holder, attribute, sized in self._looked_at:
            function = getattr(holder, attribute)
            timed = self.clocked(self.number(node), function, sized)
            self._functions.append((holder, attribute, function, timed))
        self._looked_at.clear()

    def clocked(self, number: int, function: Callable[..., T], sized: Sized) -> Callable[..., T]:
        """A function of a step that is timed; `sized` tells of its arguments what it is about."""
        thread = self.thread

        def call(*args: Any) -> T:
            sheet = thread.sheet
            if sheet is None:
                return function(*args)
            return sheet.call(number, function, args, sized)

        return call

    def watch(self, node: Node | None, stream: S) -> S:
        """Has the pulls of a stream counted: as those of a step, or as waiting for workers."""
        number = self.waiting("workers") if node is None else self.number(node)
        become(stream, counting_kind, _measured_as=number, _measured_by=self)
        self._streams.append(weakref.ref(stream))
        return stream

    def take_turns(self, stream: Stream) -> None:
        """Has each pull of a stream that is watched be a turn: nobody else pulls it."""
        vars(stream).update(
            _measured_turns=TimedTurns(self), _measured_left=1, _measured_sessions=TimedTurns(self)
        )

    def watch_positions(self, stream: "PositionalStream", dataset: Node) -> None:
        """Counts what is read of a dataset by the positions that a stream of it tells."""
        self._positions.append((weakref.ref(stream), dataset))

    def add(self, numbers: Sequence[int], spent: bytes) -> None:
        """Adds what a worker tells of steps, which have these numbers here, as `SPENT`."""
        with self._lock:
            self._told.append((numbers, spent))
            if len(self._told) >= _MOST_TOLD:
                self._add_told()

    def _add_told(self) -> None:
        # One by one, so that an interrupt in the midst of it has none added twice.
        while self._told:
            numbers, spent = self._told.popleft()
            for place, records, *timed, sized, nbytes in SPENT.iter_unpack(spent):
                total = self._totals[numbers[place]]
                total.where = "workers"
                total.records += records
                if timed[0] or timed[1]:
                    total.add(*timed)
                total.size(sized, nbytes)

    @contextmanager
    def timing(self, sheet: Sheet) -> Iterator[None]:
        """The time in which a thread takes the times of a turn."""
        thread = self.thread
        self.exchange(1)
        thread.sheet = sheet
        try:
            yield
        finally:
            thread.sheet = None
            self.exchange(-1)

    def exchange(self, turns: int) -> None:
        """Takes note that so many more turns are timed, or fewer: functions are exchanged for it.

        Those with a look at the clock only pass on what comes from a thread without a sheet.
        """
        with self._lock:
            was, self._timing = self._timing, self._timing + turns
            self.is_timing = self._timing > 0
            if bool(was) != bool(self._timing):
                if not was:
                    self._cost_of_this = self.cost_of_a_turn
                    self._settle_functions()
                self._exchange(timed=bool(self._timing))

    def _exchange(self, timed: bool) -> None:
        for holder, attribute, function, with_clock in self._functions:
            setattr(holder, attribute, with_clock if timed else function)

    def on_threads(self, work: Callable[..., T]) -> Callable[..., T]:
        """Work that threads do; each call of it is a turn."""
        thread, make = threading.local(), functools.partial(TimedTurns, self)

        def call(*args: Any) -> T:
            turns = getattr(thread, "turns", None)
            if turns is None:
                turns = thread.turns = make()
            return turns.alone(work, *args)

        return call

    def enter(self, sheet: Sheet, turns: int) -> None:
        """Adds a turn that stands for so many."""
        with self._lock:
            for number, (records, nanoseconds, longest, at) in sheet.spent.items():
                self._totals[number].add(records, nanoseconds, longest, at, turns)
            for number, measured in (sheet.sizes or {}).items():
                self._totals[number].size(*measured)

    @property
    def cost_of_a_turn(self) -> int:
        """Nanoseconds that it takes to begin with a turn that is timed, and to end it."""
        first = _COST_OF_THE_FIRST_EXCHANGE * len(self._looked_at)
        return _COST_OF_A_TURN + _COST_OF_AN_EXCHANGE * len(self._functions) + first

    def cost_of(self, sheet: Sheet) -> int:
        """Nanoseconds that it took to time a turn, of which note is taken."""
        cost = self._cost_of_this + sheet.looks * _COST_OF_A_LOOK
        before, self._looked = self._looked, self._looked + cost
        share = self.most_share * (perf_counter_ns() - self._began)
        looks_beside.took(max(0.0, self._looked - max(share, before)))
        return cost

    def may_look(self) -> bool:
        """Whether another turn may be timed now, by what it has taken to time turns so far."""
        now = perf_counter_ns()
        if self.spans is not None:
            return True
        if now < self._not_before:
            return False
        own = self._began + int((self._looked + self.cost_of_a_turn) / self.most_share)
        if own <= now or looks_beside.is_left(now):
            return True
        self._not_before = min(own, looks_beside.comes_at)
        return False

    def ready_blocks(self) -> int:
        """How many blocks threads have made that wait to be taken."""
        streams = (reference() for reference, _ in self._positions)
        return sum(stream.ready_blocks() for stream in streams if stream is not None)

    def totals(self) -> list[StepTotal]:
        """What every step has done so far."""
        with self._lock:
            if not self._timing:  # Otherwise it is done, and the functions are others now.
                self._settle_functions()
            self._add_told()
            totals = [total.copied() for total in self._totals]
        top = 0
        for reference in self._streams:
            stream = reference()
            if stream is not None:
                top = vars(stream)["_measured_as"]
                totals[top].records += handed_on(stream)
        for of_positions, dataset in self._positions:
            read = of_positions()
            ranges = [] if read is None else read.positions_read()
            for node, count in records_read(dataset, ranges):
                number = self._numbers.get(id(node))
                if number is not None:
                    totals[number].records += count
        # Where nobody counts, what was timed stands for as much as it does in the last stream.
        times = totals[top].records / max(1, totals[top].timed_records) if totals else 1.0
        for total in totals:
            self.settle(total, times)
        return [total for total in totals if id(total.node) not in self._together]

    def settle(self, total: StepTotal, times: float) -> None:
        """Finds the time of all records; see `StepTotal.settle`."""
        total.settle(times)


class TimedTurns:
    """Turns of one caller, some of which are timed."""

    __slots__ = ("_every", "_most", "_put_off", "_times", "left")

    def __init__(self, times: StepTimes) -> None:
        self._times = times
        # One turn of so many is timed, and so many are left until then, with that one; no more than
        # that. It grows step by step: the first turns are of few elements, and tell little of later
        # ones.
        self._every = self.left = self._most = 1
        # Those that it was to be, and was not, as it would have taken too long.
        self._put_off = 0

    def alone(self, work: Callable[..., T], *args: Any) -> T:
        """Works, as a turn of its own."""
        self.left -= 1
        if (self.left > 0 and self._times.spans is None) or not self.may_look():
            return work(*args)
        # What fails is not timed; another turn is.
        self.left = self._every
        made, self.left = self.timed(work, *args)
        return made

    def timed(self, work: Callable[..., T], *args: Any) -> tuple[T, int]:
        """Works, in a turn that is timed; and tells how many turns later the next one is."""
        sheet = self.sheet()
        began = perf_counter_ns()
        with self._times.timing(sheet):
            made = work(*args)
        return made, self._enter(sheet, perf_counter_ns() - began)

    @property
    def spans(self) -> Spans | None:
        """Where a trace is wanted."""
        return self._times.spans

    def sheet(self) -> Sheet:
        """A sheet for the next turn."""
        return self._times.sheet()

    def may_look(self) -> bool:
        """Whether a turn that is to be timed may be; if not, a later one is to be.

        That is the next one, and four times as far each time that it is asked in vain.
        """
        if self._times.may_look():
            return True
        self.left = min(3 * self._put_off + 1, _MOST_PUT_OFF)
        self._put_off += self.left
        return False

    def begun(self, sheet: Sheet, work: Callable[[], T]) -> T:
        """Begins with a turn that is timed, and goes on elsewhere."""
        with self._times.timing(sheet):
            return work()

    def timed_rows(self, number: int, rows: Iterator[T], sheet: Sheet) -> Iterator[T]:
        """The first elements that the stream of a step makes on demand, in a turn that was begun.

        Those after them are not timed.
        """
        elapsed, thread = 0, self._times.thread
        self._times.exchange(1)
        try:
            while sheet.looks < _ROWS_OF_A_TURN or sheet.spans is self.spans is not None:
                sheet.inner, thread.sheet = 0, sheet
                try:
                    began = perf_counter_ns()
                    row: Any = sheet.call(number, next, (rows, NO_ROW), by_row)
                finally:
                    thread.sheet = None
                elapsed += perf_counter_ns() - began
                if row is NO_ROW:
                    return
                yield row
                del row  # While the user works, nothing is kept but what the user has.
        finally:
            self._times.exchange(-1)
            self.left = self._enter(sheet, elapsed)

    def _enter(self, sheet: Sheet, elapsed: int) -> int:
        """Adds a turn; tells how many turns later the next one is."""
        if sheet.spent and elapsed:
            self._times.enter(sheet, self._every + self._put_off)
            wanted = math.ceil(self._times.cost_of(sheet) / (self._times.most_share * elapsed))
            self._every, self._put_off = min(max(1, wanted), self._most), 0
            self._most = min(2 * self._most, _MOST_TURNS)
        return self._every if self.spans is None else 1
