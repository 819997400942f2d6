"""Streams whose elements workers make: tasks under way, delivered in order, or the local copy.

Their states are those of the streams that they replace. So a state can be taken here and restored
in a process without workers, and the other way round.
"""

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.block_size import SOON_SECONDS, BlockSize
from bushel.core.node import Guard, Node
from bushel.core.state import State, innermost_index, replaced
from bushel.core.state_fields import Fields
from bushel.core.stream import Chunk, Marks, Stream, beginning_of
from bushel.errors import StateError
from bushel.lanes.ahead import Reached
from bushel.on_error.budget import Ledger, bad_records_in, with_bad_records
from bushel.run.quota import DropQuota
from bushel.run.step_times import StepTimes
from bushel.workers.engine import Engine
from bushel.workers.fragment import TASK_SECONDS, Outcome, is_within_one, pack_block
from bushel.workers.remote_marks import FailureMarks, PlacedMarks, RecountedMarks
from bushel.workers.task import Task

# A trainer that takes many elements at a time, and does something else in between, needs more tasks
# under way than one that takes them steadily. It gets more if it waits for a worker that was idle
# before, within the engine's limits. Waits below these seconds count as none.
_NO_WAIT_SECONDS = 0.001
_IDLE = 0.1
# If elements wait for something, a worker waits for as many side by side as it has threads. A task
# has that many elements, up to this number of bytes.
_MOST_BYTES_SIDE_BY_SIDE = 1 << 22


def _task_size(most_bytes: int, under_way: int, first: int = 1, least: int = 1) -> BlockSize:
    return BlockSize(
        first=first,
        most_bytes=most_bytes,
        least=least,
        target_seconds=TASK_SECONDS,
        under_way=under_way,
    )


class TimesOfFragment:
    """The place where the outcomes of one fragment add the statistics of its steps."""

    def __init__(self, times: StepTimes, nodes: Sequence[Node]) -> None:
        """`nodes` are those of the pipeline, in the order of the fragment's."""
        self._times, self._nodes = times, nodes
        self._numbers = [times.number(node, "workers") for node in nodes]

    def enter(self, outcome: Outcome) -> None:
        if outcome.steps:
            self._times.add(self._numbers, outcome.steps)
        spans = self._times.spans
        if outcome.spans is not None and spans is not None:
            positions = outcome.positions
            first = int(positions[0]) if len(positions) else -1
            spans.add_task(outcome.spans, [node.label for node in self._nodes], first)


class _Remote(Stream):
    """Elements made by workers; its `local` copy is the same stream without workers.

    The local copy interprets states, and takes over if a plan does not fit.
    """

    def __init__(
        self,
        engine: Engine,
        fragment: int,
        local: Stream,
        quotas: Sequence[DropQuota],
        times: TimesOfFragment | None,
    ) -> None:
        self._engine, self._fragment, self._times = engine, fragment, times
        self._local, self._quotas = local, quotas
        self._instead: Stream | None = None
        self._block_size = _task_size(engine.most_task_bytes, engine.depth)
        self._place: tuple[Marks, int] = (beginning_of(local), 0)

    @abstractmethod
    def _fill(self) -> None:
        """Sends as many tasks as keep the workers busy."""

    @abstractmethod
    def _cancel(self) -> None:
        """Drops the tasks that are under way."""

    def _learn(self, task: Task, count: int, outcome: Outcome) -> None:
        if self._times is not None:
            self._times.enter(outcome)
        self._block_size.learn(count, outcome.seconds)
        self._block_size.limit_to(task.bytes // max(1, count))

    def _note_place(self, chunk: Chunk) -> None:
        elements = len(chunk.block) + (chunk.block.failure is not None)
        if elements:  # A chunk without elements (a filter dropped all) is skipped.
            self._place = (chunk.marks, elements)

    def _go_on_with(
        self, stream: Stream, state: State, want: int, counts: Sequence[tuple[int, int]]
    ) -> Chunk | None:
        """Passes the rest on to another stream, as if that had been read from the start."""
        self._cancel()
        stream.restore(state)
        for quota, before in zip(self._quotas, counts, strict=True):
            quota.counts = before
        self._instead = stream
        return stream.pull(want)

    def _quota_counts(self) -> list[tuple[int, int]]:
        return [quota.counts for quota in self._quotas]

    def state(self) -> State:
        if self._instead is not None:
            return self._instead.state()
        marks, used = self._place
        return marks.at(used)

    def fields(self) -> Fields:
        return self._local.fields()

    def most_before(self, state: State | None) -> int | None:
        return self._local.most_before(state)

    def state_for(self, index: int) -> State:
        return self._local.state_for(index)

    def index_in(self, state: State) -> int:
        return self._local.index_in(state)

    def start(self) -> None:
        if self._instead is None:
            self._fill()


class RemoteStream(_Remote):
    """A fragment over a random-access dataset: ranges of its positions are the tasks."""

    def __init__(
        self,
        engine: Engine,
        fragment: int,
        local: Stream,
        length: int,
        quotas: Sequence[DropQuota],
        group_size: int = 1,
        cut: Stream | None = None,
        guards: Sequence[Guard] = (),
        streams: int = 1,
        first_size: int = 1,
        least: int = 1,
        clock: Callable[[], float] = time.perf_counter,
        times: TimesOfFragment | None = None,
    ) -> None:
        super().__init__(engine, fragment, local, quotas, times)
        # The number of streams that share the workers, and tasks beyond this one's share.
        self._streams, self._more_tasks = streams, 0
        self._block_size = _task_size(
            engine.most_task_bytes, self._share_of_tasks(), first_size, least
        )
        self._clock = clock
        # The number of elements that are waited for side by side.
        self._side_by_side = 1
        # Tasks count bad records from zero; those before them are counted here.
        self._ledger = Ledger(guards)
        self._length = length
        self._group_size = group_size
        # The stream that takes over if elements turn out to be missing.
        self._cut = cut
        self._tasks: deque[Task] = deque()
        self._start_state: State = {}
        self._start = self._next = 0
        self._go_to(local.state())

    def pull(self, want: int) -> Chunk | None:
        if self._instead is not None:
            return self._instead.pull(want)
        self._fill()
        if not self._tasks:
            self._engine.rest()
            return None
        task = self._tasks[0]
        began = self._clock()
        outcome = self._engine.wait(task)
        self._tasks.popleft()
        if self._clock() - began > _NO_WAIT_SECONDS:
            self._have_more_under_way(task, outcome)
        groups = -(-(task.message.stop - task.first) // self._group_size)
        self._learn(task, groups, outcome)
        by_bytes = _MOST_BYTES_SIDE_BY_SIDE * groups // max(1, task.bytes)
        self._side_by_side = min(outcome.side_by_side // self._group_size, by_bytes)
        counts = self._quota_counts()
        before = list(self._ledger.counts)
        start = with_bad_records(task.message.state, before)
        if self._cut is not None and _has_gaps(outcome.kept[0]):
            return self._go_on_with(self._cut, start, want, counts)
        if not _count(self._quotas, outcome.kept) or not self._ledger.has_room_for(outcome.bad):
            # A filter dropped too much, or too many records are bad. The local copy raises at the
            # right element.
            return self._go_on_with(self._local, start, want, counts)
        for record in outcome.bad:
            self._ledger.enter(record)
        chunk = outcome.chunk()
        if any(before):
            chunk.marks = RecountedMarks(chunk.marks, before)
        if chunk.block.failure is not None:
            # Reading continues after it, unlike the tasks ahead.
            self._cancel()
            self._go_to(chunk.marks.at(len(chunk.block) + 1))
        self._note_place(chunk)
        self._fill()
        return chunk

    def _share_of_tasks(self) -> int:
        """The least number of tasks under way: fewer if there are other streams."""
        return max(1, self._engine.depth // self._streams)

    def _have_more_under_way(self, task: Task, waited_for: Outcome) -> None:
        """Increases the number of tasks, if a worker was idle while the trainer waited for one."""
        if waited_for.idle_seconds > _IDLE * waited_for.seconds:
            engine, least = self._engine, self._share_of_tasks()
            by_bytes = least * engine.most_bytes_ahead // (engine.depth * max(1, task.bytes))
            now = least + self._more_tasks
            most = min(int(engine.most_times * least), by_bytes)
            self._more_tasks = max(0, min(now * 5 // 4 + 1, most) - least)
            engine.note_ahead(now, least + self._more_tasks)

    def _has_room(self) -> bool:
        """Whether another task may be under way."""
        least = self._share_of_tasks()
        if len(self._tasks) < least or not self._more_tasks:
            return len(self._tasks) < least
        if len(self._tasks) >= least + self._more_tasks:
            return False
        # There may be more tasks since they were small, and they may have become larger.
        engine, size = self._engine, self._block_size
        groups = (self._next - self._tasks[0].first) // self._group_size + size.size
        return groups * size.bytes_each * engine.depth <= engine.most_bytes_ahead * least

    def _fill(self) -> None:
        while self._next < self._length and self._has_room():
            count = max(self._block_size.size, self._side_by_side) * self._group_size
            stop = min(self._next + count, self._length)
            state = _advanced(self._start_state, self._next - self._start)
            task = self._engine.submit(self._fragment, state, stop, self._next)
            self._tasks.append(task)
            self._next = stop

    def _go_to(self, state: State) -> None:
        counts = bad_records_in(state)
        self._ledger.restore(counts)
        self._start_state = with_bad_records(state, [-count for count in counts])
        self._start = self._next = innermost_index(state)

    def _cancel(self) -> None:
        self._engine.cancel(self._tasks)
        self._tasks.clear()

    def restore(self, state: State) -> None:
        self._local.restore(state)
        self._cancel()
        if self._instead is not None and self._cut is not None:
            self._instead.restore(state)
            return
        self._instead = None
        self._place = (beginning_of(self._local), 0)
        self._go_to(self._local.state())

    def close(self) -> None:
        self._cancel()
        self._engine.close()


class RemoteSteps(_Remote):
    """Steps after a cut: blocks of the input are sent to workers and come back changed."""

    def __init__(
        self,
        engine: Engine,
        fragment: int,
        local: Stream,
        input: Stream,
        quotas: Sequence[DropQuota],
        counts: Sequence[str],
        reach: Callable[[], Reached] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        times: TimesOfFragment | None = None,
    ) -> None:
        # The local copy is the same steps over the same input.
        super().__init__(engine, fragment, local, quotas, times)
        self._input = input
        # Names of the counts that steps put around the state of the input.
        self._names, self._depth = counts, len(counts)
        # Chunks of the input: those with a worker (None if only a failure is left of one), and
        # those to be sent again.
        self._sent: deque[tuple[Task | None, Chunk, Reached]] = deque()
        self._unsent: deque[tuple[Chunk, Reached]] = deque()
        # Returns how many steps of shared lanes the input's last output used; and the same for the
        # elements handed out here. (See `AheadOfHosts`.)
        self._reach = reach or tuple
        self.reached = self._reach()
        self.eager = input.eager
        # The number of input elements for a task: worth a task, and soon there.
        self._input_size = BlockSize(target_seconds=SOON_SECONDS)
        self._clock = clock
        # A user's own iterator may have to wait for each element. So few are taken at a time, and
        # the number ahead grows step by step.
        self._fills = input.eager or reach is not None
        self._most_sent = engine.depth if self._fills else 0
        self._begin()

    def _begin(self) -> None:
        self._place = (beginning_of(self._local), 0)
        # The counts of steps that count, and the number of elements sent since.
        self._counts: State = {"next_index": 0}
        try:
            self._counts = replaced(self._local.state(), self._depth, _at_the_start)
        except StateError:  # A user's iterator may have none; it is at its beginning, then.
            for name in self._names:
                self._counts = {"parent": self._counts, name: 0}
        self._since = 0

    def pull(self, want: int) -> Chunk | None:
        if self._instead is not None:
            chunk = self._instead.pull(want)
            self.reached = self._reach()
            return chunk
        self._most_sent = min(self._most_sent + 1, self._engine.depth)
        self._fill()
        if not self._sent:
            self._engine.rest()
            self.reached = self._reach()
            return None
        task, taken, reached = self._sent[0]
        if task is None:
            self._sent.popleft()
            chunk = taken
        else:
            outcome = self._engine.wait(task)
            self._sent.popleft()
            self._learn(task, len(taken.block), outcome)
            counts = self._quota_counts()
            if not _count(self._quotas, outcome.kept):
                # A filter dropped too much. The local copy raises at the right element.
                state = replaced(task.message.state, self._depth, lambda _: taken.marks.at(0))
                self._unsent.clear()
                chunk = self._go_on_with(self._local, state, want, counts)
                self.reached = self._reach()
                return chunk
            chunk = self._finished(taken, outcome, reached)
        self.reached = reached
        self._note_place(chunk)
        if self._fills:
            self._fill()
        return chunk

    def _finished(self, taken: Chunk, outcome: Outcome, reached: Reached) -> Chunk:
        chunk = outcome.chunk()
        marks = PlacedMarks(chunk.marks, taken.marks, self._depth)
        block = chunk.block
        if block.failure is not None:
            # Continue after it; elements sent after it were counted one too high.
            after = chunk.marks.at(len(block) + 1)
            used = innermost_index(after)
            unsent = [
                (
                    Chunk(chunk.block, chunk.marks.input)
                    if isinstance(chunk.marks, FailureMarks)
                    else chunk,
                    needed,
                )
                for _, chunk, needed in self._sent
            ]
            self._cancel()
            if used < len(taken.block) or taken.block.failure is not None:
                unsent.insert(0, (taken.rest(used), reached))
            self._unsent.extendleft(reversed(unsent))
            self._counts = replaced(after, self._depth, _at_the_start)
            self._since = 0
        else:
            block.failure = taken.block.failure
        return Chunk(block, marks)

    def _fill(self) -> None:
        while len(self._sent) < self._most_sent:
            chunk: Chunk | None
            if self._unsent:
                chunk, reached = self._unsent.popleft()
            else:
                chunk = self._pull_input()
                reached = self._reach()
            if chunk is None:
                return
            block = chunk.block
            if not len(block):
                if block.failure is not None:
                    if not self._since and is_within_one(self._counts):
                        # The element did not fail when the state was taken. Who asks again begins
                        # at that state again.
                        raise block.failure.release()
                    state = _advanced(self._counts, self._since)
                    marks = FailureMarks(state, chunk.marks, self._depth)
                    self._sent.append((None, Chunk(block, marks), reached))
                continue
            state = replaced(_advanced(self._counts, self._since), self._depth, _at_the_start)
            given = pack_block(block)
            task = self._engine.submit(self._fragment, state, 0, int(block.positions[0]), given)
            self._sent.append((task, chunk, reached))
            self._since += len(block)

    def _pull_input(self) -> Chunk | None:
        if not self.eager:
            return self._input.pull(1)
        want = min(self._block_size.size, self._input_size.size)
        began = self._clock()
        chunk = self._input.pull(want)
        self._input_size.learn(want, self._clock() - began)
        return chunk

    def _cancel(self) -> None:
        self._engine.cancel([task for task, _, _ in self._sent if task is not None])
        self._sent.clear()

    def restore(self, state: State) -> None:
        self._cancel()
        self._unsent.clear()
        self._instead = None
        self._local.restore(state)
        self._begin()

    def close(self) -> None:
        self._cancel()
        self._input.close()
        self._engine.close()


def _at_the_start(_: State) -> State:
    return {"next_index": 0}


def _count(quotas: Sequence[DropQuota], kept: Sequence[Sequence[Any]]) -> bool:
    """Reports the kept elements to the watches over filters; False if one objects."""
    for quota, notes in zip(quotas, kept, strict=True):
        for note in notes:
            over = quota.count_kept(note) if isinstance(note, int) else quota.count(note)
            if over is not None:
                return False
    return True


def _has_gaps(notes: Sequence[Any]) -> bool:
    return any(not isinstance(note, int) and not note.all() for note in notes)


def _advanced(state: State, by: int) -> State:
    """The state of a chain without memory, `by` positions further on."""
    if not by:
        return state
    if "next_index" in state:
        return {**state, "next_index": state["next_index"] + by}
    moved: State = {}
    for name, value in state.items():
        if name == "parent":
            moved[name] = _advanced(value, by)
        elif name == "bad":
            moved[name] = value
        else:
            moved[name] = 0 if name == "next_index_in_buffer" else value + by
    return moved
