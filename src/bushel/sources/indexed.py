"""The base class of sources that read records in files (lines, TFRecord, tar) by an index.

The index has the beginnings of records: record i is from `bounds[i]` up to `bounds[i+1]`.

    file     ┌ record 0 ┬ record 1 ┬ record 2 ┐
    bounds   0          57         91         140
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index as whole
from typing import Any, ClassVar, NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from bushel.core.per_process import ProcessLock
from bushel.core.positions import Keys, grouped
from bushel.errors import FileError, RecordError, replaced_file
from bushel.files.index import Columns, Index, index_of, places_of_index
from bushel.files.local import ByteFile, OpenFiles
from bushel.files.paths import expand, is_remote
from bushel.files.progress_line import ProgressLine
from bushel.files.request_pool import MOST_REQUESTS, RequestPool
from bushel.sources.endings import COMPRESSED
from bushel.sources.indexed_unpacked import unpacked

_MOST_AT_ONCE = 8  # files that are scanned in parallel
_AT_ONCE = 64  # records of a block, in iteration over a source
# The most remote files that are waited for in parallel. Each may have several requests.
_together = RequestPool(MOST_REQUESTS)


# Makes records: (their bytes, number of the file, their numbers in it) -> records.
Decode: TypeAlias = Callable[[Sequence[bytes], int, Keys], list[Any]]


class _IndexedFile(NamedTuple):
    """A file with its index; in place of a compressed file, its unpacked copy."""

    path: str
    stamp: str
    columns: Index


class IndexedSource(ABC):
    """Records of files whose offsets are looked up once, and stored.

    A subclass scans a file, and decodes records. A pickle of a source has names of files and no
    index: the process that receives it finds that beside the files, or makes it.
    """

    # The endings of a folder's files; compressed ones have another ending after it.
    endings: ClassVar[tuple[str, ...]] = ()
    # The columns of the index. The first has the beginnings of records, and the end of the last
    # one.
    columns: ClassVar[tuple[str, ...]] = ("bounds",)

    def __init__(self, paths: Any) -> None:
        packed = [ending + packing for ending in self.endings for packing in COMPRESSED]
        self._paths = expand(paths, [*self.endings, *packed])
        self._files = OpenFiles()
        # Stamps of the files, to notice in another process that one was replaced.
        self._stamps: list[str] = []
        self._opened: list[_IndexedFile] | None = None
        self._lock = ProcessLock()
        counts = [len(opened.columns[self.columns[0]]) - 1 for opened in self._open()]
        self._ends: Keys = np.cumsum(counts, dtype=np.int64)

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of index, with every option on which it depends: "lines(header=True)"."""

    def is_plain(self, head: bytes) -> bool:
        """Whether the first bytes of a file only look as if it were compressed."""
        return False

    @abstractmethod
    def scan(self, file: ByteFile, progress: ProgressLine) -> Columns:
        """Scans a file for the columns of its index; the first has one entry more than records."""

    @abstractmethod
    def decode(self, data: Sequence[bytes], file: int, records: Keys) -> list[Any]:
        """Decodes records of one file."""

    @property
    def paths(self) -> list[str]:
        """The files, in the order of their records."""
        return list(self._paths)

    def file_stamps(self) -> dict[str, str]:
        """For each file, a text that changes when the file changes, as of its opening."""
        return dict(zip(self._paths, self._stamps, strict=True))

    @property
    def known_bytes(self) -> int | None:
        """The number of bytes in all records, if the indexes are open already."""
        if self._opened is None:
            return None
        bounds = (opened.columns[self.columns[0]] for opened in self._opened)
        return sum(int(bound[-1]) - int(bound[0]) for bound in bounds)

    def _open(self) -> list[_IndexedFile]:
        """The files with their indexes; a source from another process opens them anew."""
        opened = self._opened
        if opened is not None:
            return opened
        with self._lock:
            if self._opened is None:
                if is_remote(self._paths[0]):
                    _together.each(self._files.get, self._paths)  # First, whether they are there.
                if len(self._paths) == 1:
                    found = self._looked_up(map(self._open_one, self._paths))
                else:
                    from concurrent.futures import ThreadPoolExecutor

                    with ThreadPoolExecutor(min(len(self._paths), _MOST_AT_ONCE)) as pool:
                        found = self._looked_up(pool.map(self._open_one, self._paths))
                stamps = [stamp for stamp, _ in found]
                for path, now, before in zip(self._paths, stamps, self._stamps, strict=False):
                    if now != before:
                        raise replaced_file(path)
                self._stamps = stamps
                self._opened = [opened for _, opened in found]
            return self._opened

    def _looked_up(
        self, opened: Iterable[tuple[str, _IndexedFile]]
    ) -> list[tuple[str, _IndexedFile]]:
        """Looks up all files, with a progress line; many small ones take long, too."""
        number = len(self._paths)
        if number == 1:
            return list(opened)
        found = []
        with ProgressLine(f"looking up records in {number:,} files", number, "files") as progress:
            for one in opened:
                found.append(one)
                progress.to(len(found))
        return found

    def _open_one(self, path: str) -> tuple[str, _IndexedFile]:
        file = self._files.get(path)
        plain = unpacked(file, self.is_plain)
        data = file if plain == path else self._files.get(plain)
        index = index_of(data, self.kind, self.columns, self.scan)
        if not len(index[self.columns[0]]):
            raise _damaged(path, self.kind)
        return file.stamp, _IndexedFile(plain, data.stamp, index)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: SupportsIndex) -> Any:
        key = whole(index)
        self._check(key, key)
        return self._read(*self._find(key), self.decode)[0]

    # `__getitems__` takes keys as an array, too.
    takes_arrays = True

    def __getitems__(self, indices: Sequence[int] | Keys) -> list[Any]:
        """Many records in one call: each file is read in the order of its bytes."""
        keys = np.asarray(indices)
        if not len(keys):
            return []
        if keys.dtype.kind not in "iu":
            raise TypeError(f"keys are whole numbers, and {indices[0]!r} is among them.")
        keys = keys.astype(np.int64, copy=False)
        return self._many(keys, self.decode)

    def _many(self, keys: Keys, decode: Decode) -> list[Any]:
        self._check(int(keys.min()), int(keys.max()))
        if len(self._paths) == 1:
            return self._read(0, keys, decode)
        which = self._ends.searchsorted(keys, side="right")
        groups = list(grouped(which))
        wanted = [(number, keys[places] - self._first(number)) for number, places in groups]
        self._open()
        # Each remote file takes a wait, so they are read in parallel.
        read = _together.each if is_remote(self._paths[0]) else map
        found: Iterable[list[bytes]] = read(lambda some: self._bytes(*some), wanted)
        records: list[Any] = [None] * len(keys)
        for (number, some), (_, places), data in zip(wanted, groups, found, strict=True):
            for place, record in zip(places.tolist(), decode(data, number, some), strict=True):
                records[place] = record
        return records

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self.__getitems__(range(start, min(start + _AT_ONCE, len(self))))

    def _check(self, lowest: int, highest: int) -> None:
        for key in (lowest, highest):
            if not 0 <= key < len(self):
                raise IndexError(f"{self} has no record {key}; it has {len(self):,}.")

    def _first(self, number: int) -> int:
        return int(self._ends[number - 1]) if number else 0

    def _find(self, key: int) -> tuple[int, Keys]:
        number = int(self._ends.searchsorted(key, side="right"))
        return number, np.array([key - self._first(number)], dtype=np.int64)

    def _read(self, number: int, records: Keys, decode: Decode) -> list[Any]:
        """Reads records of one file, by their numbers in it."""
        return decode(self._bytes(number, records), number, records)

    def _bytes(self, number: int, records: Keys) -> list[bytes]:
        path, stamp, columns = self._open()[number]
        file = self._files.get(path)
        if file.stamp != stamp:  # Opened again since, and now it is another version.
            raise replaced_file(self._paths[number])
        file.check()
        bounds = columns[self.columns[0]]
        if len(records) == 1:
            (record,) = records.tolist()
            start, stop = int(bounds[record]), int(bounds[record + 1])
            # The index is data, and checked: it must not make us read outside of the file.
            if not 0 <= start <= stop <= file.size:
                raise _damaged(self._paths[number], self.kind)
            return [file.read(start, stop)]
        starts, stops = bounds[records], bounds[records + 1]
        if starts.min() < 0 or stops.max() > file.size or (starts > stops).any():
            raise _damaged(self._paths[number], self.kind)
        return file.read_many(starts, stops)

    def place_of(self, key: int) -> tuple[str, int, int]:
        """The file of a record, its number in it, and the byte at which it starts."""
        self._check(key, key)
        number, records = self._find(key)
        bounds = self._open()[number].columns[self.columns[0]]
        return self._paths[number], int(records[0]), int(bounds[records[0]])

    def places_of(self, keys: Keys) -> list[tuple[str, int, int, int]]:
        """For each record its file, its number in it, and its first and last byte."""
        if not len(keys):
            return []
        self._check(int(keys.min()), int(keys.max()))
        numbers = self._ends.searchsorted(keys, side="right")
        records = keys - np.append(0, self._ends)[numbers]
        bounds = np.empty((2, len(keys)), dtype=np.int64)
        opened = self._open()
        for number, mine in grouped(numbers):
            column = opened[number].columns[self.columns[0]]
            bounds[0, mine] = column[records[mine]]
            bounds[1, mine] = column[records[mine] + 1]
        paths = [self._paths[number] for number in numbers.tolist()]
        return list(zip(paths, records.tolist(), *bounds.tolist(), strict=True))

    def _wrong(self, number: int, record: int, problem: str) -> RecordError:
        """The error about a record that cannot be decoded."""
        start = int(self._open()[number].columns[self.columns[0]][record])
        return RecordError(
            f"{self._name_of(number, record)} of {self._paths[number]!r}, which begins at byte "
            f"{start:,}, {problem}"
        )

    def _name_of(self, number: int, record: int) -> str:
        """The name of a record in messages."""
        return f"record {record:,}"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    def __repr__(self) -> str:
        files = f"{len(self._paths):,} file{'s' * (len(self._paths) != 1)}"
        records = f"{len(self):,} record{'s' * (len(self) != 1)}"
        return f"{type(self).__name__}({self._paths[0]!r}, {files}, {records})"


def _damaged(path: str, kind: str) -> FileError:
    files = [place for place in places_of_index(path, kind) if os.path.exists(place)]
    shown = " and ".join(map(repr, files)) or "it"
    return FileError(f"the index of {path!r} is damaged; remove {shown}, and it is made again.")
