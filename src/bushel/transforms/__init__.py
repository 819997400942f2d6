"""Transformations: base classes to subclass, and the declaration of a batch."""

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
