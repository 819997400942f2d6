"""Where each step runs and why, for `explain()`, by the plan that would run it (`run/plan.py`)."""

from collections.abc import Iterator
from dataclasses import replace

from bushel.batch.batch import BatchNode
from bushel.core.frozen import frozen
from bushel.core.node import Node, Order, with_inputs
from bushel.core.options import ReadOptions
from bushel.core.places import CustomStreamNode, ToStreamNode
from bushel.core.positions import Positions
from bushel.core.tuned_options import AUTO
from bushel.deliver.job import process_if_known
from bushel.lanes.agree import Agreement
from bushel.lanes.deal import DealNode, GatherNode
from bushel.lanes.gather import OwnLanesNode
from bushel.run.cut import HERE, WORKERS, Reason, Stretch
from bushel.run.plan import Plan, plan_of, steps_of
from bushel.watch.element_counts import Counts


@frozen
class Placed:
    """Where a step runs."""

    stretch: Stretch
    # The most threads that prefetch, if it is read by position.
    threads: int = 0
    # The step as it runs, which differs if it is in lanes.
    runs: Node | None = None

    @property
    def why(self) -> Reason | None:
        """Why it does not run with the steps before it, if it is the first that does not."""
        why = self.stretch.why
        return why if why is not None and why.step is self.runs else None

    @property
    def guess(self) -> Reason | None:
        """The assumption on which its place depends."""
        guess = self.stretch.guess
        return guess if guess is not None and guess.step is self.runs else None

    @property
    def is_cut_off(self) -> bool:
        """Whether elements come to it, or to its stretch, from another process."""
        inputs = self.stretch.inputs
        return any(WORKERS in (self.place, before.where) for before in inputs)

    @property
    def trips(self) -> int:
        """How often elements have been sent from workers, or to them, up to this step."""
        return sum(before.where == WORKERS for before in self.stretch.chain())

    @property
    def place(self) -> str:
        """Here, in a thread that prefetches, or in worker processes."""
        return self.stretch.where

    @property
    def workers(self) -> int | str:
        """The number of worker processes that run it, or that it is tuned."""
        asked = self.stretch.workers
        if asked is None or self.place != WORKERS:
            return 0
        number = asked.options.num_workers
        return number if isinstance(number, int) else AUTO

    @property
    def in_order(self) -> bool:
        """Whether it runs here between steps that run in workers."""
        return self.place == HERE and self.stretch.workers is not None


@frozen
class PlacedLine:
    """The places of consecutive steps, and of the lines that the first step reads from."""

    # By the `id` of a step, as the same step may be in several lines.
    places: dict[int, Placed]
    parts: "tuple[PlacedLine, ...]" = ()
    # Why the stream cannot be planned: the error that iterating would raise.
    problem: str | None = None

    def of(self, step: Node) -> Placed | None:
        """Where a step runs; None for a step that does no work itself."""
        return self.places.get(id(step))

    def walk(self) -> "Iterator[PlacedLine]":
        """The line, and all its input lines."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def part(self, number: int) -> "PlacedLine":
        """One of the first step's input lines; empty if nothing is known."""
        return self.parts[number] if self.parts else PlacedLine({}, (), self.problem)


def placed_steps(node: Node, counts: Counts) -> PlacedLine:
    """Plans a stream, and says where each of its steps runs; starts nothing."""
    try:
        plan = _planned(node, counts)
        return _placed_line(node, plan.dealt, plan.cut)
    except Exception as error:
        return PlacedLine({}, (), str(error) or type(error).__name__)


def _threads(options: ReadOptions) -> int:
    return min(options.num_threads, options.prefetch_buffer_size)


def _planned(node: Node, counts: Counts) -> Plan:
    deals = [step for step in steps_of(node) if isinstance(step, DealNode)]
    if any(counts.of(deal.input).number is None for deal in deals):
        node = _with_lengths(node, counts)
    return plan_of(node, process_if_known, _never)


def _never(_timeout_s: float) -> Agreement:
    raise AssertionError("a plan agrees with nobody")


# Any length will do: lanes are dealt in the same way for all finite data.
_SOME_LENGTH = 1 << 40


@frozen
class _Uncounted(Order):
    """Stands in for a dataset whose length is unknown without reading."""

    input: Node

    def length(self) -> int:
        return _SOME_LENGTH

    def locate(self, positions: Positions) -> Positions:
        raise AssertionError("nobody reads it")

    def describe(self) -> str:
        return ""


def _with_lengths(node: Node, counts: Counts) -> Node:
    """The same stream, in which everything that is dealt to lanes has a known length."""
    if isinstance(node, DealNode):
        known = counts.of(node.input).number is not None
        return node if known else replace(node, input=_Uncounted(node.input))
    if isinstance(node, (ToStreamNode, CustomStreamNode)):
        return node
    return with_inputs(node, [_with_lengths(before, counts) for before in node.inputs])


def _placed_line(described: Node, dealt: Node, stretch: Stretch) -> PlacedLine:
    """Compares a line as written, as dealt to lanes, and as cut, from its end backwards."""
    places: dict[int, Placed] = {}
    left = len(stretch.steps)
    while True:
        if left == 0 and len(stretch.inputs) == 1:
            (stretch,) = stretch.inputs
            left = len(stretch.steps)
        is_next = left > 0 and stretch.steps[left - 1] is dealt
        if is_next:
            left -= 1
            threads = _threads(dealt.read_options) if isinstance(dealt, ToStreamNode) else 0
            places[id(described)] = Placed(stretch, threads, dealt)
        if isinstance(dealt, OwnLanesNode):
            # All lanes are alike. If there are no batches, no step gathers them.
            inner = described.input if isinstance(described, GatherNode) else described
            first = _placed_line(inner, dealt.parts[0], stretch.inputs[0])
            return PlacedLine({**places, **first.places}, first.parts)
        if isinstance(dealt, ToStreamNode):
            if isinstance(described, BatchNode):
                # No step in the lanes has a memory: all of them are read by position.
                while not isinstance(described, DealNode):
                    (described,) = described.inputs
                    places[id(described)] = Placed(stretch, threads)
            return PlacedLine(places)
        if isinstance(described, CustomStreamNode):
            return PlacedLine(places)
        if len(described.inputs) != 1:
            inputs = zip(described.inputs, dealt.inputs, stretch.inputs, strict=True)
            return PlacedLine(places, tuple(_placed_line(*part) for part in inputs))
        (described,), (dealt,) = described.inputs, dealt.inputs
