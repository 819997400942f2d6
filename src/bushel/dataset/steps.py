"""Makes the nodes of `random_map` and a buffer's `shuffle` with their seed, and of `interleave`."""

from typing import TYPE_CHECKING, Any

from bushel.core.node import Node
from bushel.core.options import DatasetOptions
from bushel.core.rng import PositionGenerators
from bushel.core.stream import Stream
from bushel.dataset.seeds import check_large_seed, check_seed, default_seed
from bushel.transforms.base import RandomMap
from bushel.transforms.function import function_of
from bushel.transforms.map import RandomMapNode

if TYPE_CHECKING:
    from bushel.order.interleave import Nodes


def random_map_step(parent: Node, transform: Any, seed: int | None) -> Node:
    """The step of `random_map`; without a seed it derives one."""
    function = function_of(transform, RandomMap, "random_map", "random_map")
    if seed is None:
        seed = default_seed((parent,), "random_map")
    check_large_seed(seed, "random_map")
    return RandomMapNode(parent, function, transform, PositionGenerators(seed), seed)


def shuffle_step(parent: Node, buffer_size: int, seed: int | None) -> Node:
    """The step of `shuffle` within a buffer; without a seed it derives one."""
    from bushel.order.stream_shuffle import StreamShuffleNode, check_buffer_size

    size = check_buffer_size(buffer_size)
    if seed is None:
        seed = default_seed((parent,), "shuffle")
    return StreamShuffleNode(parent, size, check_seed(seed, "shuffle"))


def interleave_step(datasets: "tuple[Node, ...] | Nodes", cycle_length: int | None) -> Node:
    """The step of `interleave`; all datasets are open at a time, unless a number is given."""
    from bushel.order.interleave import interleave_node

    return interleave_node(datasets, cycle_length, _open_stream)


def _open_stream(node: Node, options: DatasetOptions | None, shared: Any) -> Stream:
    from bushel.deliver.open import open_stream  # To build a dataset takes none of it.

    return open_stream(node, options, shared)
