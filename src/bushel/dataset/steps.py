"""Steps as users write them, turned into nodes: arguments are checked here, once."""

import os
import sys
from typing import Any

from bushel.batch.batch import BatchNode
from bushel.cache.cache import CacheNode
from bushel.core.arguments import whole
from bushel.core.node import Node
from bushel.core.options import DatasetOptions, ReadOptions
from bushel.core.rng import PositionGenerators
from bushel.core.stream import Stream
from bushel.dataset.seeds import default_seed
from bushel.errors import PlanError
from bushel.order.interleave import InterleaveNode, Nodes
from bushel.order.repeat import StreamRepeatNode
from bushel.order.stream_shuffle import StreamShuffleNode
from bushel.transforms import base as transforms
from bushel.transforms.filter import FilterNode
from bushel.transforms.flat_map import FlatMapNode
from bushel.transforms.function import function_of
from bushel.transforms.map import MapBatchesNode, MapNode, MapWithIndexNode, RandomMapNode


def map_step(parent: Node, transform: Any) -> Node:
    """The step of `map`."""
    return MapNode(parent, function_of(transform, transforms.Map, "map", "map"), transform)


def map_with_index_step(parent: Node, transform: Any) -> Node:
    """The step of `map_with_index`."""
    function = function_of(transform, transforms.MapWithIndex, "map_with_index", "map_with_index")
    return MapWithIndexNode(parent, function, transform)


def map_batches_step(parent: Node, transform: Any) -> Node:
    """The step of `map_batches`."""
    function = function_of(transform, transforms.MapBatches, "map_batches", "map_batches")
    return MapBatchesNode(parent, function, transform)


def random_map_step(parent: Node, transform: Any, seed: int | None) -> Node:
    """The step of `random_map`; without a seed it derives one."""
    function = function_of(transform, transforms.RandomMap, "random_map", "random_map")
    if seed is None:
        seed = default_seed((parent,), "random_map")
    if whole(seed, "seed") < 0:
        raise PlanError(f"`random_map` needs a seed that is not negative, and got {seed}.")
    return RandomMapNode(parent, function, transform, PositionGenerators(seed), seed)


def filter_step(parent: Node, transform: Any) -> Node:
    """The step of `filter`."""
    return FilterNode(
        parent, function_of(transform, transforms.Filter, "filter", "filter"), transform
    )


def flat_map_step(parent: Node, transform: Any) -> Node:
    """The step of a flat map."""
    if not hasattr(transform, "flat_map"):
        raise TypeError(
            f"a flat map takes a `FlatMap` object, and got {type(transform).__name__}: "
            f"{transform!r}. Subclass it and define `flat_map`."
        )
    return FlatMapNode(parent, transform.flat_map, transform)


def batch_step(parent: Node, batch_size: int, drop_remainder: bool, batch_fn: Any) -> Node:
    """The step of `batch`."""
    size = whole(batch_size, "batch_size")
    if size <= 0:
        raise PlanError(f"batch_size must be positive. Got {size}.")
    if batch_fn is not None and not callable(batch_fn):
        raise TypeError(f"`batch_fn` must be a function, and is {batch_fn!r}.")
    return BatchNode(parent, size, bool(drop_remainder), batch_fn)


def repeat_step(parent: Node, num_epochs: int | None) -> Node:
    """The step of `repeat`."""
    if num_epochs is not None and whole(num_epochs, "num_epochs") <= 0:
        raise PlanError(f"num_epochs must be positive, but got {num_epochs}.")
    return StreamRepeatNode(parent, num_epochs)


def shuffle_step(parent: Node, buffer_size: int, seed: int | None) -> Node:
    """The step of `shuffle` within a buffer; without a seed it derives one."""
    size = whole(buffer_size, "buffer_size")
    if size <= 0:
        raise PlanError(f"`shuffle`: buffer_size must be positive, and is {size}.")
    if seed is None:
        seed = default_seed((parent,), "shuffle")
    return StreamShuffleNode(parent, size, check_seed(seed, "shuffle"))


def cache_step(parent: Node, path: str | os.PathLike[str] | None, max_bytes: int | None) -> Node:
    """The step of `cache`."""
    if max_bytes is not None and whole(max_bytes, "max_bytes") <= 0:
        raise PlanError(f"`cache`: max_bytes must be positive, and is {max_bytes}.")
    place = None if path is None else os.path.abspath(os.fspath(path))
    if place is not None and not os.path.isdir(os.path.dirname(place)):
        raise PlanError(
            f"`cache`: there is no folder {os.path.dirname(place)!r} to keep a file in. Make "
            "it before, so that a misspelt path is noticed."
        )
    if place is not None and os.path.isdir(place):
        raise PlanError(
            f"`cache`: {place!r} is a folder. Write the name of a file in it, one for each "
            "pipeline."
        )
    return CacheNode(parent, place, max_bytes)


def interleave_step(datasets: tuple[Node, ...] | Nodes, cycle_length: int | None) -> Node:
    """The step of `interleave`; all datasets are open at a time, unless a number is given."""
    cycle = len(datasets) if cycle_length is None else whole(cycle_length, "cycle_length")
    if cycle <= 0:
        raise PlanError(f"`cycle_length` must be positive, and is {cycle}.")
    return InterleaveNode(datasets, cycle, _open_stream)


def _open_stream(node: Node, options: DatasetOptions | None, shared: Any) -> Stream:
    from bushel.deliver.open import open_stream  # To build a dataset takes none of it.

    return open_stream(node, options, shared)


def check_seed(seed: Any, operation: str) -> int:
    """Returns a seed that fits in 32 bits."""
    number = whole(seed, "seed")
    if not 0 <= number < 2**32:
        raise PlanError(
            f"`{operation}`: the seed must be an integer between 0 and 2**32-1 (got {number})."
        )
    return number


def check_window(window_size: Any) -> int:
    """Returns the size of a window."""
    size = whole(window_size, "window_size")
    if size <= 0:
        raise PlanError(f"window_size must be positive, and is {size}.")
    return size


def check_count(count: Any, operation: str) -> int:
    """Returns a number of elements that an operation was given."""
    number = whole(count, "count")
    if number < 0:
        raise PlanError(f"`{operation}` takes a number of elements, and got {number}.")
    return number


def check_windows(size: Any, stride: Any) -> tuple[int, int]:
    """Returns the size and the stride of windows."""
    size, stride = whole(size, "size"), whole(stride, "stride")
    if not 0 < size <= sys.maxsize or not 0 < stride <= sys.maxsize:
        raise PlanError(
            f"`windows`: size and stride must be positive, and are {size} and {stride}. (No "
            f"dataset has more than {sys.maxsize} elements.)"
        )
    return size, stride


def check_read_options(read_options: ReadOptions | None) -> ReadOptions:
    """Returns the options, or the default ones."""
    if read_options is None:
        return ReadOptions()
    if not isinstance(read_options, ReadOptions):
        raise TypeError(
            f"read_options must be `ReadOptions`, and is a {type(read_options).__name__}."
        )
    return read_options
