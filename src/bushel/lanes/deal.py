"""`lanes`: its arguments, and the nodes that deal positions to lanes and gather rows from them.

    shuffle ─ lanes(4) ─┬ filter ─┬ batch(8)
                        ├ filter ─┤
                        ├ filter ─┤          host 0 of 2 owns the first two lanes,
                        └ filter ─┘          and makes the first four rows of each batch

A lane is a complete stream: what happens in it depends on no other lane and on no host. A
step takes the same number of rows from each lane, so the records of step k are a function of
the pipeline alone, whoever computes them.

A dataset has `DealNode` and `GatherNode`. When it is iterated, `lanes/own.py` replaces them by the
lanes of this host.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from bushel.core.arguments import whole
from bushel.core.frozen import frozen
from bushel.core.node import Node, Place
from bushel.core.options import ReadOptions, check_read_options
from bushel.core.places import CustomStreamNode, ToStreamNode
from bushel.errors import PlanError
from bushel.sharding import ShardOptions

# Returns the minimum of the numbers of all hosts.
Agree: TypeAlias = Callable[[int], int]


@frozen
class DealNode(Place):
    """Deals the positions of a random-access dataset to lanes."""

    input: Node
    lanes: int
    # The host whose lanes these are; None: this process in its job.
    shard: ShardOptions | None
    read_options: ReadOptions
    # The last elements, if lanes do not end together: "drop" or "pad".
    remainder: str
    agree: Agree | None
    # Seconds that another process of the job may take longer.
    agree_timeout_s: float

    def describe(self) -> str:
        pad = ", remainder='pad'" if self.remainder == "pad" else ""
        return f"lanes({self.lanes}{pad})"


@frozen
class GatherNode(Place):
    """Takes the same number of rows from each lane for a step, lane after lane."""

    input: Node
    rows: int

    def describe(self) -> str:
        return ""

    @property
    def label(self) -> str:
        return f"gather({self.rows} from each lane)"


def lanes_of(node: Node) -> DealNode | None:
    """The `DealNode` before a step, if its elements are still in lanes."""
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
    """The input of a batch: rows gathered from the lanes, if there are any."""
    deal = lanes_of(node)
    if deal is None:
        return node
    if batch_size <= 0 or batch_size % deal.lanes:
        raise PlanError(
            f"`batch({batch_size})` takes the same number of rows from each of {deal.lanes} lanes, "
            f"so batch_size (of all hosts together) must be a multiple of {deal.lanes}."
        )
    return GatherNode(node, batch_size // deal.lanes)


def deal_step(
    parent: Node,
    count: Any,
    shard_options: ShardOptions | None,
    read_options: ReadOptions | None,
    remainder: str,
    agree: Agree | None,
    agree_timeout_s: float,
) -> Node:
    """The step of `lanes`."""
    lanes = whole(count, "count")
    if lanes <= 0:
        raise PlanError(f"`lanes` needs a positive number of lanes, and got {lanes}.")
    if remainder not in ("drop", "pad"):
        raise PlanError(f"remainder must be 'drop' or 'pad', and is {remainder!r}.")
    if shard_options is not None and not isinstance(shard_options, ShardOptions):
        raise TypeError(
            f"shard_options must be `ShardOptions(index, count)`, and is {shard_options!r}."
        )
    if agree is not None and not callable(agree):
        raise TypeError(f"`agree` must be a function, and is {agree!r}.")
    timeout_s = float(agree_timeout_s)
    if not timeout_s > 0:
        raise PlanError(f"agree_timeout_s must be positive, and is {agree_timeout_s!r}.")
    options = check_read_options(read_options)
    return DealNode(parent, lanes, shard_options, options, remainder, agree, timeout_s)
