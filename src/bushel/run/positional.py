"""The stream of a random-access dataset: its positions in order, inline or on threads."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.block_size import FEW, TARGET_SECONDS, BlockSize
from bushel.core.machine import available_cores
from bushel.core.node import Guard, Node, leaves_out, walk
from bushel.core.options import ReadOptions
from bushel.core.state import State
from bushel.core.state_fields import Fields, Whole
from bushel.core.stream import Chunk, Marks, OnDemand, Stream
from bushel.errors import StateRangeError
from bushel.on_error.bad_records import BadRecord
from bushel.on_error.budget import BadCounts, Ledger
from bushel.run.allocator import keep_freed_memory
from bushel.run.call_sizes import unsized
from bushel.run.fixed_threads import FixedThreads, threads_counted_on
from bushel.run.long_chains import least_block, seconds_beside_work
from bushel.run.on_demand_progress import OnDemandProgress
from bushel.run.quota import DropQuota
from bushel.run.range_evaluator import RangeEvaluator
from bushel.run.shared_threads import Seat, SharedThreads, ThreadsOfStreams
from bushel.run.step_streams import KeptMarks
from bushel.run.step_times import StepTimes
from bushel.run.thread_time import Stopwatch
from bushel.run.threads import Evaluate, ReadAhead
from bushel.transforms.function import any_none


class _IndexMarks(Marks):
    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start

    def at(self, used: int) -> State:
        return {"next_index": self.start + used}


class _CountingMarks(_IndexMarks):
    """The same for a dataset with guards, with counts of bad records."""

    __slots__ = ("_bad", "_counts")

    def __init__(self, start: int, counts: list[int], bad: list[tuple[int, BadRecord]]) -> None:
        super().__init__(start)
        self._counts, self._bad = counts, [(index, record.guard) for index, record in bad]

    def at(self, used: int) -> State:
        counts = list(self._counts)
        for index, guard in self._bad:
            counts[guard] += index < used
        return {"next_index": self.start + used, "bad": counts}


# Seconds that the first blocks of a trial of threads take, about.
_FIRST_SECONDS = 0.00025
# Most elements on demand between two pulls: with more, the cost of a pull no longer matters.
_MOST_ON_DEMAND = 1024
# Pulls of one element in a row, after which elements are assumed to be taken one by one.
_PULLS_OF_ONE = 4


class PositionalStream(Stream):
    """Evaluates positions 0, 1, 2, ... in blocks, inline or on threads, whichever is faster."""

    def __init__(
        self,
        node: Node,
        read_options: ReadOptions,
        allow_nones: bool,
        quota: DropQuota,
        clock: Callable[[], float] = time.perf_counter,
        bad_records: list[BadRecord] | None = None,
        sharing: int = 1,
        block_seconds: float = TARGET_SECONDS,
        threads: ThreadsOfStreams | None = None,
        times: StepTimes | None = None,
    ) -> None:
        """`sharing` processes share the cores; a block takes about `block_seconds`.

        `threads` are the threads that it may share with other streams. With `times`, the steps
        are counted and timed.
        """
        keep_freed_memory()
        self.node = node
        self._length = node.length()
        self._allow_nones = allow_nones
        self._quota = quota
        self._next = 0
        self._threads = (threads or ThreadsOfStreams()).of(
            read_options, lambda: available_cores() / sharing
        )
        counted_on = threads_counted_on(node, read_options)
        if counted_on:
            self._threads = SharedThreads(read_options, counted_on)
            self._threads.choice = FixedThreads(counted_on)
        self._choice = self._threads.choice
        self._chooses = self._choice.may_use_threads
        self._seat = Seat()
        self._in_pieces = False
        self._least = least_block(node)
        # Number of elements that a later step needs for one element of its own, such as a batch.
        self.together = 0
        self._work = RangeEvaluator(node, times)
        self._work_on_threads: Evaluate = self._work
        self._take_ahead = ReadAhead.take
        # Ranges of positions that were delivered before the last restore, with statistics.
        self._ranges: list[tuple[int, int]] | None = None
        self._since = 0
        # For those who want to know what threads do, from when there are some on.
        self._times_of_threads = times
        if times is not None:
            self._ranges = []
            times.watch_positions(self, node)
        self._ledger = Ledger(self._work.guards)
        # In a worker: bad records for the ledger of the trainer.
        self._bad_records = bad_records
        # A pull may ask for far more elements than a block should have, since prefetching
        # threads make pulls look cheap.
        seconds = max(block_seconds, seconds_beside_work(node))
        self._block_size = BlockSize(least=self._least, target_seconds=seconds, few=FEW)
        self._ahead: ReadAhead | None = None
        # A block with more elements than were asked for, and the number of delivered elements.
        self._rest: _Rest | None = None
        self._delivered = 0
        self._clock = clock
        self._prefers_on_demand = self._work.prefers_on_demand
        # Number of most recent pulls in a row that were of one element each.
        self._pulls_of_one = 0
        # The elements on demand since the last pull, and how far they were taken.
        self._on_demand: OnDemand | None = None
        self._progress = OnDemandProgress(None, 0, 0)
        self._made_on_demand, self._on_demand_seconds = 0, 0.0
        self._since_on_demand: Stopwatch | None = None
        # Seconds per element of the last block that was timed.
        self._seconds_each = 0.0
        # The position after the last delivered element; elements dropped since do not count.
        self._behind = 0

    def pull(self, want: int) -> Chunk | None:
        if self._on_demand is not None:
            self._end_on_demand(self._on_demand)
        self._pulls_of_one = self._pulls_of_one + 1 if want == 1 else 0
        start = self._next
        # Times of elements from `give` are noted by the caller, for many streams at once.
        notes = self._chooses and not self._is_given
        if notes:
            self._threads.asked(self._clock())
        block = self._next_block(want)
        if block is None:
            return None
        self._next = start + len(block) + (block.failure is not None)
        if notes:
            self._delivered += len(block) + self._made_on_demand
            if self._rest is None:
                made_in_between = self._made_on_demand * self._seconds_each
                self._threads.delivered(self._delivered, self._clock(), made_in_between)
                self._delivered = 0
        self._made_on_demand = 0
        marks = _IndexMarks(start)
        if self._work.guards:
            block, marks = self._entered(block, start)
        chunk = Chunk(block, marks) if self._allow_nones else self._without_nones(block, marks)
        count = len(chunk.block) + (chunk.block.failure is not None)
        if count and (self._prefers_on_demand or self._pulls_of_one):
            self._behind = chunk.marks.at(count)["next_index"]
        return chunk

    @property
    def guards(self) -> list[Guard]:
        """The guards of the dataset, by their numbers."""
        return self._work.guards

    def _entered(self, block: Block, start: int) -> tuple[Block, _IndexMarks]:
        """Counts the bad records of a block; ends the block where the budget is used up."""
        ledger, bad = self._ledger, block.bad or []
        marks = _CountingMarks(start, list(ledger.counts), bad)
        for place, (index, record) in enumerate(bad):
            if self._bad_records is not None:
                self._bad_records.append(record)
                ledger.counts[record.guard] += 1
                continue
            error = ledger.enter(record)
            if error is None:
                continue
            for further, another in bad[place + 1 :]:
                if further == index:  # They belong to the same failed element.
                    ledger.enter(another)
            block = block.part(0, index)
            block.failure = Failure(error)
            self._drop_ahead()
            self._next = start + index + 1
            break
        return block, marks

    def _next_block(self, want: int) -> Block | None:
        rest = self._rest
        if rest is None:
            block = self._evaluated(want)
            if block is None or self._least == 1 or len(block) <= want:
                return block
            # Steps after this one may take long for each element, so they get a few at a time.
            rest = self._rest = _Rest(block)
        portion = rest.take(want)
        if rest.taken:
            self._rest = None
        return portion

    def _evaluated(self, want: int) -> Block | None:
        while self._next < self._length or self._ahead is not None:
            if self._ahead is None:
                if not self._choice.threaded:
                    break
                self._read_ahead()
            assert self._ahead is not None
            block = self._taken(self._ahead)
            if block is not None:
                return block
        count = min(max(want, self._least), self._block_size.size, self._length - self._next)
        if count <= 0:
            if not self._in_pieces:
                self._seat.leave()
            return None
        if self._prefers_on_demand:
            # One element, to measure its time for all elements that were made on demand.
            count = 1
        return self._made_inline(count)

    def _taken(self, ahead: ReadAhead) -> Block | None:
        """The next block of the threads; None if they make no more blocks."""
        if not self._choice.threaded or ahead.threads != self._choice.threads:
            ahead.finish()
            self._threads.left_over()
        began = time.thread_time() if self._choice.watching else None
        block = self._take_ahead(ahead, self._block_size)
        if ahead.spent is not None and block is not None:
            handing = ahead.handing_seconds
            if handing is not None and began is not None:
                handing += time.thread_time() - began
            self._choice.learn_work(len(block), ahead.spent, ahead.threads, handing)
        if block is None or block.failure is not None:
            # The stream goes on after a failure; the prefetched blocks do not.
            self._drop_ahead()
        return block

    def _made_inline(self, count: int) -> Block:
        stopwatch = Stopwatch() if self._choice.watching else None
        began = self._clock()
        block = self._threads.evaluate(self._work, self._next, count)
        seconds = self._clock() - began
        if stopwatch is not None:
            spent, elements = stopwatch.read(), len(block)
            if self._made_on_demand and self._since_on_demand is not None:
                elements *= 1 + self._made_on_demand
                spent = spent.standing_for(1 + self._made_on_demand, self._since_on_demand.read())
            self._choice.learn_work(elements, spent)
            self._seconds_each = spent.seconds / max(1, elements)
        # A single element takes longer than each of many, so the elements on demand count, too.
        of_many = self._made_on_demand if self._on_demand_seconds else 0
        self._block_size.learn(of_many + count, self._on_demand_seconds + seconds)
        self._on_demand_seconds = 0.0
        if self._least > 1 and len(block) and self._block_size.wants_sample():
            # The block may have more elements than were asked for, so its bytes are bounded.
            self._block_size.limit_bytes(block.part(0, 1).rows()[0])
        return block

    def on_demand(self) -> OnDemand | None:
        if self._on_demand is not None or self._ahead is not None or self._choice.threaded:
            return None
        if self._choice.looking:
            return None  # With elements on demand, work and user time cannot be separated.
        if not self._prefers_on_demand and not self._may_go_one_by_one():
            return None
        start = self._next
        # Not beyond the elements that the quota checks together, so that it raises at the same one.
        most = min(_MOST_ON_DEMAND, self._quota.room)
        count = min(self._block_size.size, most, self._length - start)
        make = self._work.on_demand if self._prefers_on_demand else self._work.one_by_one
        rows = make(start, start + count) if count > 1 else None
        if rows is None:
            return None
        quota = None if self._allow_nones else self._quota
        self._progress = OnDemandProgress(quota, self._behind, start)
        self._on_demand = OnDemand(filter(self._progress, rows), self._progress.take_marks)
        if self._chooses:
            self._since_on_demand = Stopwatch()
        return self._on_demand

    def _may_go_one_by_one(self) -> bool:
        """Whether elements are pulled one by one, as large ones are.

        Then elements on demand save the cost of a pull, and reuse the memory of the last one.
        """
        if self._least > 1 or self._in_pieces or self._rest is not None or self._work.guards:
            return False
        return self._pulls_of_one >= _PULLS_OF_ONE

    def _end_on_demand(self, on_demand: OnDemand) -> None:
        """Goes on after the elements on demand that were taken, which may not be all."""
        progress = self._progress
        progress.settle()
        end = progress.position + on_demand.failed
        self._made_on_demand, self._on_demand_seconds = end - self._next, on_demand.seconds
        self._next, self._behind = end, end if on_demand.failed else progress.behind
        self._on_demand = None

    def _without_nones(self, block: Block, marks: _IndexMarks) -> Chunk:
        values = block.values
        if not isinstance(values, list) or not any_none(values):
            over = self._quota.count_kept(len(block))
            if over is None:
                return Chunk(block, marks)
            keep = np.ones(len(block), dtype=bool)
        else:
            keep = np.array([value is not None for value in values], dtype=bool)
            over = self._quota.count(keep)
        end = len(block) + 1
        if over is not None:
            end, error = over
            keep = keep[:end]
            block = block.part(0, end)
            block.failure = Failure(error)
            self._drop_ahead()
            self._next = marks.start + end
            if self._work.guards:
                # The elements after the failure will be evaluated, and counted, again.
                self._ledger.restore(marks.at(end)["bad"])
        kept = np.flatnonzero(keep)
        return Chunk(block.select(kept), KeptMarks(marks, kept, end))

    def upcoming(self, count: int) -> tuple[int, int] | None:
        """Up to `count` next positions for the caller to evaluate; None if it may not."""
        busy = self._rest is not None or self._ahead is not None or self._choice.threaded
        if busy or self._prefers_on_demand or self._least > 1 or self._work.guards:
            return None
        stop = min(self._next + count, self._length)
        return (self._next, stop) if stop > self._next else None

    def give(self, block: Block) -> None:
        """Takes a block that the caller evaluated at the positions that are `upcoming`."""
        self._rest = _Rest(block)

    @property
    def _is_given(self) -> bool:
        """Whether there are elements left from `give`."""
        return self._rest is not None and self._least == 1

    @property
    def threads(self) -> SharedThreads | None:
        """The threads that it may use, perhaps shared with other streams."""
        return self._threads if self._chooses else None

    def limit(self, stop: int) -> None:
        """Ends the stream before position `stop`, for a caller that takes all elements up to it.

        The caller will take the elements after `stop` as well, with a new limit.
        """
        self._length, self._prefers_on_demand, self._in_pieces = stop, False, True

    def state(self) -> State:
        return self._state(self._next, self._ledger.counts)

    def _state(self, index: int, counts: list[int]) -> State:
        if not self._work.guards:
            return {"next_index": index}
        return {"next_index": index, "bad": list(counts)}

    def positions_read(self) -> list[tuple[int, int]]:
        """The ranges of positions that were delivered."""
        end = self._next if self._on_demand is None else self._progress.position
        return [*(self._ranges or ()), (self._since, end)]

    def restore(self, state: State) -> None:
        index = state["next_index"]
        if self._ranges is not None:
            self._ranges, self._since = self.positions_read(), index
        self._ledger.restore(state.get("bad", [0] * len(self._work.guards)))
        self._drop_ahead()
        self._quota.reset()
        self._threads.interrupted()
        self._next = self._behind = index
        self._on_demand, self._pulls_of_one = None, 0
        self._made_on_demand, self._on_demand_seconds = 0, 0.0

    def fields(self) -> Fields:
        return position_fields(self._length, self._work.guards)

    def most_before(self, state: State | None) -> int | None:
        return self._length if state is None else state["next_index"]

    def state_for(self, index: int) -> State:
        if not 0 <= index <= self._length:
            raise StateRangeError(f"there is no element {index}; the dataset has {self._length}.")
        return self._state(index, [0] * len(self._work.guards))

    def index_in(self, state: State) -> int:
        index: int = state["next_index"]
        return index

    def ready_blocks(self) -> int:
        """Number of finished blocks of threads that were not taken yet."""
        ahead = self._ahead
        return 0 if ahead is None else ahead.ready_blocks

    def needed_together(self, count: int) -> None:
        self.together = count

    def start(self) -> None:
        if self._ahead is None and self._choice.may_use_threads:
            self._choice.begin_threaded()
            self._read_ahead()

    def _read_ahead(self) -> ReadAhead:
        self._rest = None
        times, self._times_of_threads = self._times_of_threads, None
        if times is not None:
            self._work_on_threads = times.on_threads(self._work)
            self._take_ahead = times.clocked(times.waiting("threads"), ReadAhead.take, unsized)
        self._seat.take(self._threads.pool())
        size = self._block_size
        # In a trial, very small blocks at first: the size of elements is not known yet.
        first = size.within(_FIRST_SECONDS) if self._choice.trying else size.size
        self._ahead = self._threads.read_ahead(
            self._work_on_threads, first, self._next, self._length, self._least, self.together
        )
        return self._ahead

    def close(self) -> None:
        self._seat.leave()
        self._drop_ahead(wait=True)
        self._threads.wait()

    def _drop_ahead(self, wait: bool = False) -> None:
        ahead, self._ahead = self._ahead, None
        self._rest = None
        if not self._choice.threaded:
            self._seat.leave()
        if ahead is not None:
            ahead.stop(wait)


class _Rest:
    """A block that is delivered in portions."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._used = 0
        self.taken = False

    def take(self, want: int) -> Block:
        """The next `want` elements; the last portion has the failure of the block."""
        block, start = self._block, self._used
        self._used = stop = min(start + max(1, want), len(block))
        self.taken = stop == len(block)
        portion = block.part(start, stop)
        if self.taken:
            portion.failure = block.failure
        if block.bad:
            # Bad records of an element that failed belong to the last portion.
            end = stop + self.taken
            portion.bad = [(at - start, record) for at, record in block.bad if start <= at < end]
        return portion


def position_fields(length: int, guards: Sequence[Guard] = ()) -> Fields:
    """The state of a stream of `length` positions: the next one, and counts of bad records."""
    beyond = "this state is at element {value}, and the dataset has only {most}."
    index = Whole(length, beyond=beyond)
    if not guards:
        return Fields(next_index=index)
    return Fields(next_index=index, bad=BadCounts(len(guards), optional=True))


def dropping_step(node: Node) -> Node:
    """The step that the error names when nearly everything is dropped."""
    return next((step for step in walk(node) if leaves_out(step)), node)
