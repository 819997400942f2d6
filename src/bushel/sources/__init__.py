"""Sources: where records come from."""

from typing import TYPE_CHECKING

from bushel.core.lazy_names import lazily
from bushel.sources.base import RandomAccessDataSource
from bushel.sources.memory import RangeDataSource

if TYPE_CHECKING:
    from bushel.sources.array_record import ArrayRecordDataSource
    from bushel.sources.arrays.numpy import NumpyDataSource
    from bushel.sources.arrays.shared import SharedMemoryDataSource
    from bushel.sources.arrays.token_windows import TokenDataSource
    from bushel.sources.arrays.zarr import ZarrDataSource
    from bushel.sources.arrow.parquet import ParquetDataSource
    from bushel.sources.arrow.source import ArrowDataSource
    from bushel.sources.bagz import BagzDataSource
    from bushel.sources.energon import EnergonDataSource
    from bushel.sources.folder import FilesDataSource, ImageFolderDataSource
    from bushel.sources.lance import LanceDataSource
    from bushel.sources.shard_folder.litdata import LitDataDataSource
    from bushel.sources.shard_folder.mds import MDSDataSource
    from bushel.sources.tar.source import TarDataSource
    from bushel.sources.text.csv import CsvDataSource
    from bushel.sources.text.lines import JsonLinesDataSource, TextLinesDataSource
    from bushel.sources.tfrecord.example import (
        encode_example,
        parse_example,
        parse_sequence_example,
    )
    from bushel.sources.tfrecord.source import TFRecordDataSource
    from bushel.sources.tfrecord.write import write_tfrecords
    from bushel.sources.torch_datasets import TorchDataSource

__all__ = [
    "ArrayRecordDataSource",
    "ArrowDataSource",
    "BagzDataSource",
    "CsvDataSource",
    "EnergonDataSource",
    "FilesDataSource",
    "ImageFolderDataSource",
    "JsonLinesDataSource",
    "LanceDataSource",
    "LitDataDataSource",
    "MDSDataSource",
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
    "ArrowDataSource": "sources.arrow.source:ArrowDataSource",
    "BagzDataSource": "sources.bagz:BagzDataSource",
    "CsvDataSource": "sources.text.csv:CsvDataSource",
    "EnergonDataSource": "sources.energon:EnergonDataSource",
    "FilesDataSource": "sources.folder:FilesDataSource",
    "ImageFolderDataSource": "sources.folder:ImageFolderDataSource",
    "JsonLinesDataSource": "sources.text.lines:JsonLinesDataSource",
    "LanceDataSource": "sources.lance:LanceDataSource",
    "LitDataDataSource": "sources.shard_folder.litdata:LitDataDataSource",
    "MDSDataSource": "sources.shard_folder.mds:MDSDataSource",
    "NumpyDataSource": "sources.arrays.numpy:NumpyDataSource",
    "ParquetDataSource": "sources.arrow.parquet:ParquetDataSource",
    "SharedMemoryDataSource": "sources.arrays.shared:SharedMemoryDataSource",
    "TFRecordDataSource": "sources.tfrecord.source:TFRecordDataSource",
    "TarDataSource": "sources.tar.source:TarDataSource",
    "TextLinesDataSource": "sources.text.lines:TextLinesDataSource",
    "TokenDataSource": "sources.arrays.token_windows:TokenDataSource",
    "TorchDataSource": "sources.torch_datasets:TorchDataSource",
    "ZarrDataSource": "sources.arrays.zarr:ZarrDataSource",
    "encode_example": "sources.tfrecord.example:encode_example",
    "parse_example": "sources.tfrecord.example:parse_example",
    "parse_sequence_example": "sources.tfrecord.example:parse_sequence_example",
    "write_tfrecords": "sources.tfrecord.write:write_tfrecords",
}
__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
