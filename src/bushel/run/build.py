"""Lowers a cut pipeline: makes a stream for each node, by its kind; merges options."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bushel.core.cursor import Cursor
from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node, walk
from bushel.core.options import DatasetOptions, ExecutionTrackingMode
from bushel.core.places import CustomStreamNode, OptionsNode, PrefetchNode, ToStreamNode
from bushel.core.settings import config
from bushel.core.step import EvaluateTogether, How, Join, Step
from bushel.core.stream import Stream
from bushel.errors import PlanError
from bushel.run.background import BackgroundStream
from bushel.run.custom_iterator import CustomStream
from bushel.run.cut import WORKERS, Stretch, cut
from bushel.run.plan import Lowered, Opened
from bushel.run.positional import PositionalStream, dropping_step
from bushel.run.quota import DropQuota
from bushel.run.shared_threads import PartsInTurn, ThreadsInTurn, ThreadsOfStreams
from bushel.run.side_by_side import side_by_side
from bushel.run.step_streams import single_step
from bushel.run.step_times import StepTimes
from bushel.run.streams_together import Together

# Makes the stream of a stretch that involves worker processes.
LowerToWorkers = Callable[[Stretch, "Lowering"], Stream]


def build_stream(node: Node) -> Stream:
    """Makes the stream that a node describes, in this process."""
    return lowered(node, cut(node)).stream


def lowered(
    node: Node,
    last: Stretch,
    to_workers: LowerToWorkers | None = None,
    times: StepTimes | None = None,
    shared: ThreadsInTurn | None = None,
    is_part: bool = False,
) -> Lowered:
    """Opens the streams of a pipeline that ends with this stretch.

    `times` collects statistics for a caller that measures in its own way; `shared` has the threads
    of several streams, of which this is one. With `is_part`, the steps are not counted: the
    pipeline that it is part of counts them as one.
    """
    lowering = Lowering(options_of(node), to_workers, times, is_part)
    if shared is None:
        stream = lowering.stream(last)
    else:
        lowering.threads = shared.threads
        stream = lowering.stream(last, shared.parts)
    if lowering.times is not None:
        lowering.times.take_turns(stream)
    return Lowered(stream, tuple(lowering.opened), lowering.times)


def options_of(node: Node) -> DatasetOptions:
    """Merges the options of a pipeline; those nearest to its end win."""
    options: DatasetOptions | None = None
    for step in walk(node):
        if isinstance(step, OptionsNode):
            options = step.options if options is None else options.merge(step.options)
    return DatasetOptions() if options is None else options


class Lowering:
    """Opens streams, with the options of the pipeline that they belong to."""

    def __init__(
        self,
        options: DatasetOptions,
        to_workers: LowerToWorkers | None = None,
        times: StepTimes | None = None,
        is_part: bool = False,
    ) -> None:
        self._options, self._to_workers = options, to_workers
        self.threads = ThreadsOfStreams()
        self.opened: list[Opened] = []
        # Statistics of the steps, if they are collected.
        self.times = times
        timed = options.execution_tracking_mode is ExecutionTrackingMode.STAGE_TIMING
        if times is None and not is_part and (timed or config.py_debug_mode):
            self.times = StepTimes()

    def quota(self, label: str) -> DropQuota:
        """Makes the watch over a step that drops elements."""
        return DropQuota(label, self._options)

    def how(self) -> How:
        """What a step is opened with, if each of its streams is read by itself."""
        how = how_to_open(self.quota)
        how.options = self._options
        return how

    def note(self, step: Node, where: str, stream: Stream) -> None:
        """Takes note of a stream that was opened."""
        self.opened.append(Opened(step, where, type(stream).__name__))
        if self.times is not None:
            self.times.watch(None if where == WORKERS else step, stream)

    def stream(self, stretch: Stretch, parts: PartsInTurn | None = None) -> Stream:
        """Opens the stream of a stretch, and the streams that it reads from.

        `parts` are the streams of which it is one, if these are read in turn.
        """
        if stretch.workers is not None:
            assert self._to_workers is not None, "worker processes take somebody who has them"
            return self._to_workers(stretch, self)
        steps = stretch.steps
        if len(stretch.inputs) == 1:
            stream = self.stream(stretch.inputs[0], parts)
        else:
            stream, steps = self._first(stretch, parts), steps[1:]
            self.note(stretch.steps[0], stretch.where, stream)
        for step in steps:
            if self.times is not None and isinstance(step, PrefetchNode):
                self.times.take_turns(stream)
            stream = step_of(step, [stream], how_to_open(self.quota))
            if self.times is not None and isinstance(stream, BackgroundStream):
                self.times.threads.append(stream.describe)
            self.note(step, stretch.where, stream)
        return stream

    def _first(self, stretch: Stretch, parts: PartsInTurn | None) -> Stream:
        """The stream that the other steps of a stretch read from."""
        node = stretch.steps[0]
        if isinstance(node, ToStreamNode):
            return self._positional(node, parts)
        if isinstance(node, CustomStreamNode):
            return CustomStream(iter(node.dataset))
        if parts is None and isinstance(node, Join):
            parts = PartsInTurn(len(node.inputs))

        def inputs() -> list[Stream]:
            return [self.stream(part, parts) for part in stretch.inputs]

        how = self.how()
        how.side_by_side = partial(side_by_side, most_dropped=self._most_dropped())
        return node.join(inputs, how) if isinstance(node, Join) else step_of(node, inputs(), how)

    def _most_dropped(self) -> float | None:
        """The share of elements that streams read side by side may drop; None if none may."""
        # If steps are timed, or if too many dropped elements are an error, each stream counts by
        # itself.
        if self.times is not None or self._options.filter_raise_threshold_ratio is not None:
            return None
        warns = self._options.filter_warn_threshold_ratio
        return math.inf if warns is None else warns

    def _positional(self, node: ToStreamNode, parts: PartsInTurn | None) -> PositionalStream:
        """The stream of a random-access dataset."""
        watch = self.quota(dropping_step(node.input).label)
        options = node.read_options if parts is None else parts.of(node.read_options)
        stream = PositionalStream(
            node.input,
            options,
            node.allow_nones,
            watch,
            threads=self.threads,
            times=self.times,
        )
        if self.times is not None and stream.threads is not None:
            self.times.threads.append(stream.threads.choice.describe)
        return stream


def how_to_open(quota: Callable[[str], DropQuota]) -> How:
    """What the engine offers to a step, if each of its streams is read by itself."""
    return How(quota, _together, first_of, shared_by=ThreadsInTurn)


def step_of(node: Node, inputs: Sequence[Stream], how: How) -> Stream:
    """The stream of one step, given the streams that it reads from."""
    if isinstance(node, Step):
        return node.open(inputs, how)
    if isinstance(node, (Each, Drop, Expand, Fold, Guard)):
        return single_step(node, inputs[0], how.quota)
    if isinstance(node, PrefetchNode):
        return BackgroundStream(inputs[0], node.buffer)
    raise PlanError(f"`{node.label}` is no step of a stream.")


def _together(cursors: Sequence[Cursor]) -> EvaluateTogether:
    return Together(cursors).evaluate


def first_of(node: Node) -> list[Any]:
    """The first element of a node, if it has one."""
    stream = build_stream(node)
    try:
        taken = Cursor(stream).take(1)
        if taken.failure is not None:
            raise taken.failure.release()
        return taken.block.rows()
    finally:
        stream.close()
