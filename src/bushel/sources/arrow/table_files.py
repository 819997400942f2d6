"""The base of Parquet and Arrow sources: parts, read again if cut short; changed files."""

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from bushel.core.per_process import ProcessLock
from bushel.core.positions import Keys
from bushel.errors import BushelError, FileError, PlanError, RecordError, replaced_file
from bushel.files.local import ByteFile, open_file, stamp_of
from bushel.files.paths import expand, is_remote
from bushel.files.request_pool import MOST_REQUESTS, RequestPool
from bushel.sources.arrow.bundles import Bundles, Span
from bushel.sources.arrow.package import arrow
from bushel.sources.arrow.part_cache import PartCache
from bushel.sources.arrow.table_parts import Reader, TablePart
from bushel.sources.arrow.unpacked import Unpacked
from bushel.sources.keyed import KeyedSource, shown_files

R = TypeVar("R")

_MOST_AT_ONCE = 8  # files that are examined in parallel
# The most remote files that are waited for in parallel. Each may have several requests.
_together = RequestPool(MOST_REQUESTS)
# A file of this size is read as a whole.
SMALL_BYTES = 1 << 17
CACHE_BYTES = 1 << 28
DISK_BYTES = 1 << 35


class Contents(NamedTuple):
    """The content of a file: its groups, and its columns.

    For each group, the number of rows, and the number of bytes when it is decoded; negative if
    unknown.
    """

    stamp: str
    rows: list[int]
    sizes: list[int]
    schema: Any


class _TakenApart(Exception):
    """A bundle could not be read; its groups are read one by one from now on."""


class TableFiles(KeyedSource):
    """The rows of tables in files, one file after the other.

    A subclass examines a file, and reads its groups.
    """

    # The file name endings of a folder's files.
    endings: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, paths: Any, columns: Sequence[str] | None, cache_bytes: int, disk_bytes: int
    ) -> None:
        for name, value in (("cache_bytes", cache_bytes), ("disk_bytes", disk_bytes)):
            if not isinstance(value, int) or value < 0:
                raise PlanError(f"{name} is a number of bytes, 0 for none, and got {value!r}.")
        self._columns = _checked_names(columns)
        self._cache_bytes, self._disk_bytes = cache_bytes, disk_bytes
        self._paths = expand(paths, self.endings)
        with ThreadPoolExecutor(min(len(self._paths), _MOST_AT_ONCE)) as pool:
            contents = list(pool.map(self._look, self._paths))
        self._schema = contents[0].schema
        for path, found in zip(self._paths, contents, strict=True):
            _check_same(self._paths[0], self._schema, path, found.schema)
        self._stamps = [found.stamp for found in contents]
        rows = [count for found in contents for count in found.rows]
        sizes = [size for found in contents for size in found.sizes]
        # Running totals: groups up to the end of each file, rows up to the end of each group.
        self._last_groups = np.cumsum([len(found.rows) for found in contents], dtype=np.int64)
        self._ends = np.cumsum(rows, dtype=np.int64)
        self._bundles = Bundles.of(rows, sizes, cache_bytes)
        self._lock = ProcessLock()
        self._start()

    def _start(self) -> None:
        self._cache = PartCache(self._cache_bytes, self._load)
        self._reader = self._reader_of(self._bundles)

    def _reader_of(self, bundles: Bundles) -> Reader:
        cache, span = self._cache, bundles.span

        def part_of(number: int) -> TablePart:
            part = cache.get(span(number))
            if not part.is_whole():  # The parts on disk are made again.
                cache.discard(span(number), part)
                part = cache.get(span(number))
            return part

        return Reader(
            self._schema,
            bundles.ends,
            part_of,
            lambda part: cache.is_coming(span(part)),
        )

    @abstractmethod
    def _look(self, path: str) -> Contents:
        """Examines a file."""

    @abstractmethod
    def _read(self, file: int, number: int, again: bool) -> TablePart:
        """Reads a group of a file; `again` if that was done before."""

    @abstractmethod
    def _table(self, file: int, numbers: range) -> Any:
        """Small groups of a file as one table, with the columns of the source."""

    @property
    def paths(self) -> list[str]:
        """The files, in the order of their records."""
        return list(self._paths)

    def file_stamps(self) -> dict[str, str]:
        """For each file, a text that changes when the file changes, as of its opening."""
        return dict(zip(self._paths, self._stamps, strict=True))

    @property
    def schema(self) -> Any:
        """The columns, as pyarrow describes them."""
        return self._schema

    def _load(self, span: Span, again: bool) -> TablePart:
        if span.stop - span.first > 1:
            return self._load_bundle(span, again)
        file, number = self._file_of(span.first)
        self._check_stamp(file)
        part = self._read(file, number, again)
        self._check_rows(file, span, part.length)
        return part

    def _load_bundle(self, span: Span, again: bool) -> TablePart:
        """Reads small groups, of several files or of one, to be cached together."""
        wanted = self._by_file(span)
        disk = self._unpacked(f"{span}", wanted)
        try:
            for file in wanted:
                self._check_stamp(file)
            kept = disk.open(span.first)
            if kept is not None:
                return TablePart(kept.batches, mapped=kept.mapped)
            # Each remote file takes a wait, so they are read in parallel.
            read = _together.each if is_remote(self._paths[0]) else map
            found = list(read(lambda file: self._small(file, *wanted[file]), list(wanted)))
        except FileError:
            # Only records of the damaged file are lost: each group is read alone.
            with self._lock:
                self._bundles = self._bundles.without(span)
                self._reader = self._reader_of(self._bundles)
            raise _TakenApart from None
        whole = arrow().concat_tables(found).combine_chunks()
        batches, size = whole.to_batches(), whole.nbytes
        kept = disk.keep(span.first, self._schema, batches, size) if again else None
        if kept is not None:
            return TablePart(kept.batches, mapped=kept.mapped)
        return TablePart(batches, max(1, size))

    def _small(self, file: int, first: int, stop: int) -> Any:
        table = self._table(file, range(first, stop))
        before = int(self._last_groups[file - 1]) if file else 0
        self._check_rows(file, Span(before + first, before + stop), table.num_rows)
        return table

    def _check_rows(self, file: int, span: Span, found: int) -> None:
        """Refuses groups whose number of rows differs from the metadata."""
        expected = self._ends[span.stop - 1] - (self._ends[span.first - 1] if span.first else 0)
        if found != expected:
            raise FileError(
                f"{self._paths[file]!r} says that it has {expected:,} rows where there are "
                f"{found:,}. The file is damaged; write or copy it anew."
            )

    def _by_file(self, span: Span) -> dict[int, Span]:
        """Groups by file, as their numbers in it."""
        found: dict[int, Span] = {}
        for group in range(span.first, span.stop):
            file, number = self._file_of(group)
            found[file] = Span(found[file].first if file in found else number, number + 1)
        return found

    def _check_stamp(self, file: int) -> None:
        if stamp_at(self._paths[file]) != self._stamps[file]:
            raise replaced_file(self._paths[file])

    def _unpacked(self, kind: str, files: Iterable[int]) -> Unpacked:
        """The cache of decoded groups on disk."""
        paths = [self._paths[file] for file in files]
        names = [path if is_remote(path) else os.path.abspath(path) for path in paths]
        stamps = [self._stamps[file] for file in files]
        # The text of a schema may leave out long parts.
        columns = [(field.name, str(field.type)) for field in self._schema]
        return Unpacked(f"{kind}\n{names}\n{stamps}\n{columns}", self._disk_bytes)

    def _file_of(self, group: int) -> tuple[int, int]:
        """The file of a group, and its number in it."""
        file = int(self._last_groups.searchsorted(group, "right"))
        return file, group - (int(self._last_groups[file - 1]) if file else 0)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def _records(self, keys: Keys) -> list[Any]:
        """Reads each part once."""
        return self._explained(keys, lambda some: self._reader.records(some))

    def read_columns(self, keys: Keys) -> dict[str, Any] | None:
        """Many records as columns, if all are numbers without nulls."""
        return self._explained(self._checked(keys), lambda some: self._reader.columns(some))

    def _explained(self, keys: Keys, read: Callable[[Keys], R]) -> R:
        """Reads records; an error names the record whose values cannot be read."""
        while True:
            try:
                return read(keys)
            except _TakenApart:
                continue
            except BushelError:
                raise
            except (arrow().ArrowException, ValueError, IndexError, OverflowError) as error:
                if len(keys) == 1:
                    path, record, _ = self.place_of(int(keys[0]))
                    said = " ".join(str(error).split()).rstrip(".")
                    raise RecordError(
                        f"record {record:,} of {path!r} cannot be read: {said}. The file is "
                        "damaged; write or copy it anew."
                    ) from error
                for key in keys:
                    self._explained(np.array([key]), read)
                raise

    def place_of(self, key: int) -> tuple[str, int, int | None]:
        """The file of a record, and its number in it; its values are in several places there."""
        file, _ = self._file_of(int(self._ends.searchsorted(key, "right")))
        before = int(self._last_groups[file - 1]) if file else 0
        return self._paths[file], key - (int(self._ends[before - 1]) if before else 0), None

    def __getstate__(self) -> dict[str, Any]:
        # Cached data stays here; a process that receives the source reads for itself.
        kept = {**vars(self)}
        del kept["_cache"], kept["_reader"]
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_files(self._paths)}, {len(self):,} records)"


def _checked_names(columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    if isinstance(columns, str):
        raise PlanError(f"columns are a list of names; write `columns=[{columns!r}]`.")
    names = list(columns)
    if not names or not all(isinstance(name, str) for name in names):
        raise PlanError(f"columns are a list of names, at least one, and got {columns!r}.")
    if len(set(names)) < len(names):
        raise PlanError(f"columns names a column twice: {names}.")
    return names


def _check_same(first: str, expected: Any, path: str, found: Any) -> None:
    """Refuses files whose columns differ from those of the first."""
    kinds = dict(zip(found.names, found.types, strict=True))
    if len(kinds) < len(found.names):
        twice = next(name for name in found.names if found.names.count(name) > 1)
        raise FileError(f"{path!r} has several columns {twice!r}, which records cannot have.")
    wanted = dict(zip(expected.names, expected.types, strict=True))
    for name in {**wanted, **kinds}:
        if wanted.get(name) != kinds.get(name):
            there, here = wanted.get(name, "not there"), kinds.get(name, "not there")
            raise FileError(
                f"the files of a source have the same columns, and {name!r} is {there} in "
                f"{first!r} and {here} in {path!r}. Choose those that all have with `columns`, or "
                "make a source of each and `concatenate` them."
            )


def unknown_column(name: str, path: str, names: Sequence[str]) -> PlanError:
    return PlanError(f"{path!r} has no column {name!r}; it has {', '.join(map(repr, names))}.")


def stamp_at(path: str) -> str:
    """A text that changes when the file changes."""
    if is_remote(path):
        return open_file(path).stamp
    try:
        status = os.stat(path)
    except OSError:
        return open_file(path).stamp  # It raises what is wrong.
    return stamp_of(status)


class SeekableFile:
    """A file of bytes with the interface that pyarrow reads."""

    closed = False

    def __init__(self, file: ByteFile) -> None:
        self._file, self._place = file, 0

    def read(self, size: int = -1) -> bytes:
        stop = self._file.size if size < 0 else min(self._file.size, self._place + size)
        data = self._file.read(self._place, stop) if stop > self._place else b""
        self._place += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._file.size}
        self._place = base[whence] + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """The opener of the file closes it."""
