"""The user's functions: `map`, `filter`, flat map, and the classes to subclass."""

from bushel.transforms.base import (
    Batch,
    DatasetSelectionMap,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    MapWithIndex,
    RandomMap,
    TfRandomMap,
    Transformation,
    Transformations,
)

__all__ = [
    "Batch",
    "DatasetSelectionMap",
    "Filter",
    "FlatMap",
    "Map",
    "MapBatches",
    "MapWithIndex",
    "RandomMap",
    "TfRandomMap",
    "Transformation",
    "Transformations",
]
