"""The arguments of a `DataLoader`, as a value."""

from typing import Any

from bushel.core.frozen import frozen
from bushel.core.options import MultiprocessingOptions, OnError, ReadOptions, WorkersKey
from bushel.core.ray_options import RayOptions
from bushel.sharding import ShardOptions


@frozen
class Recipe:
    """The arguments of a loader. Quick to import: workers start before everything else."""

    data_source: Any
    sampler: Any
    operations: tuple[Any, ...]
    shard_options: ShardOptions
    read_options: ReadOptions
    worker_options: MultiprocessingOptions | RayOptions
    on_error: OnError
    # The key of its worker processes, which stay from one pass to the next.
    workers: WorkersKey
