"""Names that Grain keeps in its `experimental` module."""

from typing import Any

from bushel.deliver.iterator import get_next_index, set_next_index
from bushel.named_datasets import (
    FlatMapIterDataset,
    FlatMapMapDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    WindowShuffleMapDataset,
    WithOptionsIterDataset,
    ZipIterDataset,
    ZipMapDataset,
)
from bushel.options import DatasetOptions, ExecutionTrackingMode
from bushel.order.permutation import index_shuffle
from bushel.rng import RngPool
from bushel.run.suggest import PerformanceConfig, pick_performance_config
from bushel.spec import ShapeDtypeStruct, ShapeDtypeStructProtocol, get_element_spec
from bushel.testing import assert_equal_output_after_checkpoint
from bushel.transforms import FlatMap as FlatMapTransform
from bushel.transforms import MapWithIndex as MapWithIndexTransform


def apply_transformations(ds: Any, transformations: Any) -> Any:
    """The older form of `ds.apply(transformations)`."""
    return ds.apply(transformations)


__all__ = [
    "DatasetOptions",
    "ExecutionTrackingMode",
    "FlatMapIterDataset",
    "FlatMapMapDataset",
    "FlatMapTransform",
    "MapWithIndexTransform",
    "PerformanceConfig",
    "RngPool",
    "ShapeDtypeStruct",
    "ShapeDtypeStructProtocol",
    "ThreadPrefetchIterDataset",
    "WindowShuffleIterDataset",
    "WindowShuffleMapDataset",
    "WithOptionsIterDataset",
    "ZipIterDataset",
    "ZipMapDataset",
    "apply_transformations",
    "assert_equal_output_after_checkpoint",
    "get_element_spec",
    "get_next_index",
    "index_shuffle",
    "pick_performance_config",
    "set_next_index",
]
