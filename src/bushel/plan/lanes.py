"""Lanes: positions dealt to a fixed number of streams, which hosts own.

    shuffle ─ lanes(4) ─┬ filter ─┬ batch(8)
                        ├ filter ─┤
                        ├ filter ─┤          host 0 of 2 owns the first two lanes,
                        └ filter ─┘          and makes the first four rows of each batch

A lane is a complete stream: what happens in it depends on no other lane and on no host. A
step takes the same number of rows from each lane, so the records of step k are a function of
the pipeline alone, whoever computes them.

A dataset says `DealNode` and `GatherNode`. When it is iterated, `own_lanes` puts in their
place what this host has to do.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from bushel.batch.batch import BatchNode
from bushel.core.frozen import frozen
from bushel.core.node import Choice, Each, Node, Place, Zip, refuse_length, walk
from bushel.core.options import ReadOptions, SharedReadOptions
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
from bushel.order.slice import SliceNode
from bushel.order.steps import StepOrder
from bushel.order.take import LimitNode
from bushel.sharding import ShardOptions

# A dataset that is repeated for ever, or a part of it, has more positions than any job reads.
_ENDLESS = 1 << 53

# Tells the least of the numbers that all hosts give.
Agree: TypeAlias = Callable[[int], int]


@frozen
class DealNode(Place):
    """Deals the positions of a random-access dataset to lanes."""

    input: Node
    lanes: int
    # Whose lanes are meant; None: those of this process of a JAX job.
    shard: ShardOptions | None
    read_options: ReadOptions
    # What becomes of the last elements, where lanes do not end together: "drop" or "pad".
    remainder: str
    agree: Agree | None
    # Seconds that another process of a JAX job may be late.
    agree_timeout_s: float

    def describe(self) -> str:
        pad = ", remainder='pad'" if self.remainder == "pad" else ""
        return f"lanes({self.lanes}{pad})"


@frozen
class GatherNode(Place):
    """Takes rows from lane after lane: so many from each for one step."""

    input: Node
    rows: int

    def describe(self) -> str:
        return ""

    @property
    def label(self) -> str:
        return f"gather({self.rows} from each lane)"


@frozen
class OwnLanesNode(Node):
    """The lanes of one host, each a stream of its own."""

    parts: tuple[Node, ...]
    first: int
    lanes: int
    rows: int
    pads: bool
    # How many steps there are, where that is arithmetic.
    steps: int | None
    # What makes the way in which hosts find out how many steps there are, where that is no
    # arithmetic, and there are others.
    agreement: Callable[[], Agree] | None
    # Makes an element to pad with, for a host whose lanes have none.
    example: Callable[[], Any]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def length(self) -> int:
        return refuse_length(self)

    def describe(self) -> str:
        last = self.first + len(self.parts) - 1
        return f"lanes {self.first} to {last} of {self.lanes}"


def lanes_of(node: Node) -> DealNode | None:
    """The dealing that a step is behind of, if its elements are still in lanes."""
    ends = (DealNode, GatherNode, ToStreamNode, CustomStreamNode)
    while len(node.inputs) == 1 and not isinstance(node, ends):
        (node,) = node.inputs
    if isinstance(node, DealNode):
        return node
    if isinstance(node, ends):
        return None
    dealt = [lanes_of(parent) for parent in node.inputs]
    ways = [_way_of(deal) for deal in dealt]
    if len(set(ways)) > 1:
        raise PlanError(
            f"the parts of `{node.label}` must all be dealt to the same lanes, and they have: "
            f"{', '.join(ways)}. Write the same `lanes(...)` in each part, or one after them."
        )
    return dealt[0] if dealt else None


def _way_of(deal: DealNode | None) -> str:
    if deal is None:
        return "no lanes"
    if deal.shard is None:
        return deal.describe()
    return f"{deal.describe()} for host {deal.shard.shard_index} of {deal.shard.shard_count}"


def gathered(node: Node, batch_size: int) -> Node:
    """What a batch reads from: where there are lanes, rows from each of them."""
    deal = lanes_of(node)
    if deal is None:
        return node
    if batch_size <= 0 or batch_size % deal.lanes:
        raise PlanError(
            f"`batch({batch_size})` takes the same number of rows from each of {deal.lanes} lanes, "
            f"so batch_size (of all hosts together) must be a multiple of {deal.lanes}."
        )
    return GatherNode(node, batch_size // deal.lanes)


# Opens the stream of a node, for looking at its first element.
FirstOf: TypeAlias = Callable[[Node], list[Any]]


def own_lanes(
    node: Node,
    process: Callable[[], tuple[int, int]],
    agree_by_jax: Callable[[float], Agree],
    first_of: FirstOf,
) -> Node:
    """Puts the lanes of this host in the place of all of them.

    `process` tells the number of this process and how many there are; `agree_by_jax` makes
    the way in which those agree.
    """
    if lanes_of(node) is not None:
        node = GatherNode(node, 1)
    return _Owner(process, agree_by_jax, first_of).owned(node)


class _Owner:
    def __init__(
        self,
        process: Callable[[], tuple[int, int]],
        agree_by_jax: Callable[[float], Agree],
        first_of: FirstOf,
    ) -> None:
        self._process, self._agree_by_jax, self._first_of = process, agree_by_jax, first_of

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
            # Nothing in a lane has a memory, so everything is a function of the position. The
            # state is how many batches there were: the same number for any number of hosts.
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

        def example() -> Any:
            for lane in range(deal.lanes):
                found = self._first_of(bound_to(lane))
                if found:
                    return found[0]
            raise AssertionError("there is a step, so some lane has an element")

        own = OwnLanesNode(
            tuple(bound_to(lane) for lane in range(first, first + owned)),
            first,
            deal.lanes,
            node.rows,
            deal.remainder == "pad",
            steps,
            agreement,
            example,
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
            return partial(self._agree_by_jax, deal.agree_timeout_s)
        raise PlanError(
            f"`{deal.describe()}` is followed by steps that leave elements out or make several of "
            f"one, and the data is finite: how many steps host {deal.shard.shard_index} of "
            f"{deal.shard.shard_count} may take depends on the others. Pass `agree=`, a function "
            "that gets an integer and returns the least of all hosts' integers (an all-reduce "
            "with min); or leave `shard_options` out in a JAX job; or repeat the data for ever."
        )


def with_inputs(node: Node, inputs: list[Node], **fields: Any) -> Node:
    """The same step over other inputs."""
    if not inputs:
        return node
    if isinstance(node, (Choice, Zip)):
        return replace(node, parts=tuple(inputs), **fields)  # type: ignore[type-var]
    return replace(node, input=inputs[0], **fields)  # type: ignore[type-var]


class _Shared:
    """What the lanes of a host share: the threads, for each place where they are dealt."""

    def __init__(self, lanes: int, rows: int) -> None:
        self._lanes, self._rows = lanes, rows
        self._options: dict[int, SharedReadOptions] = {}

    def of(self, deal: DealNode) -> SharedReadOptions:
        if id(deal) not in self._options:
            made = SharedReadOptions(deal.read_options, self._lanes, self._rows)
            self._options[id(deal)] = made
        return self._options[id(deal)]


def _bound(node: Node, lane: int, lanes: int, shared: _Shared, allow_nones: bool) -> Node:
    """What happens in one lane."""
    if isinstance(node, DealNode):
        part = SliceNode(node.input, lane, node.input.length(), lanes)
        return ToStreamNode(part, shared.of(node), allow_nones)
    if isinstance(node, WorkersNode):
        raise PlanError(
            "`mp_prefetch` stands between `lanes` and `batch`, where every lane would have worker "
            "processes of its own. Put it after `batch`: the workers do what comes before, too."
        )
    inputs = [_bound(parent, lane, lanes, shared, allow_nones) for parent in node.inputs]
    # A step that counts, or draws random numbers, is told the lane.
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
    """How many steps there are where each position makes exactly one element."""
    length = deal.input.length()
    if deal.remainder == "drop":
        return length // deal.lanes // rows
    longest = -(-length // deal.lanes)
    return -(-longest // rows)


def _by_position(node: Node) -> Node:
    """The same steps without the dealing: positions are those of the whole."""
    if isinstance(node, DealNode):
        return node.input
    assert isinstance(node, (Each, *_SILENT))
    return with_inputs(node, [_by_position(node.input)])


def _may_end(node: Node) -> bool:
    """Whether some part of what is dealt is finite, or cut short."""
    if any(isinstance(step, LimitNode) for step in walk(node)):
        return True
    deals = [step for step in walk(node) if isinstance(step, DealNode)]
    return any(deal.input.length() < _ENDLESS for deal in deals)
