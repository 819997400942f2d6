"""From a cut pipeline to running streams: each node by its kind."""

from collections.abc import Callable, Sequence

from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node, Zip, walk
from bushel.core.options import DatasetOptions
from bushel.core.places import CustomStreamNode, OptionsNode, PrefetchNode, ToStreamNode, ZipNode
from bushel.core.step import How, Step
from bushel.core.stream import Stream
from bushel.errors import PlanError
from bushel.plan.lanes import OwnLanesNode
from bushel.plan.mixing import StreamMixNode
from bushel.plan.passes import InterleaveNode
from bushel.run.background import BackgroundStream
from bushel.run.custom import CustomStream
from bushel.run.cut import Stretch, cut
from bushel.run.interleave import InterleaveStream
from bushel.run.lanes import LanesStream
from bushel.run.merge import ZipStream
from bushel.run.mix_parts import MixParts, PositionParts, StreamParts
from bushel.run.mixing import MixStream
from bushel.run.plan import Lowered, Opened
from bushel.run.positional import PositionalStream, dropping_step
from bushel.run.quota import DropQuota
from bushel.run.shared_threads import PartsInTurn, ThreadsOfStreams
from bushel.run.side_by_side import SideBySide, parts_of
from bushel.run.steps import single_step
from bushel.run.zip_side import SideZipStream

# Makes the stream of a stretch that has to do with worker processes.
Spread = Callable[[Stretch, "Lowering"], Stream]


def build_stream(node: Node) -> Stream:
    """Makes the stream that a node describes, in this process."""
    return lowered(node, cut(node)).stream


def lowered(node: Node, last: Stretch, spread: Spread | None = None) -> Lowered:
    """Opens the streams of a pipeline that ends with this stretch."""
    lowering = Lowering(options_of(node), spread)
    return Lowered(lowering.stream(last), tuple(lowering.opened))


def options_of(node: Node) -> DatasetOptions:
    """Merges the options of a pipeline; those nearest to its end win."""
    options = DatasetOptions()
    for step in walk(node):
        if isinstance(step, OptionsNode):
            options = options.merge(step.options)
    return options


class Lowering:
    """Opens streams, under the options of the pipeline that they are part of."""

    def __init__(self, options: DatasetOptions, spread: Spread | None = None) -> None:
        self._options, self._spread = options, spread
        self._threads = ThreadsOfStreams()
        self.opened: list[Opened] = []

    def quota(self, label: str) -> DropQuota:
        """Makes the watch over a step that drops elements."""
        return DropQuota(label, self._options)

    def note(self, step: Node, where: str, stream: Stream) -> None:
        """Takes note of a stream that was opened."""
        self.opened.append(Opened(step, where, type(stream).__name__))

    def stream(self, stretch: Stretch, side_by_side: PartsInTurn | None = None) -> Stream:
        """Opens the stream of a stretch, and those that it reads from.

        `side_by_side` are the streams that it is one of, where they are read in turn.
        """
        if stretch.workers is not None:
            assert self._spread is not None, "worker processes take somebody who has them"
            return self._spread(stretch, self)
        steps = stretch.steps
        if len(stretch.inputs) == 1:
            stream = self.stream(stretch.inputs[0], side_by_side)
        else:
            stream, steps = self._first(stretch, side_by_side), steps[1:]
            self.note(stretch.steps[0], stretch.where, stream)
        for step in steps:
            stream = step_of(step, [stream], How(self.quota))
            self.note(step, stretch.where, stream)
        return stream

    def _first(self, stretch: Stretch, side_by_side: PartsInTurn | None) -> Stream:
        """The stream that the other steps of a stretch follow."""
        node = stretch.steps[0]
        if isinstance(node, ToStreamNode):
            return self._positional(node, side_by_side)
        if isinstance(node, CustomStreamNode):
            return CustomStream(iter(node.dataset))
        if side_by_side is None and isinstance(node, (StreamMixNode, Zip)):
            side_by_side = PartsInTurn(len(node.inputs))

        def inputs() -> list[Stream]:
            return [self.stream(part, side_by_side) for part in stretch.inputs]

        if isinstance(node, StreamMixNode):
            return MixStream(_mix_parts(node, inputs), node)
        if isinstance(node, Zip) and (parts := parts_of(node.inputs)) is not None:
            return SideZipStream(SideBySide(parts), lambda: _zipped(node, inputs()))
        return step_of(node, inputs(), How(self.quota))

    def _positional(self, node: ToStreamNode, side_by_side: PartsInTurn | None) -> PositionalStream:
        """The stream of a random-access dataset."""
        watch = self.quota(dropping_step(node.input).label)
        options = node.read_options
        if side_by_side is not None:
            options = side_by_side.of(options)
        return PositionalStream(node.input, options, node.allow_nones, watch, threads=self._threads)


def _mix_parts(node: StreamMixNode, streams: Callable[[], list[Stream]]) -> MixParts:
    parts = parts_of(node.inputs)
    return StreamParts(streams()) if parts is None else PositionParts(SideBySide(parts), streams)


def _zipped(node: Zip, inputs: Sequence[Stream]) -> ZipStream:
    return ZipStream(inputs, node, node.strict if isinstance(node, ZipNode) else True)


def step_of(node: Node, inputs: list[Stream], how: How) -> Stream:
    """The stream of one step over the streams that it reads from."""
    if isinstance(node, Step):
        return node.open(inputs, how)
    if isinstance(node, (Each, Drop, Expand, Fold, Guard)):
        return single_step(node, inputs[0], how.quota)
    if isinstance(node, InterleaveNode):
        return InterleaveStream(node)
    if isinstance(node, StreamMixNode):
        return MixStream(StreamParts(inputs), node)
    if isinstance(node, Zip):
        return _zipped(node, inputs)
    if isinstance(node, OwnLanesNode):
        return LanesStream(inputs, node)
    if isinstance(node, PrefetchNode):
        return BackgroundStream(inputs[0], node.buffer_size)
    raise PlanError(f"`{node.label}` is no step of a stream.")
