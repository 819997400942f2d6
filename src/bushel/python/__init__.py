"""The older spellings of Grain's `grain.python`."""

from typing import TYPE_CHECKING

from bushel.constants import DATASET_INDEX, EPOCH, INDEX, META_FEATURES, RECORD, RECORD_KEY, SEED
from bushel.core.lazy_names import lazily
from bushel.core.options import MultiprocessingOptions, ReadOptions
from bushel.core.record import Record, RecordMetadata
from bushel.core.settings import config
from bushel.dataset import IterDataset, MapDataset
from bushel.deliver.iterator import DatasetIterator
from bushel.loader.iterator import DataLoaderIterator as PyGrainDatasetIterator
from bushel.loader.loader import DataLoader, load
from bushel.loader.operations import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    Operation,
    RandomMapOperation,
)
from bushel.python import experimental as experimental
from bushel.samplers import IndexSampler, Sampler, SequentialSampler
from bushel.sharding import NoSharding, ShardByJaxProcess, ShardOptions
from bushel.sources import RandomAccessDataSource, RangeDataSource
from bushel.transforms import Batch, DatasetSelectionMap, Transformation, Transformations
from bushel.transforms import Filter as FilterTransform
from bushel.transforms import Map as MapTransform
from bushel.transforms import MapWithIndex as MapWithIndexTransform
from bushel.transforms import RandomMap as RandomMapTransform

if TYPE_CHECKING:
    from bushel.checkpoint import orbax as _orbax
    from bushel.sources.array_record import ArrayRecordDataSource
    from bushel.sources.arrays.shared import SharedMemoryDataSource as InMemoryDataSource
    from bushel.transport.shared_array import SharedMemoryArray

    # Not in `__all__`: `from bushel.python import *` works without Orbax.
    GrainCheckpointHandler = PyGrainCheckpointHandler = _orbax.CheckpointHandler
    GrainCheckpointRestore = PyGrainCheckpointRestore = _orbax.CheckpointRestore
    GrainCheckpointSave = PyGrainCheckpointSave = _orbax.CheckpointSave
    BatchTransform = Batch

__all__ = [
    "DATASET_INDEX",
    "EPOCH",
    "INDEX",
    "META_FEATURES",
    "RECORD",
    "RECORD_KEY",
    "SEED",
    "ArrayRecordDataSource",
    "Batch",
    "BatchOperation",
    "DataLoader",
    "DatasetIterator",
    "DatasetSelectionMap",
    "FilterOperation",
    "FilterTransform",
    "InMemoryDataSource",
    "IndexSampler",
    "IterDataset",
    "MapDataset",
    "MapOperation",
    "MapTransform",
    "MapWithIndexTransform",
    "MultiprocessingOptions",
    "NoSharding",
    "Operation",
    "PyGrainDatasetIterator",
    "RandomAccessDataSource",
    "RandomMapOperation",
    "RandomMapTransform",
    "RangeDataSource",
    "ReadOptions",
    "Record",
    "RecordMetadata",
    "Sampler",
    "SequentialSampler",
    "ShardByJaxProcess",
    "ShardOptions",
    "SharedMemoryArray",
    "Transformation",
    "Transformations",
    "config",
    "experimental",
    "load",
]

_HOMES = {
    "ArrayRecordDataSource": "sources.array_record:ArrayRecordDataSource",
    "PyGrainCheckpointHandler": "checkpoint.orbax:CheckpointHandler",
    "PyGrainCheckpointRestore": "checkpoint.orbax:CheckpointRestore",
    "PyGrainCheckpointSave": "checkpoint.orbax:CheckpointSave",
    "BatchTransform": "transforms:Batch",
    "GrainCheckpointHandler": "checkpoint.orbax:CheckpointHandler",
    "GrainCheckpointRestore": "checkpoint.orbax:CheckpointRestore",
    "GrainCheckpointSave": "checkpoint.orbax:CheckpointSave",
    "InMemoryDataSource": "sources.arrays.shared:SharedMemoryDataSource",
    "SharedMemoryArray": "transport.shared_array:SharedMemoryArray",
}
__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    # `__all__` leaves out what needs Orbax: `from bushel.python import *` works without it.
    return sorted({*__all__, *_HOMES})
