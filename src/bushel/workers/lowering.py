"""Lowers the worker stretches of a cut pipeline: makes streams whose elements workers compute.

`run/cut.py` has decided before what runs where.
"""

from collections.abc import Callable, Sequence
from functools import partial

from bushel.core.node import Each, Expand, Fold, Guard, Node
from bushel.core.options import ReadOptions, SharedReadOptions
from bushel.core.places import CustomStreamNode, ToStreamNode
from bushel.core.stream import Stream
from bushel.lanes.ahead import AheadOfHosts, Reached
from bushel.lanes.gather import LanesStream
from bushel.run.build import Lowering, how_to_open, step_of
from bushel.run.custom_iterator import CustomStream
from bushel.run.cut import WORKERS, Stretch
from bushel.run.long_chains import least_block
from bushel.run.positional import PositionalStream, dropping_step
from bushel.run.quota import DropQuota
from bushel.workers.engine import Engine
from bushel.workers.fragment import Fragment, detached
from bushel.workers.home import home_of
from bushel.workers.remote_streams import RemoteSteps, RemoteStream, TimesOfFragment
from bushel.workers.start import Starter


def lowered_to_workers(
    last: Stretch, lowering: Lowering, starters: dict[int, Starter], engines: list[Engine]
) -> Stream:
    """Makes the stream of stretches that involve worker processes, the last first.

    `starters` have processes that wait for work, by the `id` of the node. The engine is appended to
    `engines`.
    """
    node = last.workers
    assert node is not None
    starter = starters.pop(id(node), None)
    engine = Engine(home_of(node.key), node.options, node.worker_init, starter)
    engines.append(engine)
    if lowering.times is not None:
        engine.timed, engine.is_traced = True, lowering.times.is_traced
        lowering.times.workers.append(engine.figures)
    workers = _WithWorkers(engine, lowering)
    stream = workers.stream(last, last=True)
    if not workers.lanes:
        return stream
    return AheadOfHosts(stream, workers.lanes, workers.reach(0))


class _WithWorkers:
    def __init__(self, engine: Engine, lowering: Lowering) -> None:
        self._engine, self._lowering = engine, lowering
        # Lane streams shared with other hosts; and for each, a function: how many of its steps
        # the latest output has consumed.
        self.lanes: list[LanesStream] = []
        self._reaches: list[Callable[[], int]] = []
        # The options that lanes share, by `id`, and the options that they share in a worker.
        self._in_workers: dict[int, tuple[SharedReadOptions, SharedReadOptions]] = {}

    def stream(self, stretch: Stretch, last: bool = False) -> Stream:
        """The stream of a stretch, given the streams that it reads from.

        `last` says that no later step needs the sampler's metadata.
        """
        first_lanes = len(self.lanes)
        # A loop over the stretches of a chain, as there may be more than calls may be nested.
        first, *after = stretch.chain()
        if isinstance(first.steps[0], ToStreamNode):
            stream: Stream = self._by_position(first, last and not after)
        else:
            stream = self._here(first, [self.stream(before) for before in first.inputs])
        self._lowering.note(first.steps[-1], first.where, stream)
        for part in after:
            stream = self._after(part, stream, last and part is stretch, first_lanes)
            self._lowering.note(part.steps[-1], part.where, stream)
        return stream

    def _after(self, stretch: Stretch, stream: Stream, last: bool, first_lanes: int) -> Stream:
        if stretch.where == WORKERS:
            return self._element_wise(stretch, stream, last, first_lanes)
        return self._here(stretch, [stream])

    def reach(self, first: int) -> Callable[[], Reached]:
        """A function that returns how far lanes were used, from lane stream `first` on."""
        reaches = self._reaches[first:]
        return lambda: tuple(reach() for reach in reaches)

    def _here(self, stretch: Stretch, inputs: list[Stream]) -> Stream:
        """A step in this process."""
        (step,) = stretch.steps
        if isinstance(step, CustomStreamNode):
            return CustomStream(iter(step.dataset))
        stream = step_of(step, inputs, self._lowering.how())
        if isinstance(stream, LanesStream):
            stream.starts_together = True
            if stream.shared:
                stream.ahead = True
                self.lanes.append(stream)
                self._reaches.append(partial(getattr, stream, "reached"))
        return stream

    def _by_position(
        self, stretch: Stretch, last: bool, root_quota: DropQuota | None = None
    ) -> RemoteStream:
        """Steps over positions, which workers run without the trainer."""
        root, *fused = stretch.steps
        assert isinstance(root, ToStreamNode)
        quota = root_quota or self._lowering.quota(dropping_step(root.input).label)
        positions = PositionalStream(root.input, ReadOptions(0, 0), root.allow_nones, quota)
        local, quotas = self._local(positions, fused)
        read_options, streams, first_size = root.read_options, 1, 1
        if isinstance(read_options, SharedReadOptions):
            # The lanes together keep the workers busy, and a worker evaluates one of them at a
            # time.
            streams, first_size = read_options.streams, read_options.rows
            read_options = self._one_at_a_time(read_options)
        fragment = Fragment(
            root.input,
            tuple(detached(step) for step in fused),
            read_options,
            root.allow_nones,
            keeps_metadata=not last,
            sharing=self._engine.most_workers,
        )
        sizes = [step.group_size for step in fused if isinstance(step, Fold)] or [1]
        number = self._engine.register(fragment)
        cut = None
        if stretch.otherwise is not None:
            # Workers know it from their start, in case it is needed.
            cut = self._otherwise(stretch.otherwise, last, quota)
        return RemoteStream(
            self._engine,
            number,
            local,
            root.input.length(),
            [quota, *quotas],
            sizes[0],
            cut,
            [*positions.guards, *(step for step in fused if isinstance(step, Guard))],
            streams,
            first_size,
            max(1, least_block(root.input) // sizes[0]),
            times=self._times_of(stretch.steps),
        )

    def _times_of(self, steps: Sequence[Node]) -> TimesOfFragment | None:
        """The place where outcomes of these steps add their statistics, if they are collected."""
        times = self._lowering.times
        if times is None:
            return None
        root, fused = None, steps
        if isinstance(steps[0], ToStreamNode):
            root, fused = steps[0].input, steps[1:]
        nodes = Fragment(root, tuple(fused), ReadOptions(0, 0), True, True).nodes()
        return TimesOfFragment(times, nodes)

    def _one_at_a_time(self, options: SharedReadOptions) -> SharedReadOptions:
        """The options of the same streams if only one of them is read at a time."""
        if id(options) not in self._in_workers:
            made = SharedReadOptions(options, 1, options.rows)
            self._in_workers[id(options)] = options, made
        return self._in_workers[id(options)][1]

    def _otherwise(self, stretch: Stretch, last: bool, root_quota: DropQuota) -> Stream:
        """The stream that takes over if a guess was wrong; the watch over the dataset continues."""
        first, *after = stretch.chain()
        stream: Stream = self._by_position(first, last and not after, root_quota)
        for part in after:
            stream = self._after(part, stream, last and part is stretch, len(self.lanes))
        return stream

    def _local(self, stream: Stream, steps: Sequence[Node]) -> tuple[Stream, list[DropQuota]]:
        """Steps without workers, and the watches over those that drop elements."""
        quotas: list[DropQuota] = []

        def quota(label: str) -> DropQuota:
            quotas.append(self._lowering.quota(label))
            return quotas[-1]

        for step in steps:
            stream = step_of(step, [stream], how_to_open(quota))
        return stream, quotas

    def _element_wise(
        self, stretch: Stretch, stream: Stream, last: bool, first_lanes: int
    ) -> RemoteSteps:
        """Steps that need only their own element, run by workers.

        The lanes below them are those from `first_lanes` on.
        """
        steps = stretch.steps
        local, quotas = self._local(stream, steps)
        fragment = Fragment(
            None,
            tuple(detached(step) for step in steps),
            ReadOptions(0, 0),
            True,
            keeps_metadata=not last,
        )
        number = self._engine.register(fragment)
        counts = [name for step in steps if (name := _count_of(step)) is not None]
        reach = self.reach(first_lanes) if first_lanes < len(self.lanes) else None
        remote = RemoteSteps(
            self._engine,
            number,
            local,
            stream,
            quotas,
            counts,
            reach,
            times=self._times_of(stretch.steps),
        )
        self._reaches[first_lanes:] = [
            partial(_reached, remote, which) for which in range(len(self.lanes) - first_lanes)
        ]
        return remote


def _reached(remote: RemoteSteps, index: int) -> int:
    return remote.reached[index]


def _count_of(step: Node) -> str | None:
    """The name of the count in a step's state, if it has one."""
    if isinstance(step, Expand):
        return "next_index_in_buffer"
    return step.counter if isinstance(step, Each) and step.uses_positions else None
