"""Open Arrow files: batches of a file or a stream, memory-mapped where possible.

Batches in place are one part, in which numpy finds rows by itself. Batches that have to be decoded
are a part each; those of a stream, which has no index of them, are one part together.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from bushel.core.per_process import PerProcess
from bushel.errors import FileError
from bushel.files.local import open_file
from bushel.files.paths import is_remote
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.table_files import SMALL_BYTES, SeekableFile
from bushel.sources.arrow.types import number_type

_FILE_BEGINS = b"ARROW1"
_OLD_FEATHER_BEGINS = b"FEA1"


class OpenTable:
    """The record batches of an Arrow file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open_file(path)
        self._lock = threading.Lock()
        # The whole file: in memory if it is small, or a mapping if it is on this machine.
        self.map: Any = None
        # The reader of an Arrow file; or the batches of an Arrow stream, if they are in place.
        self._reader: Any = None
        self._batches: list[Any] | None = None
        with _explained(path):
            begin = self._file.read(0, min(self._file.size, len(_FILE_BEGINS)))
            if begin.startswith(_OLD_FEATHER_BEGINS):
                raise FileError(
                    f"{path!r} is a Feather file of version 1, which cannot be read in place. "
                    "Write it anew with `pyarrow.feather.write_feather`."
                )
            source = self._bytes()
            if begin == _FILE_BEGINS:
                self._reader = arrow().ipc.open_file(source)
                self.schema = self._reader.schema
                self.rows = self._rows_of_batches(source)
                self._batches = self._find_in_place()
                self.in_place = self._batches is not None
            else:
                self._read_stream(source)
        if self.in_place:
            self.rows = [sum(self.rows)]
        # Bytes of each part when decoded; negative if finding out would take long.
        self.sizes = [-1] * len(self.rows)
        if self._file.size <= SMALL_BYTES:
            self.sizes = [self._size_of(number) for number in range(len(self.rows))]

    def _bytes(self) -> Any:
        """The bytes from which pyarrow reads the file."""
        if not self._file.size:
            raise FileError(f"{self.path!r} is empty, and so no Arrow file.")
        if self.map is None and self._file.size <= SMALL_BYTES:
            self.map = arrow().py_buffer(self._file.read(0, self._file.size))
        if self.map is None and is_remote(self.path):
            return arrow().PythonFile(SeekableFile(self._file), mode="r")
        if self.map is None:
            # The mapping survives closing the file, as long as some part uses it.
            with arrow().memory_map(self.path) as mapped:
                self.map = mapped.read_buffer(self._file.size)
        return arrow().BufferReader(self.map)

    def _rows_of_batches(self, source: Any) -> list[int]:
        # One column is enough to count rows: compressed ones would all be decoded.
        plain = [i for i, kind in enumerate(self.schema.types) if number_type(kind) is not None]
        fields = (plain or [0])[:1] if self.schema.types else None
        one = arrow().ipc.IpcReadOptions(included_fields=fields)
        reader = arrow().ipc.open_file(source, options=one)
        return [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]

    def _read_stream(self, source: Any) -> None:
        """Finds the batches of a stream."""
        with arrow().ipc.open_stream(source) as reader:
            self.schema = reader.schema
            batches = list(reader)
        self.in_place = all(map(self._is_in_place, batches))
        self._batches = batches if self.in_place else None
        self.rows = [sum(batch.num_rows for batch in batches)]

    def _find_in_place(self) -> list[Any] | None:
        """The batches of a file, if all are in place.

        Some batches of a compressed file may be: those that compression would not have made
        smaller.
        """
        batches = []
        for number in range(len(self.rows)):
            batch = self._reader.get_batch(number)
            if not self._is_in_place(batch):
                return None
            batches.append(batch)
        return batches

    def _is_in_place(self, batch: Any) -> bool:
        """Whether a batch is a view of the file, and not a copy in memory."""
        if self.map is None:
            return False
        start, stop = self.map.address, self.map.address + self.map.size
        buffers = [buffer for column in batch.columns for buffer in column.buffers()]
        return all(start <= b.address < stop for b in buffers if b is not None and b.size)

    def read(self, number: int) -> list[Any]:
        """The batches of a part; views of the file, if those are in place."""
        with _explained(self.path, number):
            if self._batches is not None:
                batches = self._batches
            elif self._reader is None:
                with arrow().ipc.open_stream(self._bytes()) as reader:
                    batches = list(reader)
            else:
                # With remote bytes, threads would take turns in the middle of a read.
                with self._lock if self.map is None else nullcontext():
                    batches = [self._reader.get_batch(number)]
            for batch in batches:
                # Batches in place are validated cheaply: only rows that are read are looked at.
                batch.validate(full=not self.in_place)
            return batches

    def _size_of(self, number: int) -> int:
        try:
            return sum(batch.nbytes for batch in self.read(number))
        except FileError:
            return -1  # Reading it will raise the error.

    def check(self) -> None:
        """Raises if the file was written to: access to truncated bytes would crash the process."""
        self._file.check()


@contextmanager
def _explained(path: str, number: int | None = None) -> Iterator[None]:
    """Turns errors of pyarrow about a file, or a batch of it, into a `FileError`."""
    try:
        yield
    except (arrow().ArrowException, OSError, EOFError, ValueError, OverflowError) as error:
        if isinstance(error, FileError):
            raise
        what = f"{path!r} is no Arrow file, or not a whole one"
        why = "If it once was one, it has been cut short or damaged; write or copy it anew."
        if number is not None:
            what = f"record batch {number} of {path!r} cannot be read"
            why = "The file is damaged; write or copy it anew."
        raise FileError(f"{what}: {str(error).rstrip('.')}. {why}") from None


class OpenTables(PerProcess[str, OpenTable]):
    """The files of a source that were read from, in each process."""

    def _make(self, key: str) -> OpenTable:
        return OpenTable(key)

    def check(self, path: str) -> None:
        """Raises if an open file was written to."""
        table = self.find(path)
        if table is not None:
            table.check()
