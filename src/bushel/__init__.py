"""bushel feeds machine-learning training with data, a block of records at a time.

Its public names are Grain's: a program written for Grain runs with `import bushel as grain`.
"""

from bushel import constants, experimental, python, samplers, sharding, sources, transforms
from bushel import multiprocessing as multiprocessing
from bushel.config import config
from bushel.dataset import IterDataset, MapDataset
from bushel.deliver.iterator import DatasetIterator
from bushel.loader import DataLoader, DataLoaderIterator, load
from bushel.operations import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    Operation,
    RandomMapOperation,
)
from bushel.options import MultiprocessingOptions, ReadOptions
from bushel.record import Record, RecordMetadata
from bushel.samplers import IndexSampler, Sampler, SequentialSampler
from bushel.sharding import NoSharding, ShardByJaxProcess, ShardOptions
from bushel.sources import RandomAccessDataSource, RangeDataSource
from bushel.transforms import Batch, DatasetSelectionMap, MapBatches
from bushel.transforms import Batch as BatchTransform
from bushel.transforms import Filter as FilterTransform
from bushel.transforms import Map as MapTransform
from bushel.transforms import MapWithIndex as MapWithIndexTransform
from bushel.transforms import RandomMap as RandomMapTransform

__version__ = "0.1.0"
__version_info__ = (0, 1, 0)

__all__ = [
    "Batch",
    "BatchOperation",
    "BatchTransform",
    "DataLoader",
    "DataLoaderIterator",
    "DatasetIterator",
    "DatasetSelectionMap",
    "FilterOperation",
    "FilterTransform",
    "IndexSampler",
    "IterDataset",
    "MapBatches",
    "MapDataset",
    "MapOperation",
    "MapTransform",
    "MapWithIndexTransform",
    "MultiprocessingOptions",
    "NoSharding",
    "Operation",
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
    "__version__",
    "__version_info__",
    "config",
    "constants",
    "experimental",
    "load",
    "multiprocessing",
    "python",
    "samplers",
    "sharding",
    "sources",
    "transforms",
]
