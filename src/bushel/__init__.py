"""bushel feeds machine-learning training with data, a block of records at a time.

Its public names are Grain's: a program written for Grain runs with `import bushel as grain`.
Each name is loaded when it is first used, so that importing bushel costs next to nothing.
"""

from typing import TYPE_CHECKING

from bushel.core.lazy_names import lazily

__version__ = "0.2.0"
__version_info__ = (0, 2, 0)

if TYPE_CHECKING:
    from bushel import checkpoint as checkpoint
    from bushel import constants as constants
    from bushel import errors as errors
    from bushel import experimental as experimental
    from bushel import huggingface as huggingface
    from bushel import keras as keras
    from bushel import monitoring as monitoring
    from bushel import multiprocessing as multiprocessing
    from bushel import python as python
    from bushel import samplers as samplers
    from bushel import sharding as sharding
    from bushel import sources as sources
    from bushel import torch as torch
    from bushel import transforms as transforms
    from bushel.checkpoint import orbax as _orbax
    from bushel.checkpoint.orbax import CheckpointHandler as CheckpointHandler
    from bushel.checkpoint.orbax import CheckpointRestore as CheckpointRestore
    from bushel.checkpoint.orbax import CheckpointSave as CheckpointSave
    from bushel.core.in_grains_place import replace_grain as replace_grain
    from bushel.core.options import MultiprocessingOptions as MultiprocessingOptions
    from bushel.core.options import OnError as OnError
    from bushel.core.options import ReadOptions as ReadOptions
    from bushel.core.ray_options import RayOptions as RayOptions
    from bushel.core.record import Record as Record
    from bushel.core.record import RecordMetadata as RecordMetadata
    from bushel.core.settings import config as config
    from bushel.dataset import IterDataset as IterDataset
    from bushel.dataset import MapDataset as MapDataset
    from bushel.deliver.iterator import DatasetIterator as DatasetIterator
    from bushel.grain.packed import PaddingReport as PaddingReport
    from bushel.grain.packed import padding_report as padding_report
    from bushel.loader.iterator import DataLoaderIterator as DataLoaderIterator
    from bushel.loader.loader import DataLoader as DataLoader
    from bushel.loader.loader import load as load
    from bushel.loader.operations import BatchOperation as BatchOperation
    from bushel.loader.operations import FilterOperation as FilterOperation
    from bushel.loader.operations import MapOperation as MapOperation
    from bushel.loader.operations import Operation as Operation
    from bushel.loader.operations import RandomMapOperation as RandomMapOperation
    from bushel.order.schedule import WeightSchedule as WeightSchedule
    from bushel.provenance.covers import covers as covers
    from bushel.provenance.diff import diff as diff
    from bushel.provenance.when import when as when
    from bushel.provenance.where import where as where
    from bushel.samplers import IndexSampler as IndexSampler
    from bushel.samplers import Sampler as Sampler
    from bushel.samplers import SequentialSampler as SequentialSampler
    from bushel.sharding import NoSharding as NoSharding
    from bushel.sharding import ShardByJaxProcess as ShardByJaxProcess
    from bushel.sharding import ShardOptions as ShardOptions
    from bushel.sources import RandomAccessDataSource as RandomAccessDataSource
    from bushel.sources import RangeDataSource as RangeDataSource
    from bushel.sources import open_source as _open_source
    from bushel.sources.array_record import ArrayRecordDataSource as ArrayRecordDataSource
    from bushel.sources.arrays.shared import SharedMemoryDataSource as SharedMemoryDataSource
    from bushel.transforms import Batch as Batch
    from bushel.transforms import DatasetSelectionMap as DatasetSelectionMap
    from bushel.transforms import MapBatches as MapBatches
    from bushel.watch.explain import explain as explain
    from bushel.watch.iterate import iterate as iterate
    from bushel.watch.own_metrics import opentelemetry_metrics as opentelemetry_metrics
    from bushel.watch.own_metrics import prometheus_collector as prometheus_collector
    from bushel.watch.profile import profile as profile
    from bushel.watch.simulate import simulate as simulate

    # A type checker takes a name that is imported under another one for a private matter.
    BatchTransform = transforms.Batch
    FilterTransform = transforms.Filter
    MapTransform = transforms.Map
    MapWithIndexTransform = transforms.MapWithIndex
    RandomMapTransform = transforms.RandomMap
    GrainCheckpointHandler = PyGrainCheckpointHandler = _orbax.CheckpointHandler
    GrainCheckpointRestore = PyGrainCheckpointRestore = _orbax.CheckpointRestore
    GrainCheckpointSave = PyGrainCheckpointSave = _orbax.CheckpointSave
    InMemoryDataSource = SharedMemoryDataSource
    open = _open_source.open_source

# Where each name lives; "module" alone is a module of that name.
_HOMES = {
    "checkpoint": "checkpoint",
    "config": "core.settings:config",
    "constants": "constants",
    "errors": "errors",
    "experimental": "experimental",
    "huggingface": "huggingface",
    "keras": "keras",
    "monitoring": "monitoring",
    "multiprocessing": "multiprocessing",
    "python": "python",
    "samplers": "samplers",
    "sharding": "sharding",
    "sources": "sources",
    "torch": "torch",
    "transforms": "transforms",
    "ArrayRecordDataSource": "sources.array_record:ArrayRecordDataSource",
    "Batch": "transforms:Batch",
    "BatchOperation": "loader.operations:BatchOperation",
    "BatchTransform": "transforms:Batch",
    **{
        f"{prefix}{name}": f"checkpoint.orbax:{name}"
        for prefix in ("", "Grain", "PyGrain")
        for name in ("CheckpointHandler", "CheckpointRestore", "CheckpointSave")
    },
    "DataLoader": "loader.loader:DataLoader",
    "DataLoaderIterator": "loader.iterator:DataLoaderIterator",
    "DatasetIterator": "deliver.iterator:DatasetIterator",
    "DatasetSelectionMap": "transforms:DatasetSelectionMap",
    "FilterOperation": "loader.operations:FilterOperation",
    "FilterTransform": "transforms:Filter",
    "InMemoryDataSource": "sources.arrays.shared:SharedMemoryDataSource",
    "IndexSampler": "samplers:IndexSampler",
    "IterDataset": "dataset:IterDataset",
    "MapBatches": "transforms:MapBatches",
    "MapDataset": "dataset:MapDataset",
    "MapOperation": "loader.operations:MapOperation",
    "MapTransform": "transforms:Map",
    "MapWithIndexTransform": "transforms:MapWithIndex",
    "MultiprocessingOptions": "core.options:MultiprocessingOptions",
    "NoSharding": "sharding:NoSharding",
    "OnError": "core.options:OnError",
    "Operation": "loader.operations:Operation",
    "RandomAccessDataSource": "sources:RandomAccessDataSource",
    "RandomMapOperation": "loader.operations:RandomMapOperation",
    "RandomMapTransform": "transforms:RandomMap",
    "RangeDataSource": "sources:RangeDataSource",
    "RayOptions": "core.ray_options:RayOptions",
    "ReadOptions": "core.options:ReadOptions",
    "Record": "core.record:Record",
    "RecordMetadata": "core.record:RecordMetadata",
    "Sampler": "samplers:Sampler",
    "SequentialSampler": "samplers:SequentialSampler",
    "ShardByJaxProcess": "sharding:ShardByJaxProcess",
    "ShardOptions": "sharding:ShardOptions",
    "SharedMemoryDataSource": "sources.arrays.shared:SharedMemoryDataSource",
    "WeightSchedule": "order.schedule:WeightSchedule",
    "explain": "watch.explain:explain",
    "iterate": "watch.iterate:iterate",
    "profile": "watch.profile:profile",
    "simulate": "watch.simulate:simulate",
    "opentelemetry_metrics": "watch.own_metrics:opentelemetry_metrics",
    "prometheus_collector": "watch.own_metrics:prometheus_collector",
    "load": "loader.loader:load",
    "PaddingReport": "grain.packed:PaddingReport",
    "padding_report": "grain.packed:padding_report",
    "replace_grain": "core.in_grains_place:replace_grain",
    "open": "sources.open_source:open_source",
    "covers": "provenance.covers:covers",
    "diff": "provenance.diff:diff",
    "when": "provenance.when:when",
    "where": "provenance.where:where",
}

# Not those that need Orbax: `from bushel import *` works without it. And nobody who writes that
# wants another `open`, or another `keras` or `torch`.
_NOT_BY_STAR = {"open", "huggingface", "keras", "torch"}
_PLAIN = [name for name, home in _HOMES.items() if "orbax" not in home and name not in _NOT_BY_STAR]
__all__ = [*_PLAIN, "__version__", "__version_info__"]


__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted([*_HOMES, *(name for name in globals() if name.startswith("__"))])
