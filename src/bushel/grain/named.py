"""Grain's classes for window shuffle, zip, flat map, thread prefetch, options; `device_put`."""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from bushel.core.options import DatasetOptions
from bushel.core.places import OptionsNode, PrefetchNode
from bushel.core.tuned_options import MOST_BUFFERED, AutotuneParameter, buffer_bounds
from bushel.dataset import (
    IterDataset,
    MapDataset,
    MapNodeDataset,
    StreamNodeDataset,
    check_parts,
    map_node,
    stream_node,
)
from bushel.dataset.seeds import check_seed
from bushel.deliver.device import Placement, ToDeviceNode
from bushel.errors import PlanError
from bushel.order.window_shuffle import StreamWindowShuffleNode, WindowShuffleNode, check_window
from bushel.order.zip import ZipNode
from bushel.transforms import base as transforms
from bushel.transforms.flat_map import flat_map_step

# The memory of devices is small, and the training needs most of it.
_MOST_ON_DEVICE = 8

T = TypeVar("T")


class WindowShuffleMapDataset(MapNodeDataset[T]):
    """Shuffles within consecutive windows of a random-access dataset.

    >>> list(WindowShuffleMapDataset(MapDataset.range(6), window_size=3, seed=1))
    [1, 2, 0, 3, 5, 4]
    """

    def __init__(self, parent: MapDataset[T], *, window_size: int, seed: int) -> None:
        node = WindowShuffleNode(
            map_node(parent), check_window(window_size), check_seed(seed, "window shuffle")
        )
        super().__init__(node, parent)


class WindowShuffleIterDataset(StreamNodeDataset[T]):
    """Shuffles within consecutive windows of a stream."""

    def __init__(self, parent: "IterDataset[T]", *, window_size: int, seed: int) -> None:
        node = StreamWindowShuffleNode(
            stream_node(parent), check_window(window_size), check_seed(seed, "window shuffle")
        )
        super().__init__(node, parent)


class ZipMapDataset(MapNodeDataset[tuple[Any, ...]]):
    """Tuples of the elements of several equally long random-access datasets.

    >>> ZipMapDataset([MapDataset.range(3), MapDataset.range(10, 13)])[1]
    (1, 11)
    """

    def __init__(self, parents: Sequence[MapDataset[Any]]) -> None:
        parents = check_parts(parents, "ZipMapDataset")
        if not parents:
            raise PlanError("`ZipMapDataset` needs at least one dataset, and got none.")
        lengths = [len(parent) for parent in parents]
        if len(set(lengths)) > 1:
            raise PlanError(f"`ZipMapDataset` needs equally long datasets, and got {lengths}.")
        super().__init__(ZipNode(tuple(map(map_node, parents))), parents)


class ZipIterDataset(StreamNodeDataset[tuple[Any, ...]]):
    """Tuples of the elements of several streams, which must end together if `strict`."""

    def __init__(self, parents: Sequence[IterDataset[Any]], *, strict: bool = True) -> None:
        parts = tuple(stream_node(parent) for parent in parents)
        if not parts:
            raise PlanError("`ZipIterDataset` needs at least one dataset, and got none.")
        super().__init__(ZipNode(parts, strict), list(parents))


class FlatMapMapDataset(MapNodeDataset[Any]):
    """Gives each element `max_fan_out` places, filled with what a `FlatMap` makes of it."""

    def __init__(self, parent: MapDataset[Any], transform: transforms.FlatMap) -> None:
        super().__init__(flat_map_step(map_node(parent), transform), parent)


class FlatMapIterDataset(StreamNodeDataset[Any]):
    """Replaces each element by all that a `FlatMap` makes of it."""

    def __init__(self, parent: IterDataset[Any], transform: transforms.FlatMap) -> None:
        super().__init__(flat_map_step(stream_node(parent), transform), parent)


class ThreadPrefetchIterDataset(StreamNodeDataset[T]):
    """Pulls the stream in a thread of its own, at most `prefetch_buffer_size` ahead."""

    def __init__(
        self,
        parent: IterDataset[T],
        *,
        prefetch_buffer_size: int | Literal["auto"] | AutotuneParameter,
    ) -> None:
        size = buffer_bounds(prefetch_buffer_size, "prefetch_buffer_size", MOST_BUFFERED)
        super().__init__(PrefetchNode(stream_node(parent), size), parent)


def device_put(
    ds: "IterDataset[Any] | MapDataset[Any]",
    device: Any,
    *,
    cpu_buffer_size: int | Literal["auto"] | AutotuneParameter = 4,
    device_buffer_size: int | Literal["auto"] | AutotuneParameter = 2,
) -> IterDataset[Any]:
    """Moves elements to JAX devices, ahead of the training.

    One thread makes elements, up to `cpu_buffer_size` ahead; another one moves them, up to
    `device_buffer_size` ahead. States are those of the elements handed out.

    With a sharding over devices of several processes (`NamedSharding` of a mesh), elements
    become global arrays: each process gives its own rows, as `MapDataset.lanes` deals them.

    Args:
      ds: what to move.
      device: a device, a sharding, or a tree of shardings that matches the elements.
      cpu_buffer_size: how many elements may wait in memory; 0 makes them when asked. "auto" lets
        more wait while the devices' thread had to wait for one, within 64 MB.
      device_buffer_size: how many elements may wait on the devices; 0 moves them when asked.
        "auto" lets more wait, up to 8, while the loop had to wait for one.
    """
    in_memory = buffer_bounds(cpu_buffer_size, "cpu_buffer_size", MOST_BUFFERED)
    on_device = buffer_bounds(device_buffer_size, "device_buffer_size", _MOST_ON_DEVICE)
    moved = ToDeviceNode(PrefetchNode(stream_node(ds), in_memory), Placement(device))
    return StreamNodeDataset(PrefetchNode(moved, on_device), ds)


class WithOptionsIterDataset(StreamNodeDataset[T]):
    """Attaches options to the whole pipeline; of several, the last to be attached wins."""

    def __init__(self, parent: IterDataset[T], options: DatasetOptions) -> None:
        if not isinstance(options, DatasetOptions):
            raise TypeError(f"options must be `DatasetOptions`, not {type(options).__name__}.")
        super().__init__(OptionsNode(stream_node(parent), options), parent)
