"""`bushel.open`: opens files of any format, with the type of each source for editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from bushel.sources.base import FileSource
from bushel.sources.formats import format_of

if TYPE_CHECKING:
    from bushel.sources.array_record import ArrayRecordDataSource
    from bushel.sources.arrays.numpy import NumpyDataSource
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
    from bushel.sources.tfrecord.source import TFRecordDataSource
    from bushel.sources.written.source import WrittenDataSource


@overload
def open_source(
    paths: Any, *, format: Literal["arrayrecord"], **options: Any
) -> ArrayRecordDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["parquet"], **options: Any) -> ParquetDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["arrow"], **options: Any) -> ArrowDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["numpy"], **options: Any) -> NumpyDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["tar"], **options: Any) -> TarDataSource: ...
@overload
def open_source(
    paths: Any, *, format: Literal["tfrecord"], **options: Any
) -> TFRecordDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["jsonl"], **options: Any) -> JsonLinesDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["csv"], **options: Any) -> CsvDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["text"], **options: Any) -> TextLinesDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["bagz"], **options: Any) -> BagzDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["zarr"], **options: Any) -> ZarrDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["lance"], **options: Any) -> LanceDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["energon"], **options: Any) -> EnergonDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["mds"], **options: Any) -> MDSDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["litdata"], **options: Any) -> LitDataDataSource: ...
@overload
def open_source(
    paths: Any, *, format: Literal["images"], **options: Any
) -> ImageFolderDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["files"], **options: Any) -> FilesDataSource: ...
@overload
def open_source(paths: Any, *, format: Literal["written"], **options: Any) -> WrittenDataSource: ...
@overload
def open_source(paths: Any, *, format: str | None = None, **options: Any) -> FileSource: ...
def open_source(paths: Any, *, format: str | None = None, **options: Any) -> FileSource:
    """Opens files for reading by key, whatever their format: `bushel.open`.

    The format is told by their first bytes, or else by the endings of their names. What comes
    back is a source: `len(source)`, `source[i]`, and what `MapDataset.source` and `DataLoader`
    take. Of a folder that `write` wrote, it is the elements as they were, checked against the
    manifest.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "points.jsonl")
    ...     _ = path.write_text('{"x": 1}\\n{"x": 2}\\n')
    ...     source = open_source(path)
    ...     len(source), source[1]
    (2, {'x': 2})

    Args:
      paths: a file, a folder, a glob, a URL (s3://, gs://, https://, ...), or a sequence of them.
      format: "parquet", "tfrecord", ...: for files that do not tell.
      **options: what the source of that format takes beside its paths.
    """
    source: FileSource = format_of(paths, format).open(paths, **options)
    return source
