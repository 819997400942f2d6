"""All workloads, in the order of the table."""

from benchmarks.workload import Workload
from benchmarks.workloads import (
    array_record,
    checkpoint,
    device_idle,
    first_batch,
    heavy_records,
    import_time,
    jpeg_decode,
    large_batches,
    random_map,
    restore,
    shared_source_memory,
    shuffle,
    shuffle_memory,
    small_records,
    small_records_workers,
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
        array_record.WORKLOAD,
        large_batches.WORKLOAD,
        jpeg_decode.WORKLOAD,
        small_records_workers.WORKLOAD,
        first_batch.WORKLOAD,
        shared_source_memory.WORKLOAD,
        device_idle.WORKLOAD,
        checkpoint.TIME,
        checkpoint.SIZE,
        restore.WORKLOAD,
        import_time.WORKLOAD,
        shuffle_memory.WORKLOAD,
    )
}
