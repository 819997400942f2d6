"""Where records come from."""

from typing import TYPE_CHECKING

from bushel.core.lazy import lazily
from bushel.sources.base import RandomAccessDataSource
from bushel.sources.memory import RangeDataSource

if TYPE_CHECKING:
    from bushel.sources.array_record import ArrayRecordDataSource
    from bushel.sources.arrow import ArrowDataSource
    from bushel.sources.bagz import BagzDataSource
    from bushel.sources.csv import CsvDataSource
    from bushel.sources.example import encode_example, parse_example, parse_sequence_example
    from bushel.sources.folder import FilesDataSource, ImageFolderDataSource
    from bushel.sources.lance import LanceDataSource
    from bushel.sources.lines import JsonLinesDataSource, TextLinesDataSource
    from bushel.sources.numpy_files import NumpyDataSource
    from bushel.sources.parquet import ParquetDataSource
    from bushel.sources.shared import SharedMemoryDataSource
    from bushel.sources.tar import TarDataSource
    from bushel.sources.tfrecord import TFRecordDataSource
    from bushel.sources.tfrecord_write import write_tfrecords
    from bushel.sources.tokens import TokenDataSource
    from bushel.sources.torch_datasets import TorchDataSource
    from bushel.sources.zarr import ZarrDataSource

__all__ = [
    "ArrayRecordDataSource",
    "ArrowDataSource",
    "BagzDataSource",
    "CsvDataSource",
    "FilesDataSource",
    "ImageFolderDataSource",
    "JsonLinesDataSource",
    "LanceDataSource",
    "NumpyDataSource",
    "ParquetDataSource",
    "RandomAccessDataSource",
    "RangeDataSource",
    "SharedMemoryDataSource",
    "TFRecordDataSource",
    "TarDataSource",
    "TextLinesDataSource",
    "TokenDataSource",
    "TorchDataSource",
    "ZarrDataSource",
    "encode_example",
    "parse_example",
    "parse_sequence_example",
    "write_tfrecords",
]

_HOMES = {
    "ArrayRecordDataSource": "sources.array_record:ArrayRecordDataSource",
    "ArrowDataSource": "sources.arrow:ArrowDataSource",
    "BagzDataSource": "sources.bagz:BagzDataSource",
    "CsvDataSource": "sources.csv:CsvDataSource",
    "FilesDataSource": "sources.folder:FilesDataSource",
    "ImageFolderDataSource": "sources.folder:ImageFolderDataSource",
    "JsonLinesDataSource": "sources.lines:JsonLinesDataSource",
    "LanceDataSource": "sources.lance:LanceDataSource",
    "NumpyDataSource": "sources.numpy_files:NumpyDataSource",
    "ParquetDataSource": "sources.parquet:ParquetDataSource",
    "SharedMemoryDataSource": "sources.shared:SharedMemoryDataSource",
    "TFRecordDataSource": "sources.tfrecord:TFRecordDataSource",
    "TarDataSource": "sources.tar:TarDataSource",
    "TextLinesDataSource": "sources.lines:TextLinesDataSource",
    "TokenDataSource": "sources.tokens:TokenDataSource",
    "TorchDataSource": "sources.torch_datasets:TorchDataSource",
    "ZarrDataSource": "sources.zarr:ZarrDataSource",
    "encode_example": "sources.example:encode_example",
    "parse_example": "sources.example:parse_example",
    "parse_sequence_example": "sources.example:parse_sequence_example",
    "write_tfrecords": "sources.tfrecord_write:write_tfrecords",
}
__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
