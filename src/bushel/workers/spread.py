"""Where a pipeline is cut: what workers do by themselves, and what is done here, in order.

    to_iter_dataset ─ map ─ filter │ batch │ map ─ map
    └────────── workers ─────────┘   here    └ workers ┘

A step with memory (a batch after a filter, a window, a mixture of streams, a user's own
iterator) has to see the elements one after the other, and runs once. Everything else needs
only the position, or the element itself.
"""

from collections.abc import Callable, Sequence
from functools import partial

from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node, Place, leaves_out, walk
from bushel.core.options import DatasetOptions, ReadOptions
from bushel.core.places import CustomStreamNode, ToStreamNode, WorkersNode, droppers
from bushel.core.step import How
from bushel.core.stream import Stream
from bushel.errors import PlanError
from bushel.plan.lanes import LaneReadOptions
from bushel.run.build import build_with, step_of
from bushel.run.lanes import LanesStream
from bushel.run.positional import PositionalStream, dropping_step, least_block
from bushel.run.quota import DropQuota
from bushel.workers.ahead import AheadOfHosts
from bushel.workers.engine import Engine, Home
from bushel.workers.fragment import Fragment, detached
from bushel.workers.remote import Reached, RemoteSteps, RemoteStream
from bushel.workers.start import Starter


def spread(node: WorkersNode, options: DatasetOptions, starters: dict[int, Starter]) -> Stream:
    """Makes the stream of a node whose input runs in worker processes.

    `starters` have processes that wait for something to do, by the `id` of the node.
    """
    if any(isinstance(step, WorkersNode) for step in walk(node.input)):
        raise PlanError(
            "`mp_prefetch` cannot be nested: the part of the pipeline that it covers has another "
            "one. Keep the one nearest to the end."
        )
    if not node.home:
        node.home.append(Home())
    engine = Engine(node.home[0], node.options, node.worker_init, starters.pop(id(node), None))
    spreader = _Spreader(engine, options)
    stream = spreader.build(node.input, last=True)
    if not spreader.lanes:
        return stream
    return AheadOfHosts(stream, spreader.lanes, spreader.reach(0))


class _Spreader:
    def __init__(self, engine: Engine, options: DatasetOptions) -> None:
        self._engine = engine
        self._options = options
        # Lane streams shared with other hosts; and for each, a function: how many of its steps
        # the latest output has consumed.
        self.lanes: list[LanesStream] = []
        self._reaches: list[Callable[[], int]] = []

    def build(self, node: Node, last: bool = False) -> Stream:
        """The stream of a node, as far as possible evaluated by workers.

        `last` says that nothing comes after it which would ask what a sampler said.
        """
        chain = _chain_of(node)
        root = chain[0]
        if isinstance(root, ToStreamNode):
            quota = self._quota(dropping_step(root.input).label)
            return self._over_positions(root, chain[1:], quota, last)
        if isinstance(root, CustomStreamNode):
            stream = build_with(root, self._options)
        else:
            first = len(self.lanes)
            inputs = [self.build(parent) for parent in root.inputs]
            stream = step_of(root, inputs, How(self._quota))
            if isinstance(stream, LanesStream):
                stream.starts_together = True
                if stream.shared:
                    stream.ahead = True
                    self.lanes.append(stream)
                    self._reaches.append(partial(getattr, stream, "reached"))
            return self._behind(stream, chain[1:], last, first)
        return self._behind(stream, chain[1:], last)

    def reach(self, first: int) -> Callable[[], Reached]:
        """What tells how far lanes were used, from the first of these on."""
        reaches = self._reaches[first:]
        return lambda: tuple(reach() for reach in reaches)

    def _quota(self, label: str) -> DropQuota:
        return DropQuota(label, self._options)

    def _over_positions(
        self,
        root: ToStreamNode,
        steps: Sequence[Node],
        root_quota: DropQuota,
        last: bool,
        speculate: bool = True,
    ) -> Stream:
        """The longest beginning that workers can do by themselves, and then the rest."""
        count, certain = _fusable(root, steps)
        if not speculate:
            count = certain
        fused, rest = steps[:count], steps[count:]
        positions = PositionalStream(root.input, ReadOptions(0, 0), root.allow_nones, root_quota)
        twin, quotas = self._twin(positions, fused)
        read_options, most_tasks, first_size = root.read_options, self._engine.depth, 1
        if isinstance(read_options, LaneReadOptions):
            # Together they keep the workers busy, and a worker is at one of them at a time.
            most_tasks = max(1, most_tasks // read_options.lanes)
            first_size = read_options.rows
            read_options = read_options.in_turn()
        fragment = Fragment(
            root.input,
            tuple(detached(step) for step in fused),
            read_options,
            root.allow_nones,
            keeps_metadata=bool(rest) or not last,
            sharing=self._engine.workers,
        )
        sizes = [step.group_size for step in fused if isinstance(step, Fold)] or [1]
        number = self._engine.register(fragment)
        cut = None
        if count > certain:
            # Known to the workers from their start, should it be needed.
            cut = self._over_positions(root, fused, root_quota, last, speculate=False)
        stream = RemoteStream(
            self._engine,
            number,
            twin,
            root.input.length(),
            [root_quota, *quotas],
            sizes[0],
            cut,
            [*positions.guards, *(step for step in fused if isinstance(step, Guard))],
            most_tasks,
            first_size,
            max(1, least_block(root.input) // sizes[0]),
        )
        return self._behind(stream, rest, last)

    def _twin(self, stream: Stream, steps: Sequence[Node]) -> tuple[Stream, list[DropQuota]]:
        """Steps without workers, and the watches over those that drop elements."""
        quotas: list[DropQuota] = []

        def quota(label: str) -> DropQuota:
            quotas.append(self._quota(label))
            return quotas[-1]

        for step in steps:
            stream = step_of(step, [stream], How(quota))
        return stream, quotas

    def _behind(
        self, stream: Stream, steps: Sequence[Node], last: bool, first_lanes: int | None = None
    ) -> Stream:
        """Steps after a cut: runs of element-wise ones by workers, the others here.

        Below them are the lanes from `first_lanes` on.
        """
        if first_lanes is None:
            first_lanes = len(self.lanes)
        index = 0
        while index < len(steps):
            run = _run_of_element_wise(steps[index:])
            if not run:
                stream = step_of(steps[index], [stream], How(self._quota))
                index += 1
                continue
            twin, quotas = self._twin(stream, run)
            fragment = Fragment(
                None,
                tuple(detached(step) for step in run),
                ReadOptions(0, 0),
                True,
                keeps_metadata=index + len(run) < len(steps) or not last,
            )
            number = self._engine.register(fragment)
            counts = [name for step in run if (name := _count_of(step)) is not None]
            reach = self.reach(first_lanes) if first_lanes < len(self.lanes) else None
            remote = RemoteSteps(self._engine, number, twin, stream, quotas, counts, reach)
            self._reaches[first_lanes:] = [
                partial(_reached, remote, which) for which in range(len(self.lanes) - first_lanes)
            ]
            stream = remote
            index += len(run)
        return stream


def _reached(remote: RemoteSteps, index: int) -> int:
    return remote.reached[index]


def _count_of(step: Node) -> str | None:
    """What a step counts in its state, if it does."""
    if isinstance(step, Expand):
        return "next_index_in_buffer"
    return step.counter if isinstance(step, Each) and step.uses_positions else None


def _chain_of(node: Node) -> list[Node]:
    """A node and what it reads from, up to one that does not read from exactly one stream."""
    chain: list[Node] = []
    while True:
        if isinstance(node, Place) and not isinstance(node, ToStreamNode):
            node = node.input  # A thread that prefetches too: workers are ahead anyway.
            continue
        chain.insert(0, node)
        if isinstance(node, ToStreamNode) or not isinstance(
            node, (Each, Drop, Expand, Fold, Guard)
        ):
            return chain
        node = node.input


def _fusable(root: ToStreamNode, steps: Sequence[Node]) -> tuple[int, int]:
    """How many of the first steps workers can do by themselves: probably, and certainly.

    Batches and counts need to know how many elements came before. That is the position, if
    none of them was dropped. A map of a random-access dataset may return None, which drops an
    element, and nobody knows before; so they are done by workers until that happens.

    Nor are elements counted that fail. Where that shows after the workers, they go on with
    another count; a guard after a count must therefore not be with them, and hide it.
    """
    dense = root.allow_nones
    probable = dense or not any(isinstance(step, (Drop, Expand)) for step in droppers(root.input))
    certain = len(steps)
    counted = folded = False
    for index, step in enumerate(steps):
        if counted and isinstance(step, Guard):
            return index, min(certain, index)
        if leaves_out(step):
            dense = probable = False
            if folded:
                return index, min(certain, index)
        elif isinstance(step, Fold) or (isinstance(step, Each) and step.uses_positions):
            if not probable or folded or (isinstance(step, Fold) and not step.one_per_group):
                return index, min(certain, index)
            if not dense:
                certain = min(certain, index)
            counted, folded = True, folded or isinstance(step, Fold)
        elif not isinstance(step, (Each, Guard)) or getattr(step, "stays_here", False):
            return index, min(certain, index)
    return len(steps), certain


def _run_of_element_wise(steps: Sequence[Node]) -> list[Node]:
    """The first steps that need only their own element, and how many came before it."""
    run: list[Node] = []
    countable = True
    for step in steps:
        if isinstance(step, (Drop, Expand)):
            countable = False
        elif (
            not isinstance(step, Each) or step.stays_here or (step.uses_positions and not countable)
        ):
            break
        run.append(step)
    return run
