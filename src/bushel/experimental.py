"""Names that Grain keeps in its `experimental` module."""

from typing import Any

from bushel.core.options import DatasetOptions, ExecutionTrackingMode
from bushel.core.rng import RngPool
from bushel.core.stack import batch_and_pad
from bushel.core.tuned_options import AutotuneParameter
from bushel.deliver.next_index import get_next_index, set_next_index
from bushel.grain.elastic import ElasticIterator
from bushel.grain.execution_summary import get_execution_summary
from bushel.grain.file_streams import TFRecordIterDataset
from bushel.grain.named import (
    FlatMapIterDataset,
    FlatMapMapDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    WindowShuffleMapDataset,
    WithOptionsIterDataset,
    ZipIterDataset,
    ZipMapDataset,
    device_put,
)
from bushel.grain.packed import (
    BestFitPackIterDataset,
    BOSHandling,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    RebatchIterDataset,
)
from bushel.grain.parquet import ParquetIterDataset
from bushel.grain.spec import ShapeDtypeStruct, ShapeDtypeStructProtocol, get_element_spec
from bushel.grain.streams import (
    CacheIterDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RepeatIterDataset,
    ThreadPrefetchDatasetIterator,
    multithread_prefetch,
)
from bushel.grain.suggest import PerformanceConfig, pick_performance_config
from bushel.grain.testing import assert_equal_output_after_checkpoint
from bushel.loader.operations import PackAndBatchOperation
from bushel.order.permutation import index_shuffle
from bushel.transforms import FlatMap as FlatMapTransform
from bushel.transforms import MapWithIndex as MapWithIndexTransform


def apply_transformations(ds: Any, transformations: Any) -> Any:
    """The older form of `ds.apply(transformations)`."""
    return ds.apply(transformations)


__all__ = [
    "AutotuneParameter",
    "BOSHandling",
    "BestFitPackIterDataset",
    "CacheIterDataset",
    "ConcatThenSplitIterDataset",
    "DatasetOptions",
    "ElasticIterator",
    "ExecutionTrackingMode",
    "FirstFitPackIterDataset",
    "FlatMapIterDataset",
    "FlatMapMapDataset",
    "FlatMapTransform",
    "InterleaveIterDataset",
    "LimitIterDataset",
    "MapWithIndexTransform",
    "PackAndBatchOperation",
    "ParquetIterDataset",
    "PerformanceConfig",
    "RebatchIterDataset",
    "RepeatIterDataset",
    "RngPool",
    "ShapeDtypeStruct",
    "ShapeDtypeStructProtocol",
    "TFRecordIterDataset",
    "ThreadPrefetchDatasetIterator",
    "ThreadPrefetchIterDataset",
    "WindowShuffleIterDataset",
    "WindowShuffleMapDataset",
    "WithOptionsIterDataset",
    "ZipIterDataset",
    "ZipMapDataset",
    "apply_transformations",
    "assert_equal_output_after_checkpoint",
    "batch_and_pad",
    "device_put",
    "get_element_spec",
    "get_execution_summary",
    "get_next_index",
    "index_shuffle",
    "multithread_prefetch",
    "pick_performance_config",
    "set_next_index",
]
