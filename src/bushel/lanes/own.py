"""Gives this host its lanes when an iterator is made; the errors if lanes or steps do not fit."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bushel.batch.batch import BatchNode
from bushel.core.node import Each, Node, walk, with_inputs
from bushel.core.options import SharedReadOptions
from bushel.core.places import (
    CustomStreamNode,
    OptionsNode,
    PrefetchNode,
    SeedNode,
    ToStreamNode,
    WorkersNode,
    droppers,
)
from bushel.errors import PlanError
from bushel.lanes.deal import Agree, DealNode, GatherNode, lanes_of
from bushel.lanes.gather import OwnLanesNode
from bushel.lanes.training_steps import StepOrder
from bushel.order.slice import SliceNode
from bushel.order.take import LimitNode

# An endless dataset, or an endless part of it, has more positions than any job reads.
_ENDLESS = 1 << 53


def own_lanes(
    node: Node,
    process: Callable[[], tuple[int, int]],
    agree_in_job: Callable[[float], Agree],
) -> Node:
    """Replaces all lanes by the lanes of this host.

    `process` returns the number of this process and of all; `agree_in_job` makes the function by
    which they agree.
    """
    if lanes_of(node) is not None:
        node = GatherNode(node, 1)
    return _Owner(process, agree_in_job).owned(node)


class _Owner:
    def __init__(
        self,
        process: Callable[[], tuple[int, int]],
        agree_in_job: Callable[[float], Agree],
    ) -> None:
        self._process, self._agree_in_job = process, agree_in_job

    def owned(self, node: Node) -> Node:
        if isinstance(node, (ToStreamNode, CustomStreamNode)):
            return node
        if isinstance(node, GatherNode):
            return self._gather(node, None)
        if isinstance(node, BatchNode) and isinstance(node.input, GatherNode):
            return self._gather(node.input, node)
        return with_inputs(node, [self.owned(parent) for parent in node.inputs])

    def _gather(self, node: GatherNode, batch: BatchNode | None) -> Node:
        deal = lanes_of(node.input)
        assert deal is not None
        index, count = self._share(deal)
        owned = deal.lanes // count
        first = index * owned
        if batch is not None:
            batch = replace(batch, batch_size=owned * node.rows)
        plain = _is_plain(node.input)
        if plain and deal.remainder == "drop" and batch is not None:
            # No step in a lane has a memory, so everything is a function of the position. The state
            # is the number of batches: the same for any number of hosts.
            inner = StepOrder(_by_position(node.input), deal.lanes, first, owned, node.rows)
            return ToStreamNode(replace(batch, input=inner), deal.read_options, False)
        shared = _Shared(owned, node.rows)

        def bound_to(lane: int) -> Node:
            return _bound(node.input, lane, deal.lanes, shared, plain)

        steps, agreement = None, None
        if plain:
            steps = _count_steps(deal, node.rows)
        elif count > 1 and _may_end(node.input):
            agreement = self._agreement(deal)

        own = OwnLanesNode(
            tuple(bound_to(lane) for lane in range(first, first + owned)),
            first,
            deal.lanes,
            node.rows,
            deal.remainder == "pad",
            steps,
            agreement,
            bound_to,
        )
        return own if batch is None else replace(batch, input=own)

    def _share(self, deal: DealNode) -> tuple[int, int]:
        if deal.shard is not None:
            index, count = deal.shard.shard_index, deal.shard.shard_count
        else:
            index, count = self._process()
        if deal.lanes % count:
            raise PlanError(
                f"{deal.lanes} lanes cannot be owned by {count} hosts evenly. The number of lanes "
                "must be a multiple of every number of hosts that the job is to run on; it is part "
                "of the pipeline and of its checkpoints."
            )
        return index, count

    def _agreement(self, deal: DealNode) -> Callable[[], Agree]:
        agree = deal.agree
        if agree is not None:
            return lambda: agree
        if deal.shard is None:
            return partial(self._agree_in_job, deal.agree_timeout_s)
        raise PlanError(
            f"`{deal.describe()}` is followed by steps that drop elements or make several of "
            f"one, and the data is finite: how many steps host {deal.shard.shard_index} of "
            f"{deal.shard.shard_count} may take depends on the other hosts. Pass `agree=`, a "
            "function that gets an integer and returns the least of all hosts' integers (an "
            "all-reduce with min); or leave `shard_options` out in a JAX or torch job; or repeat "
            "the data for ever."
        )


class _Shared:
    """The threads that the lanes of a host share, for each `DealNode`."""

    def __init__(self, lanes: int, rows: int) -> None:
        self._lanes, self._rows = lanes, rows
        self._options: dict[int, SharedReadOptions] = {}

    def of(self, deal: DealNode) -> SharedReadOptions:
        if id(deal) not in self._options:
            made = SharedReadOptions(deal.read_options, self._lanes, self._rows)
            self._options[id(deal)] = made
        return self._options[id(deal)]


def _bound(node: Node, lane: int, lanes: int, shared: _Shared, allow_nones: bool) -> Node:
    """The steps of one lane."""
    if isinstance(node, DealNode):
        part = SliceNode(node.input, lane, node.input.length(), lanes)
        return ToStreamNode(part, shared.of(node), allow_nones)
    if isinstance(node, WorkersNode):
        raise PlanError(
            "`mp_prefetch` stands between `lanes` and `batch`, where every lane would have worker "
            "processes of its own. Put it after `batch`: the workers do what comes before, too."
        )
    inputs = [_bound(parent, lane, lanes, shared, allow_nones) for parent in node.inputs]
    # A step that counts, or draws random numbers, needs the lane.
    knows_lanes = "lane" in getattr(type(node), "__dataclass_fields__", {})
    return with_inputs(node, inputs, **({"lane": (lane, lanes)} if knows_lanes else {}))


_SILENT = (SeedNode, OptionsNode, PrefetchNode)


def _is_plain(node: Node) -> bool:
    """Whether each position makes exactly one element of its lane."""
    while not isinstance(node, DealNode):
        if not isinstance(node, (Each, *_SILENT)):
            return False
        node = node.input
    return not any(droppers(node.input))


def _count_steps(deal: DealNode, rows: int) -> int:
    """The number of steps, if each position makes exactly one element."""
    length = deal.input.length()
    if deal.remainder == "drop":
        return length // deal.lanes // rows
    longest = -(-length // deal.lanes)
    return -(-longest // rows)


def _by_position(node: Node) -> Node:
    """The same steps without dealing: positions are those of the whole dataset."""
    if isinstance(node, DealNode):
        return node.input
    assert isinstance(node, (Each, *_SILENT))
    return with_inputs(node, [_by_position(node.input)])


def _may_end(node: Node) -> bool:
    """Whether some part of the dealt dataset is finite, or cut short."""
    if any(isinstance(step, LimitNode) for step in walk(node)):
        return True
    deals = [step for step in walk(node) if isinstance(step, DealNode)]
    return any(deal.input.length() < _ENDLESS for deal in deals)
