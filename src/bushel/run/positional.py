"""The stream of a random-access dataset: its positions one after the other."""

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from bushel.block import Block, Failure
from bushel.errors import StateRangeError
from bushel.node import Drop, Expand, Node, walk
from bushel.options import ReadOptions
from bushel.run.inline import compile_node
from bushel.run.quota import DropQuota
from bushel.run.steps import KeptMarks
from bushel.run.stream import Chunk, Marks, State, Stream, Trickle, need_int
from bushel.run.threads import ReadAhead
from bushel.run.tune import LONG_SECONDS, BlockSize, ThreadChoice
from bushel.transforms.function import any_none


class _IndexMarks(Marks):
    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start

    def at(self, used: int) -> State:
        return {"next_index": self.start + used}


# With so many, what a pull costs beside the work no longer matters.
_MOST_TRICKLED = 64


class _Work:
    """Evaluates a range of positions. Holds no stream, so that threads hold none either."""

    def __init__(self, node: Node, choice: ThreadChoice) -> None:
        self._choice = choice
        evaluator = compile_node(node)
        self._run, self.trickle = evaluator.run, evaluator.trickle
        self.trickles = evaluator.trickles

    def __call__(self, start: int, count: int, stands_for: int = 1) -> Block:
        if not self._choice.undecided:
            return self._run(start, start + count)
        began, cpu_began = time.perf_counter(), time.thread_time()
        block = self._run(start, start + count)
        seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu_began
        self._choice.learn_work(stands_for * seconds, stands_for * cpu_seconds)
        return block


class PositionalStream(Stream):
    """Evaluates positions 0, 1, 2, ... in blocks, inline or on threads, whichever is faster."""

    def __init__(
        self,
        node: Node,
        read_options: ReadOptions,
        allow_nones: bool,
        quota: DropQuota,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._length = node.length()
        self._allow_nones = allow_nones
        self._quota = quota
        self._next = 0
        self._buffer_size = read_options.prefetch_buffer_size
        threads = min(read_options.num_threads, self._buffer_size)
        self._choice = ThreadChoice(threads, available_cores())
        self._work = _Work(node, self._choice)
        # What is asked for may be far more than should be evaluated at a time: threads that
        # read ahead make pulls look cheap.
        self._block_size = BlockSize()
        self._ahead: ReadAhead | None = None
        self._clock = clock
        self._last_delivery: float | None = None
        self._trickles = self._work.trickles
        # Elements that are made one by one, or were, since the last pull.
        self._trickle: Trickle | None = None
        self._progress = _Progress(None, 0, 0)
        self._trickled = 0
        # The position behind the last element handed out; those dropped since do not count.
        self._behind = 0

    def pull(self, want: int) -> Chunk | None:
        if self._trickle is not None:
            self._end_trickle(self._trickle)
        start = self._next
        block = self._next_block(want)
        if block is None:
            return None
        self._next = start + len(block) + (block.failure is not None)
        now = self._clock()
        if self._last_delivery is not None:
            self._choice.learn_cycle(len(block) + self._trickled, now - self._last_delivery)
        self._trickled = 0
        self._last_delivery = now
        marks = _IndexMarks(start)
        chunk = Chunk(block, marks) if self._allow_nones else self._without_nones(block, marks)
        count = len(chunk.block) + (chunk.block.failure is not None)
        if self._trickles and count:
            self._behind = chunk.marks.at(count)["next_index"]
        return chunk

    def _next_block(self, want: int) -> Block | None:
        if self._ahead is None and self._choice.threaded:
            self._read_ahead()
        if self._ahead is not None:
            if not self._choice.threaded:
                self._ahead.finish()
            block = self._ahead.take(self._block_size)
            if block is None or block.failure is not None:
                # After a failure reading goes on behind it, which the blocks ahead do not.
                self._drop_ahead()
            if block is not None:
                return block
        count = min(want, self._block_size.size, self._length - self._next)
        if count <= 0:
            return None
        if self._trickles:
            # One, to see how long it takes, in place of those that were made one by one.
            count = 1
        began = self._clock()
        block = self._work(self._next, count, 1 + self._trickled)
        seconds = self._clock() - began
        self._block_size.learn(count, seconds)
        if seconds > LONG_SECONDS and not self._choice.threaded:
            self._choice.look_again()
        return block

    def trickle(self) -> Trickle | None:
        if not self._trickles or self._trickle is not None or self._ahead is not None:
            return None
        if self._choice.threaded:
            return None
        start = self._next
        # Not beyond what the watch looks at together, so that it finds fault in the same place.
        most = min(_MOST_TRICKLED, self._quota.room)
        count = min(self._block_size.size, most, self._length - start)
        rows = self._work.trickle(start, start + count) if count > 1 else None
        if rows is None:
            return None
        quota = None if self._allow_nones else self._quota
        self._progress = _Progress(quota, self._behind, start)
        self._trickle = Trickle(filter(self._progress, rows), self._progress)
        return self._trickle

    def _end_trickle(self, trickle: Trickle) -> None:
        """Goes on behind the elements that were made one by one, be it all of them or not."""
        progress = self._progress
        progress.settle()
        end = progress.position + trickle.failed
        self._trickled = end - self._next
        self._next, self._behind = end, end if trickle.failed else progress.behind
        self._trickle = None

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
        kept = np.flatnonzero(keep)
        return Chunk(block.select(kept), KeptMarks(marks, kept, end))

    def limit(self, stop: int) -> None:
        """Ends the stream before position `stop`: for who takes all up to there at once."""
        self._length, self._trickles = stop, False

    def state(self) -> State:
        return {"next_index": self._next}

    def restore(self, state: State) -> None:
        index = need_int(state, "next_index")
        if index > self._length:
            raise StateRangeError(
                f"this state is at element {index}, and the dataset has only {self._length}."
            )
        self._drop_ahead()
        self._quota.reset()
        self._next = self._behind = index
        self._trickle, self._trickled = None, 0

    def state_for(self, index: int) -> State:
        if not 0 <= index <= self._length:
            raise StateRangeError(f"there is no element {index}; the dataset has {self._length}.")
        return {"next_index": index}

    def index_in(self, state: State) -> int:
        return need_int(state, "next_index")

    def start(self) -> None:
        if self._ahead is None and self._choice.may_use_threads:
            self._choice.threaded = True
            self._read_ahead()

    def _read_ahead(self) -> None:
        self._ahead = ReadAhead(
            self._work,
            self._choice.threads,
            self._buffer_size,
            self._block_size.size,
            self._next,
            self._length,
        )

    def close(self) -> None:
        self._drop_ahead(wait=True)

    def _drop_ahead(self, wait: bool = False) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.stop(wait)


class _Progress(Marks):
    """Tells the elements that are there from those that were dropped, and counts both.

    Nothing is called between counting an element and handing it out. So an interrupt, which
    strikes where something is called, comes before it or after it.
    """

    def __init__(self, quota: DropQuota | None, behind: int, start: int) -> None:
        # None where what was dropped is handed out, too.
        self._quota = quota
        # The position behind the last one that was there, and how many were dropped since.
        self.behind, self._dropped = behind, start - behind
        self._uncounted = start

    @property
    def position(self) -> int:
        """The position of the element that comes next."""
        return self.behind + self._dropped

    def __call__(self, row: Any) -> bool:
        if row is not None or self._quota is None:
            self.behind += self._dropped + 1
            self._dropped = 0
            return True
        self.settle(dropped=1)
        self._dropped += 1
        self._uncounted += 1
        return False

    def settle(self, dropped: int = 0) -> None:
        """Tells the watch what has come; raises what it finds."""
        kept = self.position - self._uncounted
        self._uncounted += kept
        if self._quota is not None:
            over = self._quota.count(np.repeat([True, False], [kept, dropped]))
            if over is not None:
                raise over[1]

    def at(self, used: int) -> State:
        return {"next_index": self.position + 1 if used else self.behind}


def dropping_step(node: Node) -> Node:
    """The step to name when nearly everything is dropped."""
    return next((step for step in walk(node) if isinstance(step, (Drop, Expand))), node)


def available_cores() -> int:
    """How many cores this process may use: by its affinity, and by the limit of a container."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # Not on every system.
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _cores_of_container())))


def _cores_of_container() -> float:
    """The share of the CPUs that a control group allows, in cores."""
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max") as file:
        quota, period = file.read().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    folder = "/sys/fs/cgroup/cpu/cpu.cfs_"
    with (
        suppress(OSError, ValueError),
        open(folder + "quota_us") as quota_file,
        open(folder + "period_us") as period_file,
    ):
        allowed = int(quota_file.read())
        return allowed / int(period_file.read()) if allowed > 0 else math.inf
    return math.inf
