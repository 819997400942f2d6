"""`ParquetDataSource`: the row groups of Parquet files, decoded and read by pyarrow."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from bushel.errors import FileError
from bushel.files.local import open_file
from bushel.files.paths import is_remote
from bushel.sources.arrow.package import arrow, parquet
from bushel.sources.arrow.table_files import (
    CACHE_BYTES,
    DISK_BYTES,
    SMALL_BYTES,
    Contents,
    SeekableFile,
    TableFiles,
    stamp_at,
    unknown_column,
)
from bushel.sources.arrow.table_parts import TablePart
from bushel.sources.endings import PARQUET

_ROWS_AT_ONCE = 1 << 14


class ParquetDataSource(TableFiles):
    """The rows of Parquet files as dicts, one file after the other.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> folder = tempfile.TemporaryDirectory()
    >>> for letter, start in (("a", 0), ("b", 4)):
    ...     table = pyarrow.table({"x": range(start, start + 4), "name": list("klmn")})
    ...     pyarrow.parquet.write_table(table, f"{folder.name}/{letter}.parquet", row_group_size=2)
    >>> source = ParquetDataSource(folder.name)
    >>> len(source), source[5]
    (8, {'x': np.int64(5), 'name': 'l'})
    >>> ParquetDataSource(folder.name, columns=["x"]).read_columns([7, 0])
    {'x': array([7, 0])}
    >>> folder.cleanup()

    Records in any order come from row groups in any order, of which each has to be decoded as
    a whole. So those that were last used are kept in memory, and one that is wanted again after
    it had to make room is kept on disk too, decoded: from then on it is read in place, by all
    processes of this machine.

    Args:
        paths: a file, a glob, a folder, which stands for its files that end in `.parquet`, or a
            sequence of them.
        columns: the names of those to read; `"a.b"` is field `b` of the struct `a`.
        cache_bytes: how much memory decoded row groups may take, in each process. One that is
            larger is decoded straight to disk.
        disk_bytes: how much they may take on disk, in the folder that the environment variable
            BUSHEL_CACHE names, together with those of other sources; 0 to keep none there.
            A tenth of the disk always stays free. What does not fit is decoded each time.

    Numbers, dates and times are numpy's, of the type of their column, and lists of numbers are
    arrays; a null is None.
    """

    endings: ClassVar[tuple[str, ...]] = PARQUET

    def __init__(
        self,
        paths: Any,
        *,
        columns: Sequence[str] | None = None,
        cache_bytes: int = CACHE_BYTES,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        parquet()
        # The columns of the last file, in two forms, and the types that they are read as.
        self._alike: tuple[Any, Any, Any] | None = None
        super().__init__(paths, columns, cache_bytes, disk_bytes)
        self._alike = None

    def _look(self, path: str) -> Contents:
        stamp = stamp_at(path)
        with opened(path) as file:
            metadata = _FOOTERS.put(path, stamp, file.metadata)
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            rows = [group.num_rows for group in groups]
            # Bytes of all columns, read or not: this only decides which groups are small.
            sizes = [group.total_byte_size for group in groups]
            return Contents(stamp, rows, sizes, self._schema_of(path, file))

    def _schema_of(self, path: str, file: Any) -> Any:
        """The columns as they are read; cached, as it takes a while, and files are mostly alike."""
        alike = self._alike
        if alike is not None and alike[0].equals(file.schema) and alike[1] == file.schema_arrow:
            return alike[2]
        leaves = [file.schema.column(number).path for number in range(len(file.schema))]
        for name in self._columns or ():
            if not any(_is_in(leaf, name) for leaf in leaves):
                raise unknown_column(name, path, file.schema_arrow.names)
        schema = _decoded(file.read_row_groups([], self._columns)).schema.remove_metadata()
        self._alike = file.schema, file.schema_arrow, schema
        return schema

    def _read(self, file: int, number: int, again: bool) -> TablePart:
        path, stamp = self._paths[file], self._stamps[file]
        disk = self._unpacked("parquet", [file])
        kept = disk.open(number)
        if kept is not None:
            return TablePart(kept.batches, mapped=kept.mapped)
        with opened(path, number, metadata=_FOOTERS.get(path, stamp)) as table:
            metadata = _FOOTERS.put(path, stamp, table.metadata)
            group = metadata.row_group(number)
            size = int(group.total_byte_size)
            if size > self._cache_bytes and self._columns is not None:
                size = self._size(group)
            if size > self._cache_bytes:
                # Too large for memory: a few rows at a time, straight to the disk.
                batches = table.iter_batches(
                    _ROWS_AT_ONCE, [number], self._columns, use_threads=False
                )
                kept = disk.keep(number, self._schema, map(self._in_order, batches), size)
                if kept is not None:
                    return TablePart(kept.batches, mapped=kept.mapped)
            # bushel has its own threads: several row groups are decoded in parallel, each by one
            # thread.
            group = table.read_row_group(number, self._columns, use_threads=False)
        batches = self._in_order(group).to_batches()
        size = group.nbytes
        kept = disk.keep(number, self._schema, batches, size) if again else None
        if kept is not None:
            return TablePart(kept.batches, mapped=kept.mapped)
        return TablePart(batches, max(1, size))

    def _table(self, file: int, numbers: range) -> Any:
        path = self._paths[file]
        with opened(path, numbers[0], metadata=_FOOTERS.get(path, self._stamps[file])) as table:
            groups = table.read_row_groups(list(numbers), self._columns, use_threads=False)
            return self._in_order(groups)

    def place_of(self, key: int) -> tuple[str, int, int | None]:
        """The file of a record, its number in it, and the byte of its row group if intact."""
        path, record, _ = super().place_of(key)
        file, number = self._file_of(int(self._ends.searchsorted(key, "right")))
        try:
            with opened(path, number, metadata=_FOOTERS.get(path, self._stamps[file])) as table:
                leaf = table.schema.column(0).path
                # Reading the metadata of a damaged column crashes the process. Reading the column
                # does not.
                table.read_row_group(number, [leaf], use_threads=False)
                first = table.metadata.row_group(number).column(0)
        except FileError:
            return path, record, None
        return path, record, int(first.dictionary_page_offset or first.data_page_offset)

    def _size(self, group: Any) -> int:
        """The size of the columns of a row group that are read, before decoding."""
        columns = map(group.column, range(group.num_columns))
        return sum(
            column.total_uncompressed_size
            for column in columns
            if any(_is_in(column.path_in_schema, name) for name in self._columns or ())
        )

    def _in_order(self, table: Any) -> Any:
        """The columns in the order of the first file, each in one piece if possible."""
        if isinstance(table, arrow().RecordBatch):
            table = arrow().Table.from_batches([table])
        return _decoded(table).select(self._schema.names).cast(self._schema).combine_chunks()


def _is_in(leaf: str, name: str) -> bool:
    """Whether a stored column is a column, or a part of it."""
    return leaf == name or leaf.startswith(f"{name}.")


@contextmanager
def opened(path: str, number: int | None = None, **options: Any) -> Iterator[Any]:
    """An open file; errors of pyarrow about it, or about a row group, become a `FileError`."""
    data = open_file(path)
    source: Any = path
    if data.size <= SMALL_BYTES:
        source = arrow().BufferReader(data.read(0, data.size))
    elif is_remote(path):
        source = arrow().PythonFile(SeekableFile(data), mode="r")
    what = f"{path!r} is no Parquet file, or not a whole one"
    why = "If it once was one, it has been cut short or damaged; write or copy it anew."
    try:
        # No mapping: reading a truncated file would crash the process.
        with parquet().ParquetFile(source, **options) as file:
            if number is not None:
                what = f"row group {number} of {path!r} cannot be read"
                why = "The file is damaged; write or copy it anew."
            yield file
    except (arrow().ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, FileError):
            raise
        said = " ".join(str(error).split()).rstrip(".")  # It may have several lines.
        raise FileError(f"{what}: {said}. {why}") from None


class _Footers:
    """Metadata of files, those read last: with many row groups, reading it takes a while.

    A file that is opened for its rows has its metadata added here, and is not opened for that
    alone: with thousands of small files, opening is most of the work.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[tuple[str, str], Any] = {}

    def get(self, path: str, stamp: str) -> Any:
        """The metadata of a file, or None."""
        return self._kept.get((path, stamp))

    def put(self, path: str, stamp: str, footer: Any) -> Any:
        """Keeps the metadata of a file, and returns it."""
        self._kept[path, stamp] = footer
        while len(self._kept) > self._most:
            # Another thread may do the same. (A lock might be held in a forked process.)
            with suppress(KeyError, RuntimeError):
                del self._kept[next(iter(self._kept))]
        return footer


_FOOTERS = _Footers(64)


def _decoded(table: Any) -> Any:
    """Dictionary-encoded columns as their values, as each row group may have its own dictionary."""
    for number, field in enumerate(table.schema):
        if arrow().types.is_dictionary(field.type):
            column = table.column(number).cast(field.type.value_type)
            table = table.set_column(number, field.name, column)
    return table
