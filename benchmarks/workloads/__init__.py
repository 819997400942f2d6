"""All workloads, in the order of the table."""

from benchmarks.workload import Workload
from benchmarks.workloads import (
    heavy_records,
    import_time,
    random_map,
    restore,
    shuffle,
    shuffle_memory,
    small_records,
    stream,
    vectorised,
)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        small_records.WORKLOAD,
        vectorised.SMALL_IMAGES,
        vectorised.MNIST_IMAGES,
        random_map.DATASET,
        random_map.LOADER,
        random_map.ONE_BY_ONE,
        shuffle.WORKLOAD,
        stream.WORKLOAD,
        heavy_records.SLOW,
        heavy_records.COMPRESSED,
        restore.WORKLOAD,
        import_time.WORKLOAD,
        shuffle_memory.WORKLOAD,
    )
}
