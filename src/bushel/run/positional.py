"""The stream of a random-access dataset: its positions one after the other."""

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from operator import length_hint
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
        # Elements made one by one since the last pull.
        self._trickled = 0
        self._trickles = self._work.trickles
        self._presence = _Presence(self._quota)

    def pull(self, want: int) -> Chunk | None:
        if self._trickled:
            self._presence.settle()
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
        if self._allow_nones:
            return Chunk(block, marks)
        return self._without_nones(block, marks)

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
        if not self._trickles or self._trickled or self._ahead is not None:
            return None
        if self._choice.threaded:
            return None
        start = self._next
        count = min(self._block_size.size, _MOST_TRICKLED, self._length - start)
        trickled = self._work.trickle(start, start + count) if count > 1 else None
        if trickled is None:
            return None
        rows, left = trickled
        self._trickled = length_hint(left)
        self._next += self._trickled
        if not self._allow_nones:
            rows = filter(self._presence, rows)
        return Trickle(rows, left, _IndexMarks(start))

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
        self._next, self._trickled = index, 0
        self._presence = _Presence(self._quota)

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


class _Presence:
    """Tells the elements that are there from those that were dropped, and counts both."""

    def __init__(self, quota: DropQuota) -> None:
        self._quota = quota
        self._kept = 0

    def __call__(self, row: Any) -> bool:
        if row is not None:
            self._kept += 1
            return True
        self.settle(dropped=1)
        return False

    def settle(self, dropped: int = 0) -> None:
        """Tells the watch what has come; raises what it finds."""
        answers = np.repeat([True, False], [self._kept, dropped])
        self._kept = 0
        over = self._quota.count(answers)
        if over is not None:
            raise over[1]


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
