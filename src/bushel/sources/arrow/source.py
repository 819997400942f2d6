"""`ArrowDataSource`: IPC files and streams, Feather, memory-mapped."""

from collections.abc import Sequence
from typing import Any, ClassVar

from bushel.core.positions import Keys, distinct
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.table_files import (
    CACHE_BYTES,
    DISK_BYTES,
    Contents,
    TableFiles,
    stamp_at,
    unknown_column,
)
from bushel.sources.arrow.table_parts import TablePart
from bushel.sources.arrow.tables import OpenTable, OpenTables
from bushel.sources.endings import ARROW


class ArrowDataSource(TableFiles):
    """The rows of Arrow files as dicts, one file after the other.

    >>> import tempfile, pyarrow, pyarrow.feather
    >>> table = pyarrow.table({"x": range(4), "name": list("klmn")})
    >>> with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
    ...     pyarrow.feather.write_feather(table, file.name)
    ...     source = ArrowDataSource(file.name)
    ...     len(source), source[2]
    (4, {'x': np.int64(2), 'name': 'm'})

    Takes the file format, the stream format, and Feather. Files on this machine are mapped, and
    numbers copied straight to where they are wanted; files that are compressed, or come from
    afar, are decoded batch by batch.

    Args:
        paths: a file, a glob, a folder, which stands for its files that end in `.arrow`,
            `.feather` or `.arrows`, or a sequence of them.
        columns: the names of those to read.
        cache_bytes: how much memory decoded batches may take, in each process.
        disk_bytes: and how much on disk, as for `ParquetDataSource`.

    Values are as those of `ParquetDataSource`.
    """

    endings: ClassVar[tuple[str, ...]] = ARROW

    def __init__(
        self,
        paths: Any,
        *,
        columns: Sequence[str] | None = None,
        cache_bytes: int = CACHE_BYTES,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        arrow()
        super().__init__(paths, columns, cache_bytes, disk_bytes)

    def _start(self) -> None:
        super()._start()
        self._tables = OpenTables()

    def _look(self, path: str) -> Contents:
        stamp, table = stamp_at(path), OpenTable(path)
        schema = table.schema
        for name in self._columns or ():
            if name not in schema.names:
                raise unknown_column(name, path, schema.names)
        if self._columns is not None:
            schema = arrow().schema([schema.field(name) for name in self._columns])
        return Contents(stamp, table.rows, table.sizes, schema.remove_metadata())

    def _read(self, file: int, number: int, again: bool) -> TablePart:
        table = self._tables.get(self._paths[file])
        disk = self._unpacked("arrow", [file])
        kept = None if table.in_place else disk.open(number)
        if kept is not None:
            return TablePart(kept.batches, mapped=kept.mapped)
        batches = [batch.select(self._schema.names) for batch in table.read(number)]
        if table.in_place:
            return TablePart(batches, 0, table.map)
        size = sum(batch.nbytes for batch in batches)
        if again or size > self._cache_bytes:
            kept = disk.keep(number, self._schema, batches, size)
        if kept is not None:
            return TablePart(kept.batches, mapped=kept.mapped)
        return TablePart(batches, max(1, size))

    def _table(self, file: int, numbers: range) -> Any:
        # It is small, so it is in memory; and not kept open, as its decoded rows are cached
        # instead.
        table = OpenTable(self._paths[file])
        batches = [batch for number in numbers for batch in table.read(number)]
        return arrow().Table.from_batches(batches, table.schema).select(self._schema.names)

    def _checked(self, indices: Sequence[int] | Keys) -> Keys:
        keys = super()._checked(indices)
        groups = self._ends.searchsorted(keys, "right")
        for file in distinct(self._last_groups.searchsorted(groups, "right")).tolist():
            self._tables.check(self._paths[file])
        return keys
