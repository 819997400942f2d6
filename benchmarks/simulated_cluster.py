"""A cluster that is not there: workers, nodes, their ends and delays, on a clock of its own.

`ClusterPool` schedules on it as it does on Ray: which tasks go where, what is done again after an
end, what is asked of two workers. With `runners` outcomes are the real ones, so that the stream
can be compared; without, they are empty, and ten thousand workers take no work.

Delays are those that Ray 2 was measured to have; see docs/scale.md.
"""

import heapq
import itertools
import math
import pickle
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bushel.core.stream import FixedMarks
from bushel.workers.cluster.actor import versions
from bushel.workers.cluster.cluster import (
    MEMORY,
    NODE,
    NOTHING_NOTED,
    PROCESS,
    Noted,
    ResultLost,
    TaskFault,
    WorkerGone,
    WorkerGreeting,
)
from bushel.workers.fragment import Outcome, Runner, TaskMessage
from bushel.workers.payload import Luggage

# Seconds from an end to its notice: of a process, of a node, of one that is cut off.
NOTICED = {PROCESS: 0.05, MEMORY: 0.3, NODE: 15.0, "frozen": 64.5}


@dataclass
class Faults:
    """How often things end, as a mean number of seconds between two ends of one of them."""

    process: float = math.inf
    node: float = math.inf
    memory: float = math.inf
    frozen: float = math.inf


@dataclass(eq=False)
class _Node:
    name: str
    cpus: float
    dies_at: float = math.inf
    frozen_at: float = math.inf
    used: float = 0.0


@dataclass(eq=False)
class _SimulatedWorker:
    node: _Node | None
    # The call that is done when it has a place.
    greeting: "_SimulatedCall | None"
    # When it has a place and a process; later, when it has done all that it was told.
    free_at: float
    dies_at: float = math.inf
    why: str = PROCESS
    ended: bool = False
    page: list[Any] = field(default_factory=lambda: list(NOTHING_NOTED))


@dataclass(eq=False)
class _SimulatedCall:
    worker: _SimulatedWorker
    done_at: float
    message: TaskMessage | None = None
    # How long a task takes, and how long its worker had nothing to do before.
    seconds: float = 0.0
    idle: float = 0.0


class SimulatedCluster:
    """Nodes with CPUs; everything that happens is drawn from a seed."""

    def __init__(
        self,
        make_luggage: Callable[[], Luggage] | None = None,
        *,
        seed: int = 0,
        nodes: int = 4,
        cpus: int = 2,
        task_seconds: Callable[[random.Random], float] = lambda _: 0.05,
        start_seconds: float = 2.0,
        trip_seconds: float = 0.001,
        faults: Faults | None = None,
        deadly: Callable[[TaskMessage], bool] = lambda _: False,
        never_comes: Callable[[TaskMessage], bool] = lambda _: False,
        node_comes_after: float = 5.0,
    ) -> None:
        self._random = random.Random(seed)
        self._faults = faults or Faults()
        self._task_seconds, self._start_seconds = task_seconds, start_seconds
        self._trip, self._deadly, self._never_comes = trip_seconds, deadly, never_comes
        self._cpus, self._node_comes_after = cpus, node_comes_after
        self._clock = 0.0
        self._coming: list[float] = []
        self._nodes: list[_Node] = []
        # When there will be news of which calls; calls of which there is; workers without a place.
        self._events: list[tuple[float, int, _SimulatedCall]] = []
        self._numbers = itertools.count()
        self._news: dict[_SimulatedCall, None] = {}
        self._unplaced: list[_SimulatedWorker] = []
        self._draining: set[str] = set()
        for _ in range(nodes):
            self._add_node()
        self._runners: list[Runner] | None = None
        if make_luggage is not None:
            luggage = make_luggage()
            fragments = pickle.loads(luggage.pickled, buffers=luggage.buffers)
            self._runners = [Runner(each, lambda *_, **__: None) for each in fragments]
        self.started = self.ran = self.most_under_way = 0

    def _add_node(self) -> None:
        name = f"{len(self._nodes):04x}-simulated"
        node = _Node(name, self._cpus)
        node.dies_at = self._after(self._faults.node)
        node.frozen_at = self._after(self._faults.frozen)
        self._nodes.append(node)
        if min(node.dies_at, node.frozen_at) < math.inf:
            # Another one takes its place some time after it is gone.
            gone = min(node.dies_at, node.frozen_at + NOTICED["frozen"])
            heapq.heappush(self._coming, gone + self._node_comes_after)

    def add_node(self) -> None:
        """A node comes."""
        self._add_node()
        self._place_more()

    def drain(self, name: str) -> None:
        """A node will be taken away, and nobody is placed there any more."""
        self._draining.add(name)

    def remove_nodes(self, keep: int) -> None:
        """Nodes go, all but the first of those that are there."""
        for node in self._alive()[keep:]:
            node.dies_at = self._clock
        for _, _, call in self._events[:]:
            self._expect(call)

    def _alive(self) -> list[_Node]:
        return [node for node in self._nodes if self._clock < min(node.dies_at, node.frozen_at)]

    def _after(self, mean: float) -> float:
        return math.inf if mean == math.inf else self._clock + self._random.expovariate(1 / mean)

    def spend(self, seconds: float) -> None:
        """Lets time pass, as a training step does."""
        self._pass_to(self._clock + seconds)

    def _pass_to(self, when: float) -> None:
        self._clock = max(self._clock, when)
        while self._coming and self._coming[0] <= self._clock:
            heapq.heappop(self._coming)
            self._add_node()
            self._place_more()

    # What a pool asks for.

    def start(self, index: int) -> tuple[Any, Any]:
        self.started += 1
        worker = _SimulatedWorker(None, None, math.inf)
        worker.greeting = _SimulatedCall(worker, math.inf)
        self._unplaced.append(worker)
        self._place_more()
        return worker, worker.greeting

    def _place_more(self) -> None:
        while self._unplaced and self._place(self._unplaced[0]):
            del self._unplaced[0]

    def _place(self, worker: _SimulatedWorker) -> bool:
        if worker.ended:
            return True
        free = [
            node
            for node in self._alive()
            if node.used < node.cpus and node.name not in self._draining
        ]
        if not free:
            return False
        node = worker.node = min(free, key=lambda node: node.used)
        node.used += 1
        worker.free_at = self._clock + self._start_seconds * self._random.uniform(0.7, 1.5)
        ends = {
            PROCESS: self._after(self._faults.process),
            MEMORY: self._after(self._faults.memory),
        }
        worker.why = min(ends, key=lambda why: ends[why])
        worker.dies_at = ends[worker.why]
        assert worker.greeting is not None
        worker.greeting.done_at = worker.free_at
        self._expect(worker.greeting)
        return True

    def _expect(self, call: _SimulatedCall) -> _SimulatedCall:
        """Notes when there will be news of a call."""
        heapq.heappush(self._events, (self._visible_at(call), next(self._numbers), call))
        return call

    def instruct(self, worker: Any) -> Any:
        worker.free_at = max(self._clock, worker.free_at) + self._trip
        return self._expect(_SimulatedCall(worker, worker.free_at))

    def run(self, worker: Any, message: TaskMessage) -> Any:
        seconds = self._task_seconds(self._random)
        begins = max(self._clock + self._trip, worker.free_at)
        idle = begins - worker.free_at
        worker.free_at = begins + seconds
        # As it is now: a pool changes it when the task is done again.
        copied = pickle.loads(pickle.dumps(message))
        if self._deadly(copied) and copied.fatal is None and worker.dies_at > worker.free_at:
            worker.dies_at, worker.why = begins + seconds / 2, PROCESS
            worker.page = [1, copied.task, 0, copied.stop - 1, ""]
        done_at = worker.free_at + self._trip
        call = _SimulatedCall(worker, done_at, copied, seconds, idle)
        return call if self._never_comes(copied) else self._expect(call)

    def _visible_at(self, call: _SimulatedCall) -> float:
        """When a call is known to be done, or to be none."""
        worker = call.worker
        assert worker.node is not None
        end, _, noticed = self._end_of(worker)
        fetched = max(call.done_at, self._clock)
        lost = end < fetched and worker.node.dies_at <= end
        if call.done_at <= end and not lost:
            return call.done_at
        return max(end, min(call.done_at, self._clock)) + noticed

    def _end_of(self, worker: _SimulatedWorker) -> tuple[float, str, float]:
        """When a worker ends, of what, and how much later that is known."""
        node = worker.node
        assert node is not None
        ends = [
            (worker.dies_at, worker.why, NOTICED[worker.why]),
            (node.dies_at, NODE, NOTICED[NODE]),
            (node.frozen_at, NODE, NOTICED["frozen"]),
        ]
        return min(ends)

    def wait(self, wanted: Collection[Any], seconds: float | None) -> list[Any]:
        self.most_under_way = max(self.most_under_way, len(wanted))
        until = self._clock + (math.inf if seconds is None else seconds)
        while not (done := self._done(wanted)):
            following = self._events[0][0] if self._events else math.inf
            coming = self._coming[0] if self._coming else math.inf
            if min(following, coming) > until:
                self._pass_to(until)
                return self._done(wanted)
            self._pass_to(min(following, coming))
        return done

    def _done(self, wanted: Collection[Any]) -> list[Any]:
        """Those of which there is news by now."""
        while self._events and self._events[0][0] <= self._clock:
            self._news[heapq.heappop(self._events)[2]] = None
        done = []
        for call in [call for call in self._news if call in wanted]:
            del self._news[call]
            if self._visible_at(call) > self._clock:  # Its node went before it was fetched.
                self._expect(call)
            else:
                done.append(call)
        return done

    def is_made(self, call: Any) -> bool:
        return bool(call.done_at <= self._clock)

    def _check(self, call: _SimulatedCall) -> None:
        end, why, _ = self._end_of(call.worker)
        if call.done_at > end:
            raise WorkerGone(why, "simulated.")
        if call.worker.node is not None and call.worker.node.dies_at < self._clock:
            raise ResultLost("simulated.")

    def ready(self, call: Any) -> Any:
        self._check(call)
        node = call.worker.node
        return WorkerGreeting(node.name, node.name, 1, *versions(), [], "")

    def outcome(self, call: Any) -> tuple[Outcome, int]:
        self._check(call)
        self.ran += 1
        if self._runners is None:
            nothing = np.empty(0, np.int64)
            marks = FixedMarks(call.message.state)
            told = call.seconds, 1, call.idle
            empty = Outcome(call.message.task, [], nothing, None, None, marks, [], [], *told)
            return empty, 1 << 20
        try:
            return self._runners[call.message.fragment].run(call.message, None), 1 << 16
        except Exception as error:
            raise TaskFault(repr(error)) from error

    def noted(self, worker: WorkerGreeting) -> Noted:
        return NOTHING_NOTED

    def draining(self) -> set[str]:
        return self._draining

    def end(self, worker: Any) -> None:
        if not worker.ended:
            worker.ended = True
            if worker.node is not None:
                worker.node.used -= 1
                self._place_more()

    def places(self) -> int | None:
        """Room on the nodes that are there."""
        return int(sum(node.cpus - node.used for node in self._alive()))

    def room(self) -> str:
        return f"{len(self._nodes)} simulated nodes"

    def now(self) -> float:
        return self._clock

    def close(self) -> None:
        """Nothing is held."""
